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

	OnExpireDead  = "dead" // biz_types[].on_expire
	OnExpireSkip  = "skip"
	OnExpireRun   = "run"
	CoalesceNone  = "none" // biz_types[].coalesce
	CoalesceBizID = "biz_id"

	ModeScan  = "scan"  // biz_types[].mode
	ModeRedis = "redis" // biz_types[].mode

	ProcessorLog     = "log"     // biz_types[].processor
	ProcessorWebhook = "webhook" // biz_types[].processor
	ProcessorKafka   = "kafka"
	ProcessorPull    = "pull"
)

// Config is the whole tree. Build one with Load or from Default; a Config
// put together in code goes through WithDefaults and Validate before use.
//
// docs/configuration.md is made of the comments below; see TestReferenceIsTheCode.
type Config struct {
	Node     Node     `yaml:"node"`
	HTTP     HTTP     `yaml:"http"`
	Store    Store    `yaml:"store"`
	Cluster  Cluster  `yaml:"cluster"`
	Redis    Redis    `yaml:"redis"`
	Scan     Scan     `yaml:"scan"`
	Queue    Queue    `yaml:"queue"`
	Clock    Clock    `yaml:"clock"`
	Shutdown Shutdown `yaml:"shutdown"`
	Kafka    Kafka    `yaml:"kafka"`
	Tracing  Tracing  `yaml:"tracing"`

	// Intake are the topics of Kafka from which tasks are read. There are none by default.
	Intake []Intake `yaml:"intake"`

	// BizTypes are the business types of this center, one or more. Without a list there
	// are two: order_close (id 1, a webhook to http://127.0.0.1:9000/fire) and demo_log (id 2,
	// mode redis, a log line). A list in the file replaces both. A changed list takes effect
	// without a restart.
	BizTypes []BizType `yaml:"biz_types"`
}

// Node configures this process.
type Node struct {
	// Name is the name of this process in logs, in locks and for the other nodes. It is
	// unique in a cluster. It has 1 to 128 visible ASCII characters and no space; with
	// Consul only letters, digits and _ . -. "" means host-pid, such as web1-4711.
	// Defaults to "".
	Name string `yaml:"name"`
}

// HTTP configures the API and the metrics.
type HTTP struct {
	// Listen is the host:port of the API. An empty host means all interfaces. Port 0 means
	// any free port. Defaults to 127.0.0.1:8080.
	Listen string `yaml:"listen"`
	// Advertise is the address at which other nodes reach this one: host:port, or the http
	// or https URL of a proxy in front of it. "" means the address in http.listen, with this
	// machine's name where that is all interfaces. Defaults to "".
	Advertise string `yaml:"advertise"`
	// Tokens are the bearer tokens that clients may send. Each has 16 visible ASCII
	// characters or more. An empty list lets everybody in. A changed list takes effect
	// without a restart; from an empty list to some tokens, or back, needs a restart.
	// Defaults to [].
	Tokens []string `yaml:"tokens,flow" secret:"key"`
	// MaxConnections is the largest number of open connections. One more replaces the
	// connection that has been idle longest, or has shown no token for longest. 0 means half
	// of the file descriptors that the process may have (RLIMIT_NOFILE), and at most 10,000.
	// Defaults to 0.
	MaxConnections int `yaml:"max_connections"`
	// Console is whether the listener serves the console, pages for people, at /console/.
	// Defaults to true.
	Console bool `yaml:"console"`
}

// Store configures the task tables.
type Store struct {
	// Driver is the kind of database: sqlite (files of this process) or mysql (MySQL 8,
	// MariaDB 10.6, and newer). Defaults to sqlite.
	Driver string `yaml:"driver"`
	// Databases is the number of databases: a power of two. It is fixed once tasks are
	// stored. Defaults to 8.
	Databases int `yaml:"databases"`
	// TablesPerDatabase is the number of task tables in each database: a power of two. All
	// databases together have at most 8192 tables. It is fixed once tasks are stored.
	// Defaults to 32.
	TablesPerDatabase int `yaml:"tables_per_database"`
	// Retention is the time for which processed and cancelled tasks are kept. 0 keeps them
	// for ever. Defaults to 720h.
	Retention time.Duration `yaml:"retention"`
	// DeadRetention is the time for which dead tasks are kept after their death. 0s keeps them
	// for ever. Defaults to 0s.
	DeadRetention time.Duration `yaml:"dead_retention"`
	// AuditRetention is the time for which the entries of the audit, and operations that have
	// ended, are kept. 0 keeps them for ever. Defaults to 8760h.
	AuditRetention time.Duration `yaml:"audit_retention"`
	// SlowAfter is how far ahead a task is due that an intake with lane slow stores at its rate
	// only: 1s or more. Defaults to 1h.
	SlowAfter time.Duration `yaml:"slow_after"`

	SQLite SQLite `yaml:"sqlite"`
	MySQL  MySQL  `yaml:"mysql"`
}

