package configs

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// secretive has a secret in every place that may hold one.
func secretive() Config {
	c := Default()
	c.Node.Name = "n"
	c.HTTP.Tokens = []string{"hush1", "hush2"}
	c.Store.MySQL.DSN = "root:hush3@tcp(db:3306)/toc_%d?timeout=1s"
	c.Store.MySQL.DSNs = []string{"u:hush/@4@tcp(db)/toc_0", "hush5"}
	c.Cluster.Consul.Address = "https://u:hush6@consul:8501"
	c.Cluster.Secret = "hushD"
	c.Cluster.Consul.Token = "hush7"
	c.Redis.Addrs = []string{"redis://:hush8@r:6379"}
	c.Redis.Password = "hush9"
	c.Tracing.OTLP = "https://u:hushG@h/otlp/hushH-0123456789"
	c.BizTypes[0].Webhook.URL = "https://u:hushA@h/fire/hushE-0123456789?key=hushB"
	c.BizTypes[0].Webhook.Secret = "whsec_hushC"
	return c
}

func TestNoWayOfPrintingShowsASecret(t *testing.T) {
	c := secretive()
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("config", "config", c, "biz_type", c.BizTypes[0])
	}
	for _, shown := range []string{
		c.String(), fmt.Sprint(c), fmt.Sprintf("%+v %#v %s", c, c, &c),
		fmt.Sprintf("%v %+v %#v", c.BizTypes[0], c.BizTypes, c.BizTypes), log.String(),
	} {
		require.NotContains(t, shown, "hush")
		require.Contains(t, shown, hidden)
		require.Contains(t, shown, "order_close", "the rest is shown")
	}
	require.Equal(t, secretive(), c, "printing changes nothing")
	golden(t, "redacted.golden", c.String())
}

// What String writes is a configuration file again, when no secret was hidden.
func TestStringIsAFile(t *testing.T) {
	want := Default()
	got, err := Load(write(t, want.String()), nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestDiff(t *testing.T) {
	require.Empty(t, Diff(Default(), Default()))

	changed := secretive()
	changed.HTTP.Listen = ":9090"
	changed.BizTypes = changed.BizTypes[:1]
	changed.Queue.Capacity = 5
	require.Equal(t, []string{
		"http.listen: 127.0.0.1:8080 -> :9090",
		"http.tokens: [] -> [*** ***]",
		"store.mysql.dsn: root@tcp(127.0.0.1:3306)/toc_%d -> root:***@tcp(db:3306)/toc_%d",
		"store.mysql.dsns: [] -> [u:***@tcp(db:3306)/toc_0 ***]",
		"cluster.secret:  -> ***",
		"cluster.consul.address: 127.0.0.1:8500 -> https://u:xxxxx@consul:8501",
		"cluster.consul.token:  -> ***",
		"redis.addrs: [embedded] -> [redis://:xxxxx@r:6379]",
		"redis.password:  -> ***",
		"queue.capacity: 20000 -> 5",
		"tracing.otlp:  -> https://u:xxxxx@h/otlp/***",
	}, Diff(withName(Default(), "n"), changed))

	other := secretive()
	other.Redis.Password = "hush0"
	other.Store.MySQL.DSN = "root:hush0@tcp(db:3306)/toc_%d?timeout=1s"
	require.Equal(t, []string{"store.mysql.dsn: changed", "redis.password: changed"}, Diff(secretive(), other))
}

func withName(c Config, name string) Config {
	c.Node.Name = name
	return c
}

func TestDefaultNodeNameTellsTheProcess(t *testing.T) {
	require.Regexp(t, fmt.Sprintf(`^.+-%d$`, os.Getpid()), Default().Node.Name)
	c := Config{Node: Node{Name: "mine"}}
	require.Equal(t, "mine", c.WithDefaults().Node.Name)
}

func TestDiffBizTypes(t *testing.T) {
	before := secretive().BizTypes
	require.Empty(t, DiffBizTypes(before, before))
	after := slices.Clone(before)
	after[0].Mode, after[0].Webhook.Secret, after[0].Backoff.Max = ModeRedis, "whsec_hushF", time.Hour
	after[1] = DefaultBizType()
	after[1].ID, after[1].Name = 9, "audit"
	require.Equal(t, []string{
		"demo_log: gone; its pending tasks wait",
		"order_close.mode: scan -> redis",
		"order_close.webhook.secret: changed",
		"order_close.backoff.max: 10m0s -> 1h0m0s",
		"audit: new",
	}, DiffBizTypes(before, after))
}
