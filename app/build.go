package app

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/internal/tracing/otlp"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processor/kafka"
	"github.com/timeoutcenter/toc/processor/logger"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/scanner"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// build makes all parts, from the lowest layer up.
func (a *App) build() error {
	schedule, err := configs.ParseSchedule(a.cfg.Scan.Schedule)
	if err != nil {
		return fmt.Errorf("scan.schedule: %w", err)
	}
	a.layout = Layout(a.cfg)
	a.due = &dueCounter{App: a, ofDatabase: make([]due, a.layout.Databases)}
	a.clock = newClock(a.component("clock"), a.opts.outside.Ahead)
	if a.ids, err = sharding.NewIDs(a.layout, 0, a.clock.Now); err != nil {
		return err
	}
	storeConfig := a.storeConfig()
	storeConfig.IDs, storeConfig.Now = a.ids, a.clock.Now
	if storeConfig.TLS, err = a.tlsClient(tlsclient.MySQLSection, a.cfg.Store.MySQL.TLS); err != nil {
		return err
	}
	if a.store, err = store.Open(storeConfig); err != nil {
		return err
	}
	if a.cluster, err = a.newMembership(); err != nil {
		return err
	}
	owned := a.owners()
	a.secrets.cluster = &a.cfg.Cluster
	a.secrets.tokens.Store(&a.cfg.HTTP.Tokens)
	a.inForce = a.cfg.BizTypes
	a.proof = peerproof.New(a.node, a.secrets.peerKeys)
	var others intake.Cluster = intake.SingleNode{Terms: owned}
	var nodes dispatch.Nodes = dispatch.SingleNode{}
	if a.cfg.Cluster.Provider == configs.ProviderConsul {
		a.forward = a.newForwarder(owned)
		others, nodes = a.forward, a.forward
	}
	a.metrics = metrics.New()
	a.metrics.SetTypes(a.catalog.Load())
	if err := a.buildTracing(); err != nil {
		return err
	}
	a.limits = a.newLimits(owned)
	a.limits.SetTypes(a.catalog.Load().All())
	a.queue = queue.New(queue.Config{
		Capacity: a.cfg.Queue.Capacity, Partitions: a.layout.Partitions, Ownership: owned, Limits: a.limits, Now: a.clock.Now,
		Alarm: &a.alarm,
	})
	redisTLS, err := a.tlsClient(redisSection, a.cfg.Redis.TLS)
	if err != nil {
		return err
	}
	a.timer = redistimer.New(redistimer.Config{
		Client: redisClient(a.cfg.Redis, redisTLS, a.opts.outside.Dial), Prefix: a.cfg.Redis.Prefix, Store: a.store, Queue: a.queue,
		Ownership: owned, Layout: a.layout, Observer: a.metrics, OutageAfter: a.cfg.Redis.OutageAfter,
		SweepAfter: a.cfg.Redis.SweepAfter, StoreID: a.StoreID, Tick: configs.LongestPause(schedule), Nodes: nodes, Now: a.clock.Now,
		Logger: a.component("redistimer"),
	})
	a.timer.SetTypes(redisBizTypes(a.cfg))
	a.scanner = scanner.New(scanner.Config{
		Timer: a.timer,
		Store: a.store, Queue: a.queue, Ownership: owned, Catalog: a.catalog, Layout: a.layout,
		Observer: a.metrics, Schedule: schedule, Lookahead: a.cfg.Scan.Lookahead, Batch: a.cfg.Scan.Batch,
		Retention: a.cfg.Store.Retention, DeadRetention: a.cfg.Store.DeadRetention, AuditRetention: a.cfg.Store.AuditRetention,
		Retries: func() time.Time { return a.runner.Retries() }, Now: a.clock.Now, Logger: a.component("scanner"),
	})
	a.dispatcher = dispatch.New(dispatch.Config{
		Layout: a.layout, Queue: a.queue, Store: a.store, Ownership: owned, Scanner: a.scanner, Timer: a.timer, Nodes: nodes,
	})
	a.runner = worker.New(worker.Config{
		Queue: a.queue, Store: a.store, Layout: a.layout, Observer: a.metrics, Dispatch: a.dispatcher, Ownership: owned, Failed: a.opts.failed,
		Tracer: a.tracer, Now: a.clock.Now, Logger: a.component("processor"),
	})
	a.control = a.newControl()
	a.service = intake.New(intake.Config{
		Node: a.node, Store: a.store, Queue: a.queue, Layout: a.layout, Catalog: a.catalog,
		Observer: a.metrics, Dispatch: a.dispatcher, Puller: a.runner, Cluster: others, Status: status{a}, Tracer: a.tracer, Now: a.clock.Now,
		Decisions: a.control, Logger: a.component("intake"),
	})
	if err := a.buildReaders(); err != nil {
		return err
	}
	a.operations = a.newOperations(owned)
	a.console = a.newConsole()
	a.faults = a.faultKinds()
	a.metrics.Watch(status{a}.gauges)
	return nil
}

