package configs

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// problemsOf takes the joined error of Validate or Load apart.
func problemsOf(t *testing.T, err error) []*Problem {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "a join: %v", err)
	var all []*Problem
	for _, e := range joined.Unwrap() {
		var p *Problem
		require.True(t, errors.As(e, &p))
		all = append(all, p)
	}
	return all
}

// refusal is a change to the default that must be refused, with its key.
type refusal struct {
	name   string
	change func(c *Config)
	key    string
	text   string // part of what is said
}

func refused(t *testing.T, tests []refusal) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Default()
			test.change(&c)
			found := problemsOf(t, c.Validate())
			require.Len(t, found, 1, "that mistake and no other")
			require.Equal(t, test.key, found[0].Key)
			require.Contains(t, found[0].Text, test.text)
			require.NotContains(t, found[0].Error(), "hush", "no secret is shown")
		})
	}
}

// shared is a change to a configuration whose store and Redis nodes can share.
func shared(change func(c *Config)) func(c *Config) {
	return func(c *Config) {
		c.Cluster.Provider, c.Store.Driver, c.Redis.Addrs = "consul", "mysql", []string{"127.0.0.1:6379"}
		change(c)
	}
}

func TestDefaultIsValid(t *testing.T) {
	require.NoError(t, Default().Validate())
	require.NoError(t, base().Validate(), "what follows from other settings need not be said")
}

func TestRefusedSettings(t *testing.T) {
	refused(t, []refusal{
		{"node name with a space", func(c *Config) { c.Node.Name = "a b" }, "node.name", `"a b" is not a name`},
		{"long node name", func(c *Config) { c.Node.Name = strings.Repeat("n", 129) }, "node.name", "1 to 128"},

		{"listen without a port", func(c *Config) { c.HTTP.Listen = "127.0.0.1" }, "http.listen", `"127.0.0.1" is not host:port; write 127.0.0.1:8080`},
		{"listen, empty", func(c *Config) { c.HTTP.Listen = "" }, "http.listen", "is not host:port"},
		{"listen, port too high", func(c *Config) { c.HTTP.Listen = "localhost:65536" }, "http.listen", "has the port 65536, and the highest is 65535; write 127.0.0.1:8080"},
		{"listen, port a word", func(c *Config) { c.HTTP.Listen = "localhost:http" }, "http.listen", "is not host:port"},
		{"listen, a URL", func(c *Config) { c.HTTP.Listen = "http://localhost:80" }, "http.listen", "is not host:port"},
		{"advertise with a password", func(c *Config) { c.HTTP.Advertise = "https://u:hush@h" }, "http.advertise", "is not host:port"},
		{"advertise without a host", func(c *Config) { c.HTTP.Advertise = ":8080" }, "http.advertise", "is not host:port"},
		{"empty token", func(c *Config) { c.HTTP.Tokens = []string{"0123456789abcdef", ""} }, "http.tokens[1]", "is not a token"},
		{"short token", func(c *Config) { c.HTTP.Tokens = []string{"0123456789hush!"} }, "http.tokens[0]", "fewer than 16 characters"},
		{"short cluster secret", func(c *Config) { c.Cluster.Secret = "hush" }, "cluster.secret", "fewer than 16 characters"},
		{"short webhook secret", func(c *Config) { c.BizTypes[0].Webhook.Secret = "whsec_aHVzaA==" }, "biz_types[0].webhook.secret", "fewer than 16 characters"},
		{"short webhook key", func(c *Config) { c.BizTypes[0].Webhook.Secret = "whsec_MDEyMzQ1Njc4OWh1c2g=" }, "biz_types[0].webhook.secret", "has fewer than 16 bytes after whsec_"},
		{"token with a space", func(c *Config) { c.HTTP.Tokens = []string{"hush hush"} }, "http.tokens[0]", "no spaces"},

		{"lookahead 0", func(c *Config) { c.Scan.Lookahead = 0 }, "scan.lookahead", "0s is too little"},
		{"batch 0", func(c *Config) { c.Scan.Batch = 0 }, "scan.batch", "0 is out of range; write 1 to 10000"},
		{"batch too large", func(c *Config) { c.Scan.Batch = 10001 }, "scan.batch", "10001 is out of range"},
		{"schedule", func(c *Config) { c.Scan.Schedule = "often" }, "scan.schedule", `"often" is not a schedule`},
		{"capacity 0", func(c *Config) { c.Queue.Capacity = 0 }, "queue.capacity", "0 is too little; write 1 or more"},
		{"max skew too small", func(c *Config) { c.Clock.MaxSkew = time.Millisecond }, "clock.max_skew", "1ms is too little; write 10ms or more"},
		{"drain below 0", func(c *Config) { c.Shutdown.Drain = -1 }, "shutdown.drain", "-1ns is too little; write 0s or more"},

		{"collector by gRPC", func(c *Config) { c.Tracing.OTLP = "grpc://h:4317" }, "tracing.otlp", `"grpc://h:4317" is not the address of a collector; write http://127.0.0.1:4318`},
		{"collector without a host", func(c *Config) { c.Tracing.OTLP = "http://" }, "tracing.otlp", "is not the address of a collector"},
		{"collector without a port", func(c *Config) { c.Tracing.OTLP = "collector" }, "tracing.otlp", "is not the address of a collector"},
		{"collector, only a port", func(c *Config) { c.Tracing.OTLP = ":4318" }, "tracing.otlp", "is not the address of a collector"},
		{"collector with a password, no URL", func(c *Config) { c.Tracing.OTLP = "u:hush@h:4318" }, "tracing.otlp", "is not the address of a collector"},
		{"collector with a query", func(c *Config) { c.Tracing.OTLP = "https://u:hush@h/?key=hush" }, "tracing.otlp", "has more than a path"},
		{"sample above 1", func(c *Config) { c.Tracing.Sample = 1.01 }, "tracing.sample", "1.01 is out of range; write 0 to 1"},
		{"sample below 0", func(c *Config) { c.Tracing.Sample = -0.1 }, "tracing.sample", "-0.1 is out of range; write 0 to 1"},
		{"sample is no number", func(c *Config) { c.Tracing.Sample = math.NaN() }, "tracing.sample", "NaN is out of range; write 0 to 1"},
	})
}

