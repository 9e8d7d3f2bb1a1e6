// Package configs reads a YAML file and the environment into one checked Config.
// It reports all mistakes at once, each with its key, its place and what would be right.
//
// Default comes first, the file goes over it, and the environment over both.
// Every scalar or list key is also an environment variable (TOC_HTTP_LISTEN is
// http.listen); biz_types come from the file only. Unknown keys are errors, so
// that a misspelt one cannot be silently without effect.
//
// The package opens no store, no socket and no log. Errors, Diff and String show no
// secrets (tokens, passwords, webhook secrets).
package configs

import "time"

// The words that some settings choose from.
const (
	DriverSQLite = "sqlite" // store.driver
	DriverMySQL  = "mysql"  // store.driver: MySQL 8 or MariaDB 10.6 and newer

	ProviderSingle = "single" // cluster.provider
	ProviderConsul = "consul" // cluster.provider

	ConsulLossStop = "stop" // cluster.on_consul_loss
	ConsulLossKeep = "keep" // cluster.on_consul_loss

	RedisSingle   = "single"   // redis.mode
	RedisSentinel = "sentinel" // redis.mode
	RedisCluster  = "cluster"  // redis.mode
	RedisEmbedded = "embedded" // the only one of redis.addrs: a Redis in this process

	ModeScan  = "scan"  // biz_types[].mode
	ModeRedis = "redis" // biz_types[].mode

	ProcessorLog     = "log"     // biz_types[].processor
	ProcessorWebhook = "webhook" // biz_types[].processor
)

// Config is the whole tree. Build one with Load or from Default; a Config
// put together in code goes through WithDefaults and Validate before use.
type Config struct {
	Node     Node     `yaml:"node"`
	HTTP     HTTP     `yaml:"http"`
	Store    Store    `yaml:"store"`
	Cluster  Cluster  `yaml:"cluster"`
	Redis    Redis    `yaml:"redis"`
	Scan     Scan     `yaml:"scan"`
	Queue    Queue    `yaml:"queue"`
	Shutdown Shutdown `yaml:"shutdown"`

	// BizTypes are the business types that this center fires: at least one,
	// ids and names unique. The only part that is re-read without a restart.
	// Defaults to order_close (id 1, a webhook to http://127.0.0.1:9000/fire)
	// and demo_log (id 2, a log line); a list in the file replaces both.
	BizTypes []BizType `yaml:"biz_types"`
}

// Node is this process.
type Node struct {
	// Name is how the other nodes, the logs and the locks call this process;
	// unique in a cluster. Defaults to host-pid ("" means the same).
	Name string `yaml:"name"`
}

// HTTP is the API and the metrics.
type HTTP struct {
	// Listen is the host:port to listen on; an empty host is all interfaces,
	// port 0 any free one. Defaults to 127.0.0.1:8080.
	Listen string `yaml:"listen"`
	// Advertise is the host:port that other nodes reach this one at, or a URL with
	// http or https (a proxy in front of it); "" is the address listened on, with
	// this machine's name where that is all interfaces. Defaults to "".
	Advertise string `yaml:"advertise"`
	// Tokens are the bearer tokens that are let in, 16 characters at least; none
	// means that nobody is asked. A change of them is put in force live, but from
	// none to some or back. Defaults to none.
	Tokens []string `yaml:"tokens,flow" secret:"key"`
	// MaxConnections is how many connections there are at most; 0 is half of what
	// the process may have open (RLIMIT_NOFILE), 10,000 at most. Defaults to 0.
	MaxConnections int `yaml:"max_connections"`
}

// Store is where the tasks are.
type Store struct {
	// Driver is sqlite or mysql. Defaults to sqlite.
	Driver string `yaml:"driver"`
	// Databases is the number of databases: a power of two. It cannot be
	// changed once tasks are stored. Defaults to 8.
	Databases int `yaml:"databases"`
	// TablesPerDatabase is the number of task tables in each: a power of two,
	// at most 8192 in all databases together. It cannot be changed once tasks
	// are stored. Defaults to 32.
	TablesPerDatabase int `yaml:"tables_per_database"`
	// Retention is how long processed and cancelled tasks are kept; 0 keeps
	// them for ever. Dead tasks are always kept. Defaults to 720h (30 days).
	Retention time.Duration `yaml:"retention"`

	SQLite SQLite `yaml:"sqlite"`
	MySQL  MySQL  `yaml:"mysql"`
}