// pulled stands for the processor of a pull type, which is never called: consumers lease its tasks.
var pulled = processor.Func(func(context.Context, task.Task) error { return errors.New("tasks of this business type are leased") })

// registerShipped registers the processors that ship.
func (a *App) registerShipped() {
	log := a.component("processors")
	for name, build := range map[string]processor.Constructor{
		configs.ProcessorLog: func(b task.BizType, _ any) (processor.Processor, error) { return logger.New(b, log), nil },
		configs.ProcessorWebhook: func(b task.BizType, settings any) (processor.Processor, error) {
			return webhook.New(b, settings.(webhook.Config))
		},
		configs.ProcessorKafka: func(b task.BizType, settings any) (processor.Processor, error) {
			return kafka.New(b, settings.(kafka.Config))
		},
		configs.ProcessorPull: func(task.BizType, any) (processor.Processor, error) { return pulled, nil },
	} {
		if err := a.registry.Register(name, build); err != nil {
			panic(err) // the registry is new: no name is taken
		}
	}
}

// Layout is the layout of a configuration.
func Layout(cfg configs.Config) sharding.Layout {
	return sharding.Layout{
		Databases:         cfg.Store.Databases,
		TablesPerDatabase: cfg.Store.TablesPerDatabase,
		Partitions:        cfg.Cluster.Partitions,
	}
}

// StoreConfig is the store part of a configuration.
func StoreConfig(cfg configs.Config) store.Config {
	return store.Config{
		Driver:       store.Driver(cfg.Store.Driver),
		Layout:       Layout(cfg),
		DSN:          cfg.Store.MySQL.DSN,
		DSNs:         cfg.Store.MySQL.DSNs,
		MaxOpenConns: cfg.Store.MySQL.MaxOpenConns,
		TLS:          tlsclient.New(tlsclient.MySQLSection, cfg.Store.MySQL.TLS.Files(), nil),
		Dir:          cfg.Store.SQLite.Dir,
	}
}

// storeConfig is that of this center, with its own way to the databases.
func (a *App) storeConfig() store.Config {
	c := StoreConfig(a.cfg)
	c.Outside = a.opts.outside
	return c
}

// bizTypes converts the configured business types.
func bizTypes(cfg configs.Config) (*task.Types, error) {
	list := make([]task.BizType, len(cfg.BizTypes))
	for i, b := range cfg.BizTypes {
		list[i] = bizType(b)
	}
	return task.NewTypes(list...)
}

func bizType(b configs.BizType) task.BizType {
	return task.BizType{
		ID: b.ID, Name: b.Name, Mode: task.Mode(b.Mode), Processor: b.Processor,
		Workers: b.Workers, Timeout: b.Timeout, MaxRetries: b.MaxRetries, Cuts: b.Cuts,
		BackoffMin: b.Backoff.Min, BackoffMax: b.Backoff.Max, ExpireAfter: b.ExpireAfter,
		OnExpire: task.OnExpire(b.OnExpire), RateLimit: b.RateLimit, MaxRunning: b.MaxRunning, CatchUp: b.CatchUp,
		Coalesce: b.Coalesce == configs.CoalesceBizID,
		Pull:     b.Processor == configs.ProcessorPull, TTR: b.Pull.TTR, MaxInFlight: b.Pull.MaxInFlight,
	}
}