// SQLite configures the embedded store. It is used if store.driver is sqlite.
type SQLite struct {
	// Dir is the directory of the database files. toc makes it if it is missing. A relative
	// path starts at the working directory. Defaults to data.
	Dir string `yaml:"dir"`
}

// MySQL configures the database servers. It is used if store.driver is mysql.
type MySQL struct {
	// DSN is the address of the databases: user:password@tcp(host:port)/toc_%d. %d stands
	// for the number of the database and occurs once behind the login. The text before it
	// (toc_) is the prefix of their names. Parameters of the driver that toc sets itself
	// (parseTime, loc, autocommit, …) are refused if they have another value: leave them out.
	// Defaults to root@tcp(127.0.0.1:3306)/toc_%d.
	DSN string `yaml:"dsn" secret:"password"`
	// DSNs are the addresses of databases on several servers: one for each database, in
	// order. store.mysql.dsn is then unused. Defaults to [].
	DSNs []string `yaml:"dsns,flow" secret:"password"`
	// MaxOpenConns is the largest number of connections to each database: 2 or more.
	// Defaults to 15.
	MaxOpenConns int `yaml:"max_open_conns"`
	// TLS holds for all connections to the databases. It excludes tls in a DSN.
	TLS TLS `yaml:"tls,flow"`
}

// Cluster configures how nodes share the partitions.
type Cluster struct {
	// Provider is the keeper of the partitions: single (this node owns all of them) or consul
	// (several nodes share them). Defaults to single.
	Provider string `yaml:"provider"`
	// Partitions is the number of partitions, the units that a node owns: a power of two,
	// from store.databases to the number of all tables. It is the same on all nodes. 0 means
	// 256, or the number of all tables where that is less. A store keeps its number;
	// `toc migrate --repartition` changes it. Defaults to 256.
	Partitions int `yaml:"partitions"`
	// OnConsulLoss is the reaction of a node that cannot reach Consul for longer than its
	// locks last: stop ends the work on its partitions; keep goes on with them, and two nodes
	// may then work on one partition. Defaults to stop.
	OnConsulLoss string `yaml:"on_consul_loss"`

	// Secret is a text that only the nodes of this cluster know, the same on all of them: 16
	// characters or more. Nodes prove to each other that they have it and never send it. ""
	// means the first of http.tokens. Without either, nodes ask each other for no proof.
	// Defaults to "".
	Secret string `yaml:"secret" secret:"key"`

	Consul Consul `yaml:"consul"`
}

// Consul configures the Consul agent. It is used if cluster.provider is consul.
type Consul struct {
	// Address is the address of the agent: host:port, or an http or https URL.
	// Defaults to 127.0.0.1:8500.
	Address string `yaml:"address"`
	// Token is the ACL token. "" sends none. A new one in its file (token_file) is in force
	// with the next request, without a restart. Defaults to "".
	Token string `yaml:"token" secret:"password"`
	// TokenFile is the path of that file, which ReadToken reads. Load sets it for the key
	// token_file; a program may set it instead of Token. Defaults to "".
	TokenFile string `yaml:"-"`
	// Prefix is the beginning of this center's keys in Consul, and the name of its service:
	// 1 to 64 letters, digits or _ . -. Each center on a Consul needs a different one.
	// Defaults to toc.
	Prefix string `yaml:"prefix"`
	// TTL is the time after a node's last sign of life at which its partitions become free:
	// 1s to 60s. It is the same on all nodes. Defaults to 3s.
	TTL time.Duration `yaml:"ttl"`
	// TLS excludes an http URL in cluster.consul.address.
	TLS TLS `yaml:"tls,flow"`
}