// SQLite is the embedded store; used when the driver is sqlite.
type SQLite struct {
	// Dir is the directory of the database files, made when missing.
	// Defaults to data, in the working directory.
	Dir string `yaml:"dir"`
}

// MySQL is the store on one or several servers; used when the driver is mysql.
type MySQL struct {
	// DSN is user:password@tcp(host:port)/toc_%d, where %d, exactly once, is
	// the database's number; what stands before %d in the database's name is
	// the prefix. UTC and parseTime are set by the product.
	// Defaults to root@tcp(127.0.0.1:3306)/toc_%d.
	DSN string `yaml:"dsn" secret:"password"`
	// DSNs gives each database its own DSN, in order, exactly store.databases
	// of them; dsn is then unused. Defaults to none.
	DSNs []string `yaml:"dsns,flow" secret:"password"`
	// MaxOpenConns is the most connections to each database; at least 2.
	// Defaults to 16.
	MaxOpenConns int `yaml:"max_open_conns"`
}

// Cluster is how the partitions are shared among nodes.
type Cluster struct {
	// Provider is single (this node owns all) or consul. Defaults to single.
	Provider string `yaml:"provider"`
	// Partitions is the number of units that a node can own: a power of two,
	// at least store.databases and at most all tables. The same on all nodes.
	// Defaults to 256, or to the number of tables where that is less (0 means
	// the same).
	Partitions int `yaml:"partitions"`
	// OnConsulLoss is what a node does that cannot reach Consul for longer than
	// its locks last: stop its partitions, or keep working them (then a
	// partition may be worked twice). Defaults to stop.
	OnConsulLoss string `yaml:"on_consul_loss"`

	// Secret is what nodes prove to each other that they know, without showing it:
	// 16 characters at least, the same on all nodes. "" is the first of http.tokens;
	// without any, nodes believe each other. Defaults to "".
	Secret string `yaml:"secret" secret:"key"`

	Consul Consul `yaml:"consul"`
}

// Consul is the cluster's agent; used when the provider is consul.
type Consul struct {
	// Address is the agent: host:port, or a URL with http or https.
	// Defaults to 127.0.0.1:8500.
	Address string `yaml:"address"`
	// Token is the ACL token; "" sends none. Defaults to "".
	Token string `yaml:"token" secret:"password"`
	// Prefix is what the keys of this center begin with. Defaults to toc.
	Prefix string `yaml:"prefix"`
	// TTL is how long after a node's last sign of life its partitions are
	// free: 1s to 60s. Defaults to 3s.
	TTL time.Duration `yaml:"ttl"`
}

// Redis is the index of biz_types whose mode is redis.
type Redis struct {
	// Addrs are host:port: of the server in mode single, of the sentinels in
	// mode sentinel, of some nodes in mode cluster (they name the others).
	// "embedded", alone and in mode single, is a Redis inside this process.
	// Defaults to embedded.
	Addrs []string `yaml:"addrs,flow"`
	// Mode is what stands at the addresses: single, sentinel or cluster.
	// Defaults to single.
	Mode string `yaml:"mode"`
	// Master is the name by which the sentinels know the master: letters, digits,
	// _ . -; used when the mode is sentinel. Defaults to mymaster.
	Master string `yaml:"master"`
	// Username is the ACL user; "" is Redis's default user. Defaults to "".
	Username string `yaml:"username"`
	// Password is sent when not "". Defaults to "".
	Password string `yaml:"password" secret:"password"`
	// DB is the number of the Redis database; 0 in cluster mode. Defaults to 0.
	DB int `yaml:"db"`
	// Prefix stands before every topic in the key names: letters, digits,
	// _ . : -, at most 64. Defaults to "".
	Prefix string `yaml:"prefix"`
	// SweepAfter is how long a pending task may be overdue before the scanner
	// arms it again: 100ms to 24h. Defaults to 10s.
	SweepAfter time.Duration `yaml:"sweep_after"`
	// OutageAfter is how long Redis may be away before the scanner fires the
	// tasks of redis-mode biz_types itself: 100ms to 24h. Defaults to 5s.
	OutageAfter time.Duration `yaml:"outage_after"`
}

