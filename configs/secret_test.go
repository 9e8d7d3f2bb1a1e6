package configs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSecretsOfFiles(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	tokens, hook, dsn := file("first-0123456789\n\n second-0123456789\r\n"), file("whsec_MDEyMzQ1Njc4OWFiY2RlZg==\n"), file("u:p@tcp(h:1)/toc_%d")
	path := write(t, "http: {tokens_file: "+tokens+"}\nbiz_types: [{id: 1, name: a, processor: log, webhook: {secret_file: "+hook+"}}]")
	c, err := Load(path, []string{"TOC_STORE_MYSQL_DSN_FILE=" + dsn, "TOC_REDIS_PASSWORD_FILE=" + file("pass word\n")})
	require.NoError(t, err)
	require.Equal(t, []string{"first-0123456789", "second-0123456789"}, c.HTTP.Tokens)
	require.Equal(t, "whsec_MDEyMzQ1Njc4OWFiY2RlZg==", c.BizTypes[0].Webhook.Secret)
	require.Equal(t, "u:p@tcp(h:1)/toc_%d", c.Store.MySQL.DSN)
	require.Equal(t, "pass word", c.Redis.Password)

	c, err = Load(path, []string{"TOC_HTTP_TOKENS=third-0123456789"})
	require.NoError(t, err)
	require.Equal(t, []string{"third-0123456789"}, c.HTTP.Tokens, "env over file")

	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, row := range []struct {
		yaml    string
		environ []string
		says    string
	}{
		{"http: {tokens_file: /nowhere}", nil, "http.tokens_file: cannot be read: stat /nowhere: no such file or directory ("},
		{"http: {tokens_file: " + pipe + "}", nil, "http.tokens_file: cannot be read: " + pipe + " is not a regular file ("},
		{"http: {tokens: [first-0123456789], tokens_file: " + tokens + "}", nil, "http.tokens_file: http.tokens is given, too; write one of them ("},
		{"http: {tokens_file: [" + tokens + "]}", nil, `http.tokens_file: is not a text; write "…" (`},
		{"http: {tokens_file: " + file("\n \n") + "}", nil, "http.tokens_file: is empty"}, // nobody would be asked
		{"cluster: {secret_file: " + file("\n") + "}", nil, "cluster.secret_file: is empty"},
		{"biz_types: [{id: 1, name: a, webhook: {secret: '{{ .hush }}'}}]", nil, "biz_types[0].webhook.secret: is a placeholder, and nothing expands it; write the secret, or the path of its file as biz_types[0].webhook.secret_file ("},
		{"cluster: {consul.token_file: x}", nil, "cluster.consul.token_file: a key has no dots; write its sections: consul: {token_file: …} ("},
		{"http: {listen_file: x}", nil, "http.listen_file: unknown key"},
		{"http: {tokens_file: " + file("hush") + "}", nil, "http.tokens[0]: has fewer than 16 characters"},
		{"{}", []string{"TOC_HTTP_TOKENS=first-0123456789", "TOC_HTTP_TOKENS_FILE=" + tokens}, "http.tokens: TOC_HTTP_TOKENS is given, too; set one of them (TOC_HTTP_TOKENS_FILE)"},
		{"{}", []string{"TOC_CLUSTER_SECRET_FILE=/nowhere"}, "cluster.secret_file: cannot be read: stat /nowhere: no such file or directory (TOC_CLUSTER_SECRET_FILE)"},
		{"{}", []string{"TOC_HTTP_LISTEN_FILE=/x"}, "TOC_HTTP_LISTEN_FILE: unknown setting"},
	} {
		_, err := Load(write(t, row.yaml), row.environ)
		require.ErrorContains(t, err, row.says)
		require.NotContains(t, err.Error(), "hush")
	}
	_, err = Load(write(t, "kafka: {clusters: {main: {brokers: ['a:1'], sasl: {mechanism: plain, username: u, password_file: /nowhere}}}}"), nil)
	require.ErrorContains(t, err, "kafka.clusters.main.sasl.password_file: cannot be read")
	require.NotContains(t, err.Error(), "is empty", "a file that is missing is told once")
}