func TestRefusedStores(t *testing.T) {
	mysql := func(dsn string, dsns ...string) func(c *Config) {
		return func(c *Config) {
			c.Store.Driver, c.Store.Databases, c.Store.MySQL.DSN, c.Store.MySQL.DSNs = "mysql", 2, dsn, dsns
			c.Cluster.Partitions = 0
		}
	}
	refused(t, []refusal{
		{"driver", func(c *Config) { c.Store.Driver = "postgres" }, "store.driver", `"postgres" is unknown; write sqlite or mysql`},
		{"databases 0", func(c *Config) { c.Store.Databases = 0 }, "store.databases", "0 is not right; write a power of two"},
		{"databases no power", func(c *Config) { c.Store.Databases = 6 }, "store.databases", "6 is not right"},
		{"databases too many", func(c *Config) { c.Store.Databases = 16384 }, "store.databases", "from 1 to 8192"},
		{"tables below 0", func(c *Config) { c.Store.TablesPerDatabase = -8 }, "store.tables_per_database", "-8 is not right"},
		{"tables no power", func(c *Config) { c.Store.TablesPerDatabase = 1000 }, "store.tables_per_database", "1000 is not right"},
		{"tables overflow", func(c *Config) { c.Store.Databases, c.Store.TablesPerDatabase = 8, 1<<62 }, "store.tables_per_database", "is not right"},
		{"too many together", func(c *Config) { c.Store.TablesPerDatabase = 2048 }, "store.tables_per_database", "2048 in each of 8 databases are too many; write 1024 or less"},
		{"dead retention", func(c *Config) { c.Store.DeadRetention = -time.Hour }, "store.dead_retention", "-1h0m0s is too little"},
		{"audit retention", func(c *Config) { c.Store.AuditRetention = -time.Hour }, "store.audit_retention", "-1h0m0s is too little"},
		{"retention", func(c *Config) { c.Store.Retention = -time.Hour }, "store.retention", "-1h0m0s is too little"},
		{"no directory", func(c *Config) { c.Store.SQLite.Dir = "" }, "store.sqlite.dir", "is empty"},

		{"one connection", func(c *Config) { c.Store.Driver, c.Store.MySQL.MaxOpenConns = "mysql", 1 }, "store.mysql.max_open_conns", "1 is too little; write 2 or more"},
		{"dsn without %d", mysql("root:hush@tcp(h)/toc"), "store.mysql.dsn", "has %d 0 times; write it once"},
		{"dsn with two %d", mysql("root:hush@tcp(h)/toc_%d_%d"), "store.mysql.dsn", "has %d 2 times"},
		{"dsn with %d in the password", mysql("root:hush%d@tcp(h)/toc"), "store.mysql.dsn", "has %d 0 times; write it once, behind the login"},
		{"dsn with %d in a parameter", mysql("root@tcp(h)/toc?connectionAttributes=a:%d0"), "store.mysql.dsn", "has %d 0 times"},
		{"dsn without @", mysql("root:hush/toc_%d"), "store.mysql.dsn", "is not a MySQL DSN"},
		{"dsn without @, with a bracket", mysql("root:hush(tcp)/toc_%d"), "store.mysql.dsn", "has neither tcp(host:port) nor unix(path)"},
		{"dsn without /", mysql("root:hush@tcp(h)toc_%d"), "store.mysql.dsn", "is not a MySQL DSN"},
		{"dsn with a bad parameter", mysql("root@tcp(h)/toc_%d?timeout=hush"), "store.mysql.dsn", "is not a MySQL DSN"},
		{"dsn, a URL", mysql("mysql://root:hush@h:3306/toc_%d"), "store.mysql.dsn", "is not a MySQL DSN"},
		{"dsn with a name that is SQL", mysql("root@tcp(h)/toc_%d`;"), "store.mysql.dsn", "names no database"},
		{"dsn with a parameter that toc sets", mysql("root:hush@tcp(h)/toc_%d?timeout=1s&autocommit=0"), "store.mysql.dsn",
			"has the parameter autocommit, and toc needs 1 (else a single statement is answered and never committed); leave it out"},
		{"one of dsns with a parameter that toc sets", mysql("", "u:hush@tcp(h)/a", "u:hush@tcp(h)/b?clientFoundRows=true"), "store.mysql.dsns[1]",
			"has the parameter clientFoundRows, and toc needs false"},
		{"too few dsns", mysql("", "u:hush@tcp(h)/a"), "store.mysql.dsns", "has 1 entries for 2 databases"},
		{"one dsn wrong", mysql("", "u:hush@tcp(h)/a", "u:hush"), "store.mysql.dsns[1]", "is not a MySQL DSN"},
		{"one dsn without a database", mysql("", "u:hush@tcp(h)/a", "u:hush@tcp(h)/"), "store.mysql.dsns[1]", "names no database"},
		{"two dsns alike", mysql("", "u:hush@tcp(h)/a", "v@tcp(h:3306)/a?timeout=1s"), "store.mysql.dsns[1]", "is the same database as dsns[0] (a on h:3306)"},
	})
}

