package configs

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

// Default is the embedded center: the settings without a file and an environment.
// configs/embedded.yaml says the same in YAML. Settings that follow from others
// have their values already. To change the layout in code, set cluster.partitions
// to 0 (worked out again) or to a number that suits it.
func Default() Config { return base().WithDefaults() }

// base is the lowest layer: Default without the values that follow from other
// settings.
func base() Config {
	orderClose := DefaultBizType()
	orderClose.ID, orderClose.Name = 1, "order_close"
	orderClose.Webhook.URL = "http://127.0.0.1:9000/fire"

	demoLog := DefaultBizType()
	demoLog.ID, demoLog.Name, demoLog.Mode = 2, "demo_log", ModeRedis

	return Config{
		HTTP: HTTP{Listen: "127.0.0.1:8080", Tokens: []string{}, Console: true},
		Store: Store{
			Driver:            DriverSQLite,
			Databases:         8,
			TablesPerDatabase: 32,
			Retention:         30 * 24 * time.Hour,
			AuditRetention:    365 * 24 * time.Hour,
			SlowAfter:         time.Hour,
			SQLite:            SQLite{Dir: "data"},
			MySQL:             MySQL{DSN: "root@tcp(127.0.0.1:3306)/toc_%d", DSNs: []string{}, MaxOpenConns: 15},
		},
		Cluster: Cluster{
			Provider:     ProviderSingle,
			OnConsulLoss: ConsulLossStop,
			Consul:       Consul{Address: "127.0.0.1:8500", Prefix: "toc", TTL: 3 * time.Second},
		},
		Redis: Redis{
			Addrs:       []string{RedisEmbedded},
			Mode:        RedisSingle,
			Master:      "mymaster",
			SweepAfter:  10 * time.Second,
			OutageAfter: 5 * time.Second,
		},
		Scan:     Scan{Schedule: "@every 10s", Lookahead: 10 * time.Second, Batch: 500},
		Queue:    Queue{Capacity: 20000},
		Clock:    Clock{MaxSkew: 500 * time.Millisecond},
		Shutdown: Shutdown{Drain: 30 * time.Second},
		Intake:   []Intake{},
		BizTypes: []BizType{orderClose, demoLog},
	}
}

// defaultIntake is what an element of intake means that says nothing.
func defaultIntake() Intake { return Intake{Group: "toc", Lane: LaneFast} }

// DefaultBizType is what an element of biz_types means that says nothing: all
// but ID and Name, which it must say, and what WithDefaults works out.
func DefaultBizType() BizType {
	return BizType{
		Mode:       ModeScan,
		Workers:    64,
		Timeout:    30 * time.Second,
		MaxRetries: 16,
		Cuts:       3,
		Backoff:    Backoff{Min: time.Second, Max: 10 * time.Minute},
		OnExpire:   OnExpireDead,
		Coalesce:   CoalesceNone,
		Kafka:      KafkaOut{Key: KeyBizID},
		Pull:       Pull{TTR: time.Minute, MaxInFlight: 10_000},
		Horizon:    30 * time.Second,
	}
}

// WithDefaults returns b with the defaults of DefaultBizType in its zero fields, unless b was made by DefaultBizType.
func (b BizType) WithDefaults() BizType {
	d := DefaultBizType()
	if b.Mode != "" && b.OnExpire != "" && b.Coalesce != "" && b.Kafka.Key != "" && b.Pull.TTR != 0 && b.Pull.MaxInFlight != 0 {
		return b
	}
	b.Mode, b.Workers, b.Timeout = cmp.Or(b.Mode, d.Mode), cmp.Or(b.Workers, d.Workers), cmp.Or(b.Timeout, d.Timeout)
	b.MaxRetries, b.Cuts, b.Horizon = cmp.Or(b.MaxRetries, d.MaxRetries), cmp.Or(b.Cuts, d.Cuts), cmp.Or(b.Horizon, d.Horizon)
	b.OnExpire, b.Coalesce = cmp.Or(b.OnExpire, d.OnExpire), cmp.Or(b.Coalesce, d.Coalesce)
	b.Backoff.Min, b.Backoff.Max = cmp.Or(b.Backoff.Min, d.Backoff.Min), cmp.Or(b.Backoff.Max, d.Backoff.Max)
	b.Kafka.Key, b.Pull.TTR = cmp.Or(b.Kafka.Key, d.Kafka.Key), cmp.Or(b.Pull.TTR, d.Pull.TTR)
	b.Pull.MaxInFlight = cmp.Or(b.Pull.MaxInFlight, d.Pull.MaxInFlight)
	return b
}

// WithDefaults is a copy in which the settings are worked out that follow from
// others: node.name, cluster.partitions, and each biz_type's processor, topic
// and visibility. What is set stays.
func (c Config) WithDefaults() Config {
	c.Node.Name = cmp.Or(c.Node.Name, hostPID())
	if c.Cluster.Partitions == 0 && c.Store.hasLayout() {
		c.Cluster.Partitions = min(256, c.Store.Layout())
	}
	c.Store.SlowAfter = cmp.Or(c.Store.SlowAfter, time.Hour)
	c.Intake = slices.Clone(c.Intake)
	for i := range c.Intake {
		n := &c.Intake[i]
		n.Group, n.Lane = cmp.Or(n.Group, defaultIntake().Group), cmp.Or(n.Lane, LaneFast)
	}
	c.BizTypes = slices.Clone(c.BizTypes)
	for i := range c.BizTypes {
		b := &c.BizTypes[i]
		if b.Processor == "" && b.Webhook.URL != "" {
			b.Processor = ProcessorWebhook
		}
		if b.Processor == "" && b.Kafka.Topic != "" {
			b.Processor = ProcessorKafka
		}
		b.Processor = cmp.Or(b.Processor, ProcessorLog)
		b.Kafka.Key = cmp.Or(b.Kafka.Key, KeyBizID)
		b.Pull.TTR, b.Pull.MaxInFlight = cmp.Or(b.Pull.TTR, time.Minute), cmp.Or(b.Pull.MaxInFlight, 10_000)
		b.Topic = cmp.Or(b.Topic, b.Name)
		b.Visibility = cmp.Or(b.Visibility, max(time.Minute, b.Timeout))
	}
	return c
}

// nodeName is what a node may be called.
var nodeName = regexp.MustCompile(`^[!-~]{1,128}$`)

// hostPID is the default node name: unique among the processes of one network.
func hostPID() string {
	host, err := os.Hostname()
	if err != nil || !nodeName.MatchString(host) {
		host = "node"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