// builtLane is a lane with the configuration that it was built from.
type builtLane struct {
	cfg  configs.BizType
	lane *worker.Lane
}

// buildLanes builds the lanes of a configuration. Unchanged business types keep their lanes.
func (a *App) buildLanes(cfg configs.Config) (map[uint64]builtLane, error) {
	built := make(map[uint64]builtLane, len(cfg.BizTypes))
	for _, b := range cfg.BizTypes {
		if have, ok := a.lanes[b.ID]; ok && reflect.DeepEqual(have.cfg, b) {
			built[b.ID] = have
			continue
		}
		settings, err := a.settings(cfg, b)
		if err != nil {
			return nil, err
		}
		p, err := a.registry.Build(bizType(b), settings)
		if err != nil {
			return nil, err
		}
		if p, err = a.opts.wrap(p); err != nil {
			return nil, fmt.Errorf("biz_type %s: %w", b.Name, err)
		}
		built[b.ID] = builtLane{b, &worker.Lane{BizType: bizType(b), Processor: p}}
	}
	return built, nil
}

// settings are those of the processor of a business type, if it ships.
func (a *App) settings(cfg configs.Config, b configs.BizType) (any, error) {
	switch b.Processor {
	case configs.ProcessorWebhook:
		w := b.Webhook
		return webhook.Config{URL: w.URL, Secret: w.Secret, PreviousSecret: w.PreviousSecret, Timeout: w.Timeout, Batch: w.Batch,
			Dial: a.opts.outside.Dial}, nil
	case configs.ProcessorKafka:
		c, err := a.kafkaCluster(cfg, b.Kafka.Cluster)
		return kafka.Config{Cluster: c, Topic: b.Kafka.Topic, Key: kafka.Key(b.Kafka.Key), Observer: a.metrics}, err
	}
	return nil, nil
}

func (a *App) kafkaCluster(cfg configs.Config, name string) (kafka.Cluster, error) {
	c, _ := cfg.Kafka.Clusters.Find(name)
	client, err := a.tlsClient(kafkaSection(name), c.TLS)
	return kafkaCluster(c, client, brokerDial, a.opts.outside.Dial), err
}

func kafkaSection(cluster string) string { return "kafka.clusters." + cluster + ".tls" }

// brokerDial bounds a connect to a broker, handshake included.
const brokerDial = 10 * time.Second

func kafkaCluster(c configs.KafkaCluster, client *tlsclient.Client, timeout time.Duration, dial outside.Dial) kafka.Cluster {
	return kafka.Cluster{
		Name: c.Name, Brokers: c.Brokers, Dial: client.Dialer(timeout, dial),
		SASL: c.SASL.Mechanism, Username: c.SASL.Username, Password: c.SASL.Password,
	}
}

func laneList(built map[uint64]builtLane) []*worker.Lane {
	list := make([]*worker.Lane, 0, len(built))
	for _, b := range built {
		list = append(list, b.lane)
	}
	return list
}

func (a *App) newLimits(owned owners) *limits.Limits {
	cfg := limits.Config{Partitions: a.layout.Partitions, Ownership: owned}
	if a.cfg.Cluster.Provider == configs.ProviderConsul {
		cfg.Gap = a.cfg.Cluster.Consul.TTL
	}
	return limits.New(cfg)
}

// buildTracing makes the exporter of spans if there is a collector.
func (a *App) buildTracing() error {
	if a.cfg.Tracing.OTLP == "" {
		return nil
	}
	var err error
	a.spans, err = otlp.New(otlp.Config{
		Address: a.cfg.Tracing.OTLP, Node: a.node, Version: a.opts.version, Observer: a.metrics, Dial: a.opts.outside.Dial,
		Logger: a.component("tracing"),
	})
	if err != nil {
		return fmt.Errorf("tracing.otlp: %w", err)
	}
	a.tracer = tracing.New(a.spans, a.cfg.Tracing.Sample)
	return nil
}