func TestRefusedClusters(t *testing.T) {
	partitions := func(n int) func(c *Config) { return func(c *Config) { c.Cluster.Partitions = n } }
	redis := func(mode string, addrs ...string) func(c *Config) {
		return func(c *Config) { c.Redis.Mode, c.Redis.Addrs = mode, addrs }
	}
	refused(t, []refusal{
		{"provider", func(c *Config) { c.Cluster.Provider = "etcd" }, "cluster.provider", `"etcd" is unknown; write single or consul`},
		{"consul on sqlite", shared(func(c *Config) { c.Store.Driver = "sqlite" }), "store.driver", "sqlite is one process's, and cluster.provider is consul; write mysql"},
		{"consul, node name", shared(func(c *Config) { c.Node.Name = "shop/1" }), "node.name", `"shop/1" is not a name for Consul`},
		{"consul prefix, a path", func(c *Config) { c.Cluster.Consul.Prefix = "a/b" }, "cluster.consul.prefix", `"a/b" is not a prefix`},
		{"consul on an embedded redis", shared(func(c *Config) {
			c.Redis.Addrs = []string{"embedded"}
		}), "biz_types[1].mode", "redis needs a Redis that all nodes reach"},
		{"partitions no power", partitions(100), "cluster.partitions", "100 does not suit 8 databases of 32 tables; write a power of two from 8 to 256"},
		{"partitions fewer than databases", partitions(4), "cluster.partitions", "4 does not suit"},
		{"partitions more than tables", partitions(512), "cluster.partitions", "512 does not suit"},
		{"partitions below 0", partitions(-8), "cluster.partitions", "-8 does not suit"},
		{"on loss", func(c *Config) { c.Cluster.OnConsulLoss = "" }, "cluster.on_consul_loss", `"" is unknown; write stop or keep`},
		{"consul address", func(c *Config) { c.Cluster.Consul.Address = "consul" }, "cluster.consul.address", `"consul" is not an address`},
		{"consul address with a secret", func(c *Config) { c.Cluster.Consul.Address = "ftp://u:hush@consul" }, "cluster.consul.address", "is not an address"},
		{"consul token", func(c *Config) { c.Cluster.Consul.Token = "hush\n" }, "cluster.consul.token", "is not a token"},
		{"consul prefix", func(c *Config) { c.Cluster.Consul.Prefix = "toc/" }, "cluster.consul.prefix", `"toc/" is not a prefix`},
		{"consul prefix, empty", func(c *Config) { c.Cluster.Consul.Prefix = "" }, "cluster.consul.prefix", "is not a prefix"},
		{"ttl short", func(c *Config) { c.Cluster.Consul.TTL = 999 * time.Millisecond }, "cluster.consul.ttl", "999ms is out of range; write 1s to 1m0s"},
		{"ttl long", func(c *Config) { c.Cluster.Consul.TTL = 61 * time.Second }, "cluster.consul.ttl", "1m1s is out of range"},

		{"no redis", func(c *Config) { c.Redis.Addrs = nil }, "redis.addrs", "is empty"},
		{"redis URL", func(c *Config) { c.Redis.Addrs = []string{"redis://:hush@h:1"} }, "redis.addrs[0]", "is not host:port"},
		{"embedded and another", redis("single", "h:1", "embedded"), "redis.addrs[1]", "embedded stands alone"},
		{"embedded and another, first", redis("single", "embedded", "h:1"), "redis.addrs[0]", "embedded stands alone"},
		{"embedded cluster", redis("cluster", "embedded"), "redis.addrs[0]", "embedded stands alone, and in mode single; write host:port"},
		{"embedded sentinel", redis("sentinel", "embedded"), "redis.addrs[0]", "embedded stands alone"},
		{"redis mode", redis("ring", "h:1"), "redis.mode", `"ring" is unknown; write single, sentinel or cluster`},
		{"redis db", func(c *Config) { c.Redis.DB = -1 }, "redis.db", "-1 is too little"},
		{"redis db in a cluster", func(c *Config) { redis("cluster", "h:1", "h:2")(c); c.Redis.DB = 1 }, "redis.db", "1 does not exist in a Redis cluster"},
		{"redis prefix with a brace", func(c *Config) { c.Redis.Prefix = "{a" }, "redis.prefix", `"{a" is not a prefix; write at most 64 letters`},
		{"redis prefix with the other", func(c *Config) { c.Redis.Prefix = "a}" }, "redis.prefix", `"a}" is not a prefix`},
		{"redis prefix with a space", func(c *Config) { c.Redis.Prefix = "a b" }, "redis.prefix", `"a b" is not a prefix`},
		{"redis prefix with a line end", func(c *Config) { c.Redis.Prefix = "a\n" }, "redis.prefix", "is not a prefix"},
		{"single, several addresses", redis("single", "h:1", "h:2"), "redis.addrs", "has 2 addresses and redis.mode is single; write one, or mode sentinel or cluster"},
		{"sentinel without a master", func(c *Config) { redis("sentinel", "h:1")(c); c.Redis.Master = "" }, "redis.master", `"" is not a name; write what the sentinels call the master`},
		{"sentinel, master with a space", func(c *Config) { redis("sentinel", "h:1")(c); c.Redis.Master = "my master" }, "redis.master", `"my master" is not a name`},
		{"sweep 0", func(c *Config) { c.Redis.SweepAfter = 0 }, "redis.sweep_after", "0s is out of range; write 100ms to 24h0m0s"},
		{"sweep too long", func(c *Config) { c.Redis.SweepAfter = 25 * time.Hour }, "redis.sweep_after", "25h0m0s is out of range"},
		{"outage too short", func(c *Config) { c.Redis.OutageAfter = 99 * time.Millisecond }, "redis.outage_after", "99ms is out of range; write 100ms to 24h0m0s"},
		{"outage too long", func(c *Config) { c.Redis.OutageAfter = 24*time.Hour + 1 }, "redis.outage_after", "is out of range"},
	})
}