// Redis configures the index of the business types whose mode is redis.
type Redis struct {
	// Addrs are the addresses, host:port each: in mode single the server, in mode sentinel
	// the sentinels, in mode cluster some of the nodes. The word embedded, alone and in mode
	// single, is a Redis inside this process. Defaults to [embedded].
	Addrs []string `yaml:"addrs,flow"`
	// Mode is the kind of Redis at the addresses: single, sentinel or cluster.
	// Defaults to single.
	Mode string `yaml:"mode"`
	// Master is the name by which the sentinels know the master: letters, digits or _ . -.
	// It is used if redis.mode is sentinel. Defaults to mymaster.
	Master string `yaml:"master"`
	// Username is the ACL user. "" means Redis's default user. Defaults to "".
	Username string `yaml:"username"`
	// Password is the password of that user. "" sends none. Defaults to "".
	Password string `yaml:"password" secret:"password"`
	// DB is the number of the Redis database. A Redis cluster has only 0. Defaults to 0.
	DB int `yaml:"db"`
	// Prefix is a text before every topic in the names of keys: at most 64 letters, digits
	// or _ . : -. Each center on a Redis needs a different one. Defaults to "".
	Prefix string `yaml:"prefix"`
	// SweepAfter is the time for which a pending task may be overdue before it belongs to the
	// backlog: what Redis lacks of that is put there when the slot has nothing else that is
	// due. 100ms to 24h. Defaults to 10s.
	SweepAfter time.Duration `yaml:"sweep_after"`
	// OutageAfter is the time for which Redis may be away before the scanner fires its tasks
	// instead: 100ms to 24h. Defaults to 5s.
	OutageAfter time.Duration `yaml:"outage_after"`
	// TLS holds for all servers of redis.mode, the sentinels included.
	TLS TLS `yaml:"tls,flow"`
}

// Scan configures the scanner, which reads due tasks from the tables at each tick.
type Scan struct {
	// Schedule is the time of the ticks, a cron specification: five fields, six with
	// seconds, or a descriptor such as "@every 10s" or @hourly. Defaults to @every 10s.
	Schedule string `yaml:"schedule"`
	// Lookahead is the time ahead that a tick reads. If it is shorter than the time between
	// two ticks, tasks are late by the difference. Defaults to 10s.
	Lookahead time.Duration `yaml:"lookahead"`
	// Batch is the number of rows read at a time: 1 to 10000. Defaults to 500.
	Batch int `yaml:"batch"`
}

// Queue configures the queue in memory, between the engines and the processors.
type Queue struct {
	// Capacity is the largest number of tasks of one business type that a node holds in
	// memory: 1 or more. Defaults to 20000.
	Capacity int `yaml:"capacity"`
}

// Clock configures the comparison of this machine's clock with those of the databases, of
// Redis and of the other nodes.
type Clock struct {
	// MaxSkew is the difference above which /readyz reports another clock; the node stays
	// ready. 0 reports none; otherwise 10ms or more. Defaults to 500ms.
	MaxSkew time.Duration `yaml:"max_skew"`
}

// Shutdown configures the graceful stop.
type Shutdown struct {
	// Drain is the longest time to wait for running tasks. 0 waits for none.
	// Defaults to 30s.
	Drain time.Duration `yaml:"drain"`
}

// Tracing configures the traces of submits and runs.
type Tracing struct {
	// OTLP is the address of an OpenTelemetry collector that takes OTLP over HTTP: the URL to
	// which /v1/traces is added, or host:port of it. A user and password in the URL are sent as
	// basic authentication. "" exports none. Defaults to "".
	OTLP string `yaml:"otlp" secret:"password"`
	// Sample is the share of the submits that carry no trace, and of the runs of tasks
	// without one, that begin a trace: 0 to 1. A trace that came with a submit says itself
	// whether it is sampled. Defaults to 0.
	Sample float64 `yaml:"sample"`
}

// Kafka configures the Kafka clusters that business types and intakes name.
type Kafka struct {
	// Clusters are the clusters by name. There are none by default.
	Clusters KafkaClusters `yaml:"clusters"`
}

