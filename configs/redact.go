package configs

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"go.yaml.in/yaml/v3"
)

// hidden stands for a secret.
const hidden = "***"

// Redacted is a copy that may be shown: tokens, passwords, webhook secrets and
// what may be one in a URL are replaced by ***.
func (c Config) Redacted() Config {
	c.HTTP.Tokens = hideAll(c.HTTP.Tokens, hide)
	c.Store.MySQL.DSN = hideDSN(c.Store.MySQL.DSN)
	c.Store.MySQL.DSNs = hideAll(c.Store.MySQL.DSNs, hideDSN)
	c.Cluster.Secret = hide(c.Cluster.Secret)
	c.Cluster.Consul.Address = hideURL(c.Cluster.Consul.Address)
	c.Cluster.Consul.Token = hide(c.Cluster.Consul.Token + c.Cluster.Consul.TokenFile)
	c.Redis.Addrs = hideAll(c.Redis.Addrs, hideURL)
	c.Redis.Password = hide(c.Redis.Password)
	c.Kafka.Clusters = slices.Clone(c.Kafka.Clusters)
	for i := range c.Kafka.Clusters {
		c.Kafka.Clusters[i].SASL.Password = hide(c.Kafka.Clusters[i].SASL.Password)
	}
	c.Tracing.OTLP = hideURL(c.Tracing.OTLP)
	c.BizTypes = slices.Clone(c.BizTypes)
	for i, b := range c.BizTypes {
		c.BizTypes[i] = b.Redacted()
	}
	return c
}

// Redacted is a copy that may be shown.
func (b BizType) Redacted() BizType {
	b.Webhook.URL = hideURL(b.Webhook.URL)
	b.Webhook.Secret = hide(b.Webhook.Secret)
	b.Webhook.PreviousSecret = hide(b.Webhook.PreviousSecret)
	return b
}

// String is the Config as YAML in the form of the file, secrets hidden.
func (c Config) String() string { return render(c.Redacted()) }

// GoString is String, so that %#v hides secrets too.
func (c Config) GoString() string { return c.String() }

// LogValue is String for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String is the BizType as YAML in the form of the file, secrets hidden.
func (b BizType) String() string { return render(b.Redacted()) }

// GoString is String, so that %#v hides secrets too.
func (b BizType) GoString() string { return b.String() }

// LogValue is String for slog.
func (b BizType) LogValue() slog.Value { return slog.StringValue(b.String()) }

func hide(secret string) string {
	if secret == "" {
		return ""
	}
	return hidden
}

func hideAll(secrets []string, hide func(string) string) []string {
	shown := make([]string, len(secrets))
	for i, s := range secrets {
		shown[i] = hide(s)
	}
	return shown
}

// hideDSN leaves the user, the address and the database. It hides all of a text that
// is no DSN, because the password may be anywhere in it.
func hideDSN(dsn string) string {
	if _, problem := parseDSN(dsn); problem != "" {
		return hide(dsn)
	}
	c, _ := mysql.ParseDSN(escapeVerb(dsn))
	who := c.User
	if c.Passwd != "" {
		who += ":" + hidden
	}
	if who != "" {
		who += "@"
	}
	return who + c.Net + "(" + c.Addr + ")/" + c.DBName
}

// secretPart is the length from which a part of a URL's path is taken for a secret: many
// services have the key of a webhook there.
const secretPart = 16

// hideURL hides the password, the query and long parts of the path; all of what is no
// URL and might hold one of them.
func hideURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		if strings.ContainsAny(address, "@?") {
			return hidden
		}
		return address
	}
	if u.RawQuery != "" {
		u.RawQuery = hidden
	}
	parts := strings.Split(u.EscapedPath(), "/")
	for i := range parts {
		if len(parts[i]) >= secretPart {
			parts[i] = hidden
		}
	}
	u.RawPath = strings.Join(parts, "/")
	u.Path, _ = url.PathUnescape(u.RawPath)
	return u.Redacted()
}

// render writes a section as YAML, keys in the order of the tree.
func render(section any) string {
	out, err := yaml.Marshal(section)
	if err != nil { // no section has what YAML cannot write
		return err.Error()
	}
	return string(out)
}