func TestRefusedBizTypes(t *testing.T) {
	biz := func(change func(b *BizType)) func(c *Config) { return func(c *Config) { change(&c.BizTypes[1]) } }
	refused(t, []refusal{
		{"none", func(c *Config) { c.BizTypes = nil }, "biz_types", "is empty, so nothing could ever fire"},
		{"no id", biz(func(b *BizType) { b.ID = 0 }), "biz_types[1].id", "is missing or 0"},
		{"id taken", biz(func(b *BizType) { b.ID = 1 }), "biz_types[1].id", "1 is taken by biz_types[0]"},
		{"no name", biz(func(b *BizType) { b.Name = "" }), "biz_types[1].name", `"" is not a name; write 1 to 64 of a-z`},
		{"name in capitals", biz(func(b *BizType) { b.Name = "Close" }), "biz_types[1].name", `"Close" is not a name`},
		{"name too long", biz(func(b *BizType) { b.Name = strings.Repeat("n", 65) }), "biz_types[1].name", "is not a name"},
		{"name with a line end", biz(func(b *BizType) { b.Name = "close\n" }), "biz_types[1].name", "is not a name"},
		{"name taken", biz(func(b *BizType) { b.Name, b.Topic = "order_close", "" }), "biz_types[1].name", "order_close is taken by biz_types[0]"},
		{"mode", biz(func(b *BizType) { b.Mode = "push" }), "biz_types[1].mode", `"push" is unknown; write scan or redis`},
		{"processor", biz(func(b *BizType) { b.Processor = " " }), "biz_types[1].processor", `" " is not a name`},
		{"webhook without a url", biz(func(b *BizType) { b.Processor = "webhook" }), "biz_types[1].webhook.url", `"" is not an absolute URL; write http://host/path`},
		{"relative url", biz(func(b *BizType) { b.Webhook.URL = "/fire?key=hush" }), "biz_types[1].webhook.url", "is not an absolute URL"},
		{"url without a host", biz(func(b *BizType) { b.Webhook.URL = "http:///fire" }), "biz_types[1].webhook.url", "is not an absolute URL"},
		{"url of a file", biz(func(b *BizType) { b.Webhook.URL = "file://host/etc" }), "biz_types[1].webhook.url", "is not an absolute URL"},
		{"url that cannot be read", biz(func(b *BizType) { b.Webhook.URL = "http://u:hush@h:port/" }), "biz_types[1].webhook.url", "is not an absolute URL"},
		{"broken secret", biz(func(b *BizType) { b.Webhook.Secret = "whsec_hush!" }), "biz_types[1].webhook.secret", "is not base64 after whsec_"},
		{"secret of nothing", biz(func(b *BizType) { b.Webhook.Secret = "whsec_" }), "biz_types[1].webhook.secret", "is not base64 after whsec_"},
		{"webhook timeout", biz(func(b *BizType) { b.Webhook.Timeout = -1 }), "biz_types[1].webhook.timeout", "-1ns is too little"},
		{"no workers", biz(func(b *BizType) { b.Workers = 0 }), "biz_types[1].workers", "0 is out of range; write 1 to 10000"},
		{"too many workers", biz(func(b *BizType) { b.Workers = 10001 }), "biz_types[1].workers", "10001 is out of range"},
		{"timeout", biz(func(b *BizType) { b.Timeout = 0 }), "biz_types[1].timeout", "0s is too little"},
		{"retries below 0", biz(func(b *BizType) { b.MaxRetries = -1 }), "biz_types[1].max_retries", "-1 is out of range; write 0 to 250"},
		{"no start", biz(func(b *BizType) { b.Cuts = 0 }), "biz_types[1].cuts", "0 is out of range; write 1 to 250"},
		{"retries beyond the column", biz(func(b *BizType) { b.MaxRetries = 251 }), "biz_types[1].max_retries", "251 is out of range"},
		{"backoff 0", biz(func(b *BizType) { b.Backoff.Min = 0 }), "biz_types[1].backoff.min", "0s is too little"},
		{"backoff upside down", biz(func(b *BizType) { b.Backoff.Min = time.Hour }), "biz_types[1].backoff.max", "10m0s is less than backoff.min (1h0m0s)"},
		{"expire", biz(func(b *BizType) { b.ExpireAfter = -1 }), "biz_types[1].expire_after", "-1ns is too little"},
		{"topic", biz(func(b *BizType) { b.Topic = "a{b}" }), "biz_types[1].topic", `"a{b}" is not a topic`},
		{"topic taken", biz(func(b *BizType) { b.Topic = "order_close" }), "biz_types[1].topic", "order_close is taken by biz_types[0]"},
		{"horizon below 0", biz(func(b *BizType) { b.Horizon = -1 }), "biz_types[1].horizon", "-1ns is too little; write 10s or more, or 0 for all"},
		{"horizon too near", biz(func(b *BizType) { b.Horizon = 9999 * time.Millisecond }), "biz_types[1].horizon", "9.999s is too little"},
		{"visibility", biz(func(b *BizType) { b.Visibility = 29 * time.Second }), "biz_types[1].visibility", "29s is less than timeout (30s)"},
	})
}