// Scan is the scanner's tick.
type Scan struct {
	// Schedule is a cron spec of robfig/cron: five fields, six with seconds, or
	// a descriptor. Defaults to "@every 10s".
	Schedule string `yaml:"schedule"`
	// Lookahead is how far ahead of now a tick reads; at least one tick, or
	// tasks are late by the difference. Defaults to 10s.
	Lookahead time.Duration `yaml:"lookahead"`
	// Batch is how many rows are read at a time: 1 to 10000. Defaults to 500.
	Batch int `yaml:"batch"`
}

// Queue is the queue in memory, between the engines and the processors.
type Queue struct {
	// Capacity is how many tasks may wait in it; at least 1. Defaults to 10000.
	Capacity int `yaml:"capacity"`
}

// Shutdown is the graceful stop.
type Shutdown struct {
	// Drain is how long running tasks are waited for; 0 waits for none.
	// Defaults to 30s.
	Drain time.Duration `yaml:"drain"`
}

// BizType is one business type: its engine, its processor, its policies.
// In code, start from DefaultBizType: a zero here means zero.
type BizType struct {
	// ID is the number in the column biz_type: 1 or more, unique. It has no
	// default.
	ID uint64 `yaml:"id"`
	// Name is how the API and the metrics call it: a-z, 0-9, _ . -, at most 64,
	// unique. It has no default.
	Name string `yaml:"name"`
	// Mode is the engine: scan or redis. Defaults to scan.
	Mode string `yaml:"mode"`
	// Processor is what runs a task: log, webhook, or a name registered in
	// code. Defaults to webhook when webhook.url is given, else to log.
	Processor string `yaml:"processor"`
	// Webhook is where the processor webhook calls.
	Webhook Webhook `yaml:"webhook"`
	// Workers is how many tasks run at once on a node: 1 to 10000.
	// Defaults to 64.
	Workers int `yaml:"workers"`
	// Timeout is how long one run may take. Defaults to 30s.
	Timeout time.Duration `yaml:"timeout"`
	// MaxRetries is how many failed runs are tried again: 0 to 250; 0 runs a
	// task once. Defaults to 16.
	MaxRetries int `yaml:"max_retries"`
	// Cuts is how many starts of a task may have no end, because the process
	// died: 1 to 250; then the task is dead without one more start. Defaults to 3.
	Cuts int `yaml:"cuts"`
	// Backoff is the pause after a failed run.
	Backoff Backoff `yaml:"backoff"`
	// ExpireAfter is how late a task may start; a later one is dead without
	// being run. 0 is never. Defaults to 0.
	ExpireAfter time.Duration `yaml:"expire_after"`
	// Topic names its slots in Redis: letters, digits, _ . : -, at most 64,
	// unique. Defaults to the name ("" means the same).
	Topic string `yaml:"topic"`
	// Horizon is how far ahead tasks are held in Redis: 10s or more; 0 is all of
	// them. Defaults to 1h.
	Horizon time.Duration `yaml:"horizon"`
	// Visibility is how long a claimed task may stay unsettled before Redis
	// takes it back; at least the timeout. Defaults to 60s, or to the timeout
	// where that is longer (0 means the same).
	Visibility time.Duration `yaml:"visibility"`
}

// Webhook is an HTTP call: POST, the task as JSON.
type Webhook struct {
	// URL is absolute, http or https. Defaults to "" (needed by the processor
	// webhook).
	URL string `yaml:"url"`
	// Secret signs the calls (Standard Webhooks): whsec_ and base64, or any
	// other string of 16 characters at least, whose bytes are then the key. ""
	// signs none. Defaults to "".
	Secret string `yaml:"secret" secret:"key"`
	// PreviousSecret signs the calls as well, until all receivers know secret.
	// Defaults to "".
	PreviousSecret string `yaml:"previous_secret" secret:"key"`
	// Timeout is how long one call may take; 0 is the biz_type's timeout, which
	// holds in any case. Defaults to 0.
	Timeout time.Duration `yaml:"timeout"`
}

// Backoff is an exponential pause with jitter.
type Backoff struct {
	// Min is the first pause; more than 0. Defaults to 1s.
	Min time.Duration `yaml:"min"`
	// Max is the longest pause; at least min. Defaults to 10m.
	Max time.Duration `yaml:"max"`
}

// Layout is the number of all task tables.
func (s Store) Layout() int { return s.Databases * s.TablesPerDatabase }