// Intake configures a topic of Kafka whose records become tasks. Each node of the center is
// a member of the consumer group.
type Intake struct {
	// Name is the name in metrics and in the log: 1 to 64 of a-z, 0-9, _ -. It has no default.
	Name string `yaml:"name"`
	// Cluster is the name of the cluster: one of kafka.clusters. It has no default.
	Cluster string `yaml:"cluster"`
	// Topic is the name of the topic. It has no default.
	Topic string `yaml:"topic"`
	// Group is the name of the consumer group. Defaults to toc.
	Group string `yaml:"group"`
	// Lane is one of fast and slow. With slow, rate holds only for tasks that are due later
	// than store.slow_after from now, and the others pass them. Defaults to fast.
	Lane string `yaml:"lane"`
	// Rate is how many records a second each node stores at most: 0 to 1000000. 0 is no limit.
	// Defaults to 0.
	Rate int `yaml:"rate"`
	// FailureTopic is the name of the topic that gets the records that are refused. "" logs
	// them. Defaults to "".
	FailureTopic string `yaml:"failure_topic"`
}

// KafkaCluster configures a Kafka cluster.
type KafkaCluster struct {
	Name string `yaml:"-"`
	// Brokers are the addresses of some of its brokers, host:port each: one or more.
	// It has no default.
	Brokers []string `yaml:"brokers"`
	TLS     TLS      `yaml:"tls,flow"`
	SASL    SASL     `yaml:"sasl"`
}

// TLS configures TLS 1.2 or newer to these servers. A new connection uses the files as they are then: new
// certificates need no restart.
type TLS struct {
	// CA is the path of a PEM file with the certificates that are trusted, or system for
	// those of the machine. "" means no TLS. Defaults to "".
	CA string `yaml:"ca"`
	// Cert is the path of a PEM file with the client's certificate, for servers that demand one. Defaults to "".
	Cert string `yaml:"cert"`
	// Key is the path of a PEM file with the key of that certificate. Defaults to "".
	Key string `yaml:"key"`
	// ServerName is the name that the servers' certificates have. "" means the host of each
	// server's address. Defaults to "".
	ServerName string `yaml:"server_name"`
}

// SASL configures how this node proves to the brokers who it is.
type SASL struct {
	// Mechanism is one of plain, scram-sha-256 and scram-sha-512. "" means no SASL. Defaults to "".
	Mechanism string `yaml:"mechanism"`
	// Username is the name of the user. Defaults to "".
	Username string `yaml:"username"`
	// Password is the password of that user. Defaults to "".
	Password string `yaml:"password" secret:"password"`
}

// BizType configures one business type: its engine, its processor and its retries.
// In code, start from DefaultBizType: a zero here means zero.
type BizType struct {
	// ID is the number in the column biz_type: 1 or more, unique. Never give it to another
	// type. It has no default.
	ID uint64 `yaml:"id"`
	// Name is the name in the API and in the metrics: 1 to 64 of a-z, 0-9 and _ . -, unique.
	// It has no default.
	Name string `yaml:"name"`
	// Mode is the engine: scan or redis. Defaults to scan.
	Mode string `yaml:"mode"`
	// Processor is the name of the processor that runs a task: log, webhook, kafka, pull
	// (consumers lease the tasks), or a name that a Go program registers. "" means webhook if webhook.url is given, kafka if
	// kafka.topic is given, else log. Defaults to "".
	Processor string   `yaml:"processor"`
	Webhook   Webhook  `yaml:"webhook"`
	Kafka     KafkaOut `yaml:"kafka"`
	Pull      Pull     `yaml:"pull"`
	// Workers is the number of tasks that run at once on a node: 1 to 10000. With the
	// processor kafka it is 1: tasks are written as they fall due. Defaults to 64.
	Workers int `yaml:"workers"`
	// Timeout is the longest time of one run. Defaults to 30s.
	Timeout time.Duration `yaml:"timeout"`
	// MaxRetries is the number of retries after failed runs: 0 to 250. After the last one the
	// task is dead. 0 runs a task once. Defaults to 16.
	MaxRetries int `yaml:"max_retries"`
	// Cuts is the number of starts of a task that may have no end because the process died:
	// 1 to 250, where 1 works like 2. After that many the task is dead. Defaults to 3.
	Cuts    int     `yaml:"cuts"`
	Backoff Backoff `yaml:"backoff"`
	// ExpireAfter is the lateness from which on a task is too late: on_expire says what becomes
	// of it. 0 means never. Defaults to 0s.
	ExpireAfter time.Duration `yaml:"expire_after"`
	// OnExpire is what becomes of a task that is too late: dead, skip (it is cancelled, with
	// the last_error expired) or run. Defaults to dead.
	OnExpire string `yaml:"on_expire"`
	// RateLimit is the number of runs a second that may start in the whole cluster: 0 to
	// 1000000. 0 means no limit. Defaults to 0.
	RateLimit int `yaml:"rate_limit"`
	// MaxRunning is the number of runs that may be under way in the whole cluster: 0 to
	// 1000000. 0 means no limit but workers. The processor pull has pull.max_in_flight
	// instead. Defaults to 0.
	MaxRunning int `yaml:"max_running"`
	// CatchUp is the number of runs a second in the whole cluster of tasks that are overdue by
	// more than 10 s: 0 to 1000000. Other tasks go before these. 0 means no limit and no
	// order. Defaults to 0.
	CatchUp int `yaml:"catch_up"`
	// Coalesce is one of none and biz_id. With biz_id, of the overdue tasks of one biz_id only the
	// latest runs; the others are cancelled, with the last_error coalesced. Defaults to none.
	Coalesce string `yaml:"coalesce"`
	// Topic is the name of its slots in Redis: at most 64 letters, digits or _ . : -,
	// unique. "" means the name. Defaults to "".
	Topic string `yaml:"topic"`
	// Horizon is the time ahead for which a submit puts its task into Redis: 10s or more, and
	// no less than two pauses of scan.schedule need. 0 puts all of them there. Defaults to 30s.
	Horizon time.Duration `yaml:"horizon"`
	// Visibility is the time after which Redis takes back a task that a dead node has
	// claimed: no less than the timeout. 0 means 60s, or the timeout where that is longer.
	// Defaults to 0s.
	Visibility time.Duration `yaml:"visibility"`
}