// What stands at the border, or only looks wrong, is let in.
func TestAccepted(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"largest layout":   func(c *Config) { c.Store.TablesPerDatabase = 1024 },
		"smallest layout":  func(c *Config) { c.Store.Databases, c.Store.TablesPerDatabase, c.Cluster.Partitions = 1, 1, 0 },
		"one big database": func(c *Config) { c.Store.Databases, c.Store.TablesPerDatabase = 1, 8192 },
		"any port":         func(c *Config) { c.HTTP.Listen = "127.0.0.1:0" },
		"IPv6":             func(c *Config) { c.HTTP.Listen = "[::1]:8080" },
		"all interfaces":   func(c *Config) { c.HTTP.Listen = ":8080" },
		"keep for ever":    func(c *Config) { c.Store.Retention = 0 },
		"no max skew":      func(c *Config) { c.Clock.MaxSkew = 0 },
		"collector":        func(c *Config) { c.Tracing = Tracing{"collector:4318", 1} },
		"far collector":    func(c *Config) { c.Tracing = Tracing{"https://u:p@h/otlp/v1/traces", 1e-9} },
		"no drain":         func(c *Config) { c.Shutdown.Drain = 0 },
		"unused MySQL":     func(c *Config) { c.Store.MySQL = MySQL{DSN: "-"} },
		"a password with all": func(c *Config) {
			c.Store.Driver, c.Store.MySQL.DSN = "mysql", "u:p/@:(x)%d%@tcp(h:1)/toc_%d?connectionAttributes=a:%d0%b0"
		},
		"a server each": func(c *Config) { c.Store.Driver, c.Store.MySQL.DSN = "mysql", "u@tcp(db%d:3306)/toc" },
		"a socket":      func(c *Config) { c.Store.Driver, c.Store.MySQL.DSN = "mysql", "u@unix(/run/my.sock)/toc_%d" },
		"consul":        shared(func(c *Config) { c.BizTypes[0].Mode = "redis" }),
		"consul, scan only": shared(func(c *Config) {
			c.Redis.Addrs = []string{"embedded"}
			c.BizTypes[0].Mode = "scan"
			c.BizTypes = c.BizTypes[:1]
		}),
		"consul behind an address": shared(func(c *Config) { c.HTTP.Listen, c.HTTP.Advertise = ":8080", "10.0.0.5:8080" }),
		"consul by https":          func(c *Config) { c.Cluster.Consul.Address = "https://consul.local" },
		"no retries":               func(c *Config) { c.BizTypes[0].MaxRetries = 0 },
		"mode redis":               func(c *Config) { c.BizTypes[0].Mode = "redis" },
		"all in Redis":             func(c *Config) { c.BizTypes[0].Mode, c.BizTypes[0].Horizon = "redis", 0 },
		"a near horizon":           func(c *Config) { c.BizTypes[0].Horizon = 10 * time.Second },
		"sentinels": func(c *Config) {
			c.Redis.Mode, c.Redis.Addrs, c.Redis.Master, c.Redis.DB = "sentinel", []string{"s1:26379", "s2:26379"}, "toc-master.1", 3
		},
		"cluster nodes":   func(c *Config) { c.Redis.Mode, c.Redis.Addrs = "cluster", []string{"h:1", "h:2"} },
		"a master unused": func(c *Config) { c.Redis.Master = "" },
		"a long prefix":   func(c *Config) { c.Redis.Prefix = "toc:shop-1." },
		"watchful": func(c *Config) {
			c.Redis.SweepAfter, c.Redis.OutageAfter = 100*time.Millisecond, 100*time.Millisecond
		},
		"patient":             func(c *Config) { c.Redis.SweepAfter, c.Redis.OutageAfter = 24*time.Hour, 24*time.Hour },
		"one pause":           func(c *Config) { c.BizTypes[0].Backoff = Backoff{Min: time.Nanosecond, Max: time.Nanosecond} },
		"issued secret":       func(c *Config) { c.BizTypes[0].Webhook.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" },
		"proxy":               func(c *Config) { c.HTTP.Advertise = "https://toc-1.example.com" },
		"raw secret":          func(c *Config) { c.BizTypes[0].Webhook.Secret = "any thing of that length" },
		"a processor in code": func(c *Config) { c.BizTypes[0].Processor = "shop/Close v2" },
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			change(&c)
			require.NoError(t, c.Validate())
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *Config)
		want   string // part of the one line; none when ""
	}{
		"open to all":         {func(c *Config) { c.HTTP.Listen = ":8080" }, "http.listen: :8080 is reachable"},
		"open to the network": {func(c *Config) { c.HTTP.Listen = "10.0.0.1:8080" }, "http.listen: 10.0.0.1:8080 is reachable"},
		"with a token":        {func(c *Config) { c.HTTP.Listen, c.HTTP.Tokens = ":8080", []string{"0123456789abcdef"} }, ""},
		"localhost":           {func(c *Config) { c.HTTP.Listen = "localhost:8080" }, ""},
		"loopback, IPv6":      {func(c *Config) { c.HTTP.Listen = "[::1]:8080" }, ""},
		"short lookahead": {func(c *Config) { c.Scan.Lookahead = 4 * time.Second },
			"scan.lookahead: 4s is shorter than the 10s between two ticks of scan.schedule, so tasks may be late by 6s"},
		"a run longer than a hand-over": {func(c *Config) {
			c.Cluster.Provider, c.Store.Driver, c.Redis.Addrs = ProviderConsul, "mysql", []string{"127.0.0.1:6379"}
			c.BizTypes[0].Timeout = time.Minute
		}, "may run for 1m0s (timeout), and a partition that is handed over waits 30s"},
		"a long run on a single node": {func(c *Config) { c.BizTypes[0].Timeout = time.Minute }, ""},
		"pull settings for nobody":    {func(c *Config) { c.BizTypes[0].Pull.TTR = time.Hour }, "has pull settings without effect, because its processor is webhook"},
		"a webhook that is pulled": {func(c *Config) { b := &c.BizTypes[0]; b.Processor, b.Webhook.URL = ProcessorPull, "http://127.0.0.1" },
			"has a webhook.url without effect, because its processor is pull"},
		"samples for nobody": {func(c *Config) { c.Tracing.Sample = 0.5 }, "tracing.sample: 0.5 has no effect"},
		"samples":            {func(c *Config) { c.Tracing = Tracing{"http://127.0.0.1:4318", 0.5} }, ""},
		"uneven ticks":       {func(c *Config) { c.Scan.Schedule = "0,50 * * * * *" }, "the 50s between two ticks"},
		"long enough":        {func(c *Config) { c.Scan.Schedule = "*/10 * * * * *" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			test.change(&c)
			require.NoError(t, c.Validate())
			if test.want == "" {
				require.Empty(t, c.Warnings())
				return
			}
			require.Len(t, c.Warnings(), 1)
			require.Contains(t, c.Warnings()[0], test.want)
		})
	}
}
