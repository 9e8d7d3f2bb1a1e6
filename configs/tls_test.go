package configs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestTLS(t *testing.T) {
	a := testrig.NewAuthority(t, "authority")
	pair, other := a.Issue(), a.Issue()
	load := func(text string, environ ...string) (configs.Config, error) {
		path := filepath.Join(t.TempDir(), "toc.yaml")
		require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer("CA", a.File, "CERT", pair.Cert, "KEY", pair.Key, "OTHER", other.Key).Replace(text)), 0o600))
		return configs.Load(path, environ)
	}
	whole := configs.TLS{CA: a.File, Cert: pair.Cert, Key: pair.Key, ServerName: "db.example"}
	c, err := load("store: {driver: mysql, mysql: {tls: {ca: CA, cert: CERT, key: KEY, server_name: db.example}}}\n"+
		"cluster: {provider: consul, consul: {address: \"https://consul:8501\", tls: {ca: CA, cert: CERT, key: KEY, server_name: db.example}}}\n"+
		"redis: {addrs: [redis:6379], tls: {server_name: db.example}}\nbiz_types: [{id: 1, name: a}]\n",
		"TOC_REDIS_TLS_CA="+a.File, "TOC_REDIS_TLS_CERT="+pair.Cert, "TOC_REDIS_TLS_KEY="+pair.Key)
	require.NoError(t, err)
	for _, got := range []configs.TLS{c.Store.MySQL.TLS, c.Cluster.Consul.TLS, c.Redis.TLS} {
		require.Equal(t, whole, got)
	}
	require.Empty(t, c.Warnings())

	mysql := func(rest string) string { return "store: {driver: mysql, mysql: {" + rest + "}}" }
	consul := func(rest string) string {
		return "store: {driver: mysql}\nbiz_types: [{id: 1, name: a}]\ncluster: {provider: consul, consul: {" + rest + "}}"
	}
	for text, says := range map[string]string{
		mysql("tls: {ca: system}"):                                "",
		"store:\n  driver: mysql\n  mysql:\n    tls:\n":           "", // all keys are commented out
		mysql(`tls: {ca: ""}`):                                    "",
		"store: {mysql: {tls: {ca: /nosuch}}}":                    "", // not used
		consul("tls: {ca: CA}"):                                   "",
		mysql("tls: {}"):                                          "store.mysql.tls: is empty; write {ca: system} to trust the certificates of the machine",
		mysql("tls: true"):                                        "store.mysql.tls: is not a section; write its keys, as in {ca: system}",
		mysql("tls: {ca: /nosuch}"):                               "store.mysql.tls.ca: cannot be read: stat /nosuch",
		mysql("tls: {ca: CA, cert: CERT}"):                        "store.mysql.tls.key: is empty, and there is a cert",
		mysql("tls: {ca: CA, cert: CERT, key: OTHER}"):            "store.mysql.tls.key: \"" + other.Key + "\" is not the key of the certificate in",
		mysql("tls: {ca: KEY}"):                                   "store.mysql.tls.ca: \"" + pair.Key + "\" has no certificate in PEM form (",
		mysql("tls: {skip_verify: true}"):                         "store.mysql.tls.skip_verify: unknown key",
		mysql(`dsn: "u@tcp(h:1)/toc_%d?tls=true", tls: {ca: CA}`): "store.mysql.dsn: has tls=true, and store.mysql.tls is set; leave one of them out",
		mysql(`dsn: "u@tcp(h:1)/toc_%d?allowFallbackToPlaintext=true", tls: {ca: CA}`):                               "store.mysql.dsn: has allowFallbackToPlaintext=true",
		mysql(`dsn: "u@unix(/run/mysqld.sock)/toc_%d", tls: {ca: CA}`):                                               "store.mysql.dsn: is a socket of this machine, and store.mysql.tls is set",
		"store: {driver: mysql, databases: 1, mysql: {dsns: [\"u@tcp(h:1)/toc_0?tls=skip-verify\"], tls: {ca: CA}}}": "store.mysql.dsns[0]: has tls=skip-verify",
		consul(`address: "http://consul:8500", tls: {ca: CA}`):                                                       "cluster.consul.address: \"http://consul:8500\" is plain text, and cluster.consul.tls is set; write https, or host:port",
		consul("tls: {ca: /nosuch}"):                               "cluster.consul.tls.ca: cannot be read: ",
		"redis: {tls: {ca: CA}}":                                   "redis.tls: redis.addrs is embedded",
		"redis: {addrs: [\"rediss://redis:6379\"]}":                "is not host:port; write 127.0.0.1:6379, or embedded, with redis.tls for TLS",
		"redis: {addrs: [\"redis:6379\"], tls: {ca: /nosuch}}":     "redis.tls.ca: cannot be read: ",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], tls: {}}}}": "kafka.clusters.main.tls: is empty",
	} {
		_, err := load(text + "\n")
		if says == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, says, text)
		}
	}

	for param, says := range map[string]string{
		"tls=true": "", "tls=skip-verify": "store.mysql.dsn: tls=skip-verify takes any certificate",
		"tls=preferred": "store.mysql.dsn: tls=preferred takes any certificate", "tls=true&allowFallbackToPlaintext=true": "takes a server without TLS",
	} {
		c, err := load(mysql(`dsn: "u@tcp(h:1)/toc_%d?` + param + `"`))
		require.NoError(t, err)
		if says == "" {
			require.Empty(t, c.Warnings(), param)
		} else {
			require.Len(t, c.Warnings(), 1, param)
			require.Contains(t, c.Warnings()[0], says)
			require.Contains(t, c.Warnings()[0], "write store.mysql.tls: {ca: FILE} instead")
		}
	}
}

// While certificates are exchanged, a change of the business types is taken.
func TestReloadDoesNotReadCertificates(t *testing.T) {
	a := testrig.NewAuthority(t, "authority")
	path := filepath.Join(t.TempDir(), "toc.yaml")
	text := "store: {driver: mysql, mysql: {tls: {ca: " + a.File + "}}}\nbiz_types: [{id: 1, name: "
	require.NoError(t, os.WriteFile(path, []byte(text+"a}]\n"), 0o600))
	c, err := configs.Load(path, nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(a.File))
	require.NoError(t, os.WriteFile(path, []byte(text+"b}]\n"), 0o600))
	told := make(chan error, 1)
	w := configs.NewWatcher(path, nil, c, 0, func(c configs.Config, err error) { told <- err })
	go func() { _ = w.Run(t.Context()) }()
	require.NoError(t, <-told)
}

// The example of docs/production.md is a valid configuration, if its files are there.
func TestManagedServersOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/production.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## TLS to the servers\n")
	require.True(t, found)
	_, example, found := strings.Cut(section, "```yaml\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	a := testrig.NewAuthority(t, "provider")
	require.Contains(t, example, "/etc/toc/mysql-ca.pem")
	path := filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(example, "/etc/toc/mysql-ca.pem", a.File, 1)), 0o600))
	c, err := configs.Load(path, nil)
	require.NoError(t, err)
	require.Equal(t, configs.TLS{CA: a.File}, c.Store.MySQL.TLS)
	require.Equal(t, configs.TLS{CA: "system"}, c.Redis.TLS)
}