// A placeholder is a whole secret that a template has left, or a whole ${NAME} in it. Secrets may have parts of one, and
// nothing is asked of a file.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	const dsn = "@tcp(h:1)/toc_%d"
	for _, word := range []string{"${HUSH}", "a${HUSH}b", "${hush:-x}", "$(hush)", "{{ hush }}", "changeme", "ChangeMe", "change-me", "CHANGE_ME"} {
		for name, value := range map[string]string{
			"TOC_REDIS_PASSWORD": word, "TOC_STORE_MYSQL_DSN": "u:" + word + dsn, "TOC_TRACING_OTLP": "https://u:" + word + "@h",
		} {
			if name == "TOC_TRACING_OTLP" && strings.ContainsAny(word, "{} ") {
				continue // no URL
			}
			_, err := Load("", []string{name + "=" + value, "TOC_STORE_DRIVER=mysql"})
			require.ErrorContains(t, err, "is a placeholder, and nothing expands it; write the secret, or the path of its file as ", value)
			require.ErrorContains(t, err, "_file ("+name+")", value)
			require.NotContains(t, strings.ToLower(err.Error()), "hush")

			file := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(file, []byte(value), 0o600))
			if name != "TOC_TRACING_OTLP" {
				_, err = Load("", []string{name + "_FILE=" + file, "TOC_STORE_DRIVER=mysql"})
				require.NoError(t, err, value)
				key := map[string]string{"TOC_REDIS_PASSWORD": "redis: {password_file: ", "TOC_STORE_MYSQL_DSN": "store: {driver: mysql, mysql: {dsn_file: "}[name]
				_, err = Load(write(t, key+file+strings.Repeat("}", strings.Count(key, "{"))), nil)
				require.NoError(t, err, value)
				_, err = Load(write(t, key+file+strings.Repeat("}", strings.Count(key, "{"))), []string{name + "=" + value})
				require.ErrorContains(t, err, "is a placeholder", "the variable is in force, not the file")
			}
		}
	}
	for _, word := range []string{"a$(b", "a${b", "a{{b", "xchangemex", "changeme1", "p%d", "%d%d", "a@b/c:d?e#f", "${b", "b}", "$(b)c", "{{b}}c", "%2F", "?autocommit=0"} {
		c, err := Load("", []string{"TOC_REDIS_PASSWORD=" + word, "TOC_STORE_MYSQL_DSN=u:" + word + dsn, "TOC_STORE_DRIVER=mysql"})
		require.NoError(t, err, word)
		require.Equal(t, word, c.Redis.Password)
	}
	// A token is no key because a template has left it.
	_, err := Load(write(t, "http: {tokens: ['Bearer-${TOC_TOKEN_HUSH}']}"), nil)
	require.ErrorContains(t, err, "http.tokens[0]: is a placeholder, and nothing expands it; write the secret, or the path of its file as http.tokens_file (")
	require.Len(t, problemsOf(t, err), 1)
}