// Webhook configures the processor webhook, which posts the task as JSON to a URL.
type Webhook struct {
	// URL is the absolute http or https URL to call. The processor webhook needs one.
	// Defaults to "".
	URL string `yaml:"url"`
	// Secret is the key that signs the calls (Standard Webhooks): whsec_ and base64 of 16
	// bytes or more, or any other text of 16 characters or more, whose bytes are then the
	// key. "" signs none. Defaults to "".
	Secret string `yaml:"secret" secret:"key"`
	// PreviousSecret is the secret before that. It signs the calls as well, until all
	// receivers know the new one. Defaults to "".
	PreviousSecret string `yaml:"previous_secret" secret:"key"`
	// Timeout is the longest time of one call. 0 means the timeout of the business type,
	// which holds in any case. Defaults to 0s.
	Timeout time.Duration `yaml:"timeout"`
	// Batch is the number of tasks that one call may have, as a JSON array: 1 to 256. 0 posts
	// each task in a separate call, as an object. Defaults to 0.
	Batch int `yaml:"batch"`
}

// KafkaOut configures the processor kafka, which writes the task to a topic.
type KafkaOut struct {
	// Cluster is the name of the cluster: one of kafka.clusters. The processor kafka needs one.
	// Defaults to "".
	Cluster string `yaml:"cluster"`
	// Topic is the name of the topic, which must exist. The processor kafka needs one.
	// Defaults to "".
	Topic string `yaml:"topic"`
	// Key is what the key of a record is: biz_id, job_id or dedup_key. Defaults to biz_id.
	Key string `yaml:"key"`
}

// Pull configures the processor pull, which hands the tasks to consumers that ask for them.
type Pull struct {
	// TTR is the time that a consumer has for a task that sets no timeout (time to run):
	// 100ms to 24h. Then the task is handed out again. Defaults to 1m.
	TTR time.Duration `yaml:"ttr"`
	// MaxInFlight is the number of tasks of one node that consumers may have at once: 1 to
	// 1000000. Defaults to 10000.
	MaxInFlight int `yaml:"max_in_flight"`
}

// Backoff configures the pause after a failed run: min, doubled with each failure up to
// max, spread by a quarter.
type Backoff struct {
	// Min is the first pause; more than 0. Defaults to 1s.
	Min time.Duration `yaml:"min"`
	// Max is the longest pause; no less than min. Defaults to 10m.
	Max time.Duration `yaml:"max"`
}

// Layout is the number of all task tables.
func (s Store) Layout() int { return s.Databases * s.TablesPerDatabase }