// The token of Consul is read again for each use, so the Config has the path.
func TestTheTokenOfConsulIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	put := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	put("first\r\n")
	yaml := "cluster: {consul: {token_file: " + path + "}}"
	given := map[string]func() (Config, error){
		"file": func() (Config, error) { return Load(write(t, yaml), nil) },
		"env":  func() (Config, error) { return Load("", []string{"TOC_CLUSTER_CONSUL_TOKEN_FILE=" + path}) },
		"env over file": func() (Config, error) {
			return Load(write(t, "cluster: {consul: {token: hush}}"), []string{"TOC_CLUSTER_CONSUL_TOKEN_FILE=" + path})
		},
	}
	for name, load := range given {
		put("first\r\n")
		c, err := load()
		require.NoError(t, err, name)
		require.Equal(t, path, c.Cluster.Consul.TokenFile)
		require.Empty(t, c.Cluster.Consul.Token)
		require.Contains(t, c.String(), "token: '***'")
		for _, text := range []string{"first", "second"} {
			put(text + "\n")
			token, err := c.Cluster.Consul.ReadToken()
			require.NoError(t, err)
			require.Equal(t, text, token)
		}
		for text, says := range map[string]string{
			"\n": "is empty; write the secret into it, or leave the key out", "hush\nhush\n": "holds no token; write visible ASCII characters in one line, no spaces",
			" hush": "holds no token; ",
		} {
			put(text)
			_, err = load()
			require.ErrorContains(t, err, "cluster.consul.token_file: "+says)
			require.NotContains(t, err.Error(), "hush")
			_, err = c.Cluster.Consul.ReadToken()
			require.ErrorContains(t, err, says)
		}
		require.NoError(t, os.Remove(path))
		_, err = load()
		require.ErrorContains(t, err, "cluster.consul.token_file: cannot be read: stat "+path+": no such file or directory (")
	}

	put("first")
	c, err := Load(write(t, yaml), []string{"TOC_CLUSTER_CONSUL_TOKEN=second"})
	require.NoError(t, err)
	token, err := c.Cluster.Consul.ReadToken()
	require.NoError(t, err)
	require.Equal(t, "second", token, "env over file")
	_, err = Load(write(t, "cluster: {consul: {token: hush, token_file: "+path+"}}"), nil)
	require.ErrorContains(t, err, "cluster.consul.token_file: cluster.consul.token is given, too; write one of them (")
	_, err = Load("", []string{"TOC_CLUSTER_CONSUL_TOKEN=hush", "TOC_CLUSTER_CONSUL_TOKEN_FILE=" + path})
	require.ErrorContains(t, err, "TOC_CLUSTER_CONSUL_TOKEN is given, too; set one of them")
	c = Default()
	c.Cluster.Consul.Token, c.Cluster.Consul.TokenFile = "hush", path
	require.ErrorContains(t, c.Validate(), "cluster.consul.token: a file is given for it, too; set one of them")

	// A file that becomes bad is reported, though the Config names it as before; a new token is no change of the Config.
	c, err = Load(write(t, yaml), nil)
	require.NoError(t, err)
	var told []error
	w := NewWatcher(write(t, yaml), nil, c, 0, func(_ Config, err error) { told = append(told, err) })
	w.runOnce(t.Context(), false)
	put("second")
	w.runOnce(t.Context(), false)
	require.Empty(t, told)
	put("")
	w.runOnce(t.Context(), false)
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], "cluster.consul.token_file: is empty")
	put("third")
	w.runOnce(t.Context(), false)
	require.Len(t, told, 2)
	require.NoError(t, told[1])
}

// A secret that is changed in its file is told, though the configuration names the file as before.
func TestWatchOfSecrets(t *testing.T) {
	for name, given := range map[string]func(secret string) (path string, environ []string){
		"file": func(secret string) (string, []string) { return write(t, "http: {tokens_file: "+secret+"}"), nil },
		"env":  func(secret string) (string, []string) { return "", []string{"TOC_HTTP_TOKENS_FILE=" + secret} },
	} {
		t.Run(name, func(t *testing.T) {
			secret := filepath.Join(t.TempDir(), "tokens")
			put := func(text string) { require.NoError(t, os.WriteFile(secret, []byte(text), 0o600)) }
			put("first-0123456789")
			path, environ := given(secret)
			c, err := Load(path, environ)
			require.NoError(t, err)
			synctest.Test(t, func(t *testing.T) {
				var told [][]string
				w := NewWatcher(path, environ, c, time.Second, func(c Config, err error) {
					require.NoError(t, err)
					told = append(told, c.HTTP.Tokens)
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- w.Run(ctx) }()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Empty(t, told)
				put("second-0123456789")
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Equal(t, [][]string{{"second-0123456789"}}, told)
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}
