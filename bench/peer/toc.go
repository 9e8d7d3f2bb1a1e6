package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Toc is the product: one node, or several in this process that meet in Consul.
type Toc struct {
	driver
	layout   Layout
	mode     string
	overHTTP bool
	pulled   bool // consumers lease the tasks
	nodes    int  // 0: one, that needs no Consul
	cfg      configs.Config
	running  []*app.App
	client   *http.Client
}

// NewToc makes the product with an engine (configs.ModeScan, configs.ModeRedis) on
// a layout. overHTTP submits by package client instead of by calls in process.
func NewToc(mode string, l Layout, overHTTP bool) *Toc {
	return &Toc{mode: mode, layout: l, overHTTP: overHTTP}
}

// NewNodes makes the product with so many nodes that meet in Consul. They share
// the callers of a Load.
func NewNodes(mode string, l Layout, nodes int) *Toc {
	return &Toc{mode: mode, layout: l, nodes: nodes}
}

// NewPulled makes the product with consumers that lease the tasks and settle them, instead of a processor.
func NewPulled(mode string, l Layout) *Toc { return &Toc{mode: mode, layout: l, pulled: true} }

// Info implements Peer.
func (p *Toc) Info() Info {
	i := Info{
		Name: "toc/" + p.mode + "/" + p.layout.Name, Parts: everything,
		Settings: "the defaults: 64 workers, 15 connections a database",
		Durable:  p.layout.durable(),
		Precise:  "milliseconds",
	}
	if p.layout.Tables > 0 {
		i.Parts |= Restarts | Purges
	}
	if p.mode == configs.ModeScan {
		i.Parts |= Grows
	}
	switch {
	case p.overHTTP:
		i.Name += "/http"
		i.Parts = Submits | Batches
		i.Settings += "; submits by package client, HTTP/1.1 on loopback"
	case p.pulled:
		i.Name += "/pull"
		i.Parts = Submits | Batches | Fires
		i.Settings += fmt.Sprintf("; %d consumers lease and settle over HTTP/1.1 on loopback, up to %d tasks at a time", pullers, pullSize)
	case p.nodes > 0:
		i.Name += fmt.Sprintf("/nodes-%d", p.nodes)
		i.Parts = Clusters
		i.Settings += fmt.Sprintf("; nodes in one process: %d, provider consul", p.nodes)
	}
	if p.layout.Tables == 0 {
		i.Settings += "; the embedded Redis"
	}
	return i
}

// Version implements Peer.
func (p *Toc) Version(ctx context.Context, _ Env) (string, error) {
	kinds := []server.Kind{}
	if p.layout.Tables > 0 {
		kinds = append(kinds, server.MariaDB)
		if p.mode == configs.ModeRedis {
			kinds = append(kinds, server.Redis)
		}
	}
	if p.nodes > 0 {
		kinds = append(kinds, server.Consul)
	}
	parts := []string{"toc, this tree"}
	for _, k := range kinds {
		v, err := k.Version(ctx)
		if err != nil {
			return "", err
		}
		parts = append(parts, v)
	}
	return strings.Join(parts, "; "), nil
}

// Up implements Peer. The product's processors run from here on.
func (p *Toc) Up(ctx context.Context, env Env) error {
	cfg, err := p.layout.config(ctx, &p.driver, env)
	if err != nil {
		return err
	}
	cfg.BizTypes[0].Mode = p.mode
	if env.Retention > 0 {
		cfg.Store.Retention = env.Retention
	}
	if p.pulled {
		cfg.BizTypes[0].Processor = configs.ProcessorPull
	}
	if p.layout.Tables > 0 && p.mode == configs.ModeRedis {
		s, err := p.start(ctx, server.Redis, env)
		if err != nil {
			return err
		}
		cfg.Redis.Addrs = []string{s.Addr}
	}
	if p.nodes > 0 {
		s, err := p.start(ctx, server.Consul, env)
		if err != nil {
			return err
		}
		cfg.Cluster.Provider, cfg.Cluster.Consul.Address = configs.ProviderConsul, s.Addr
	}
	p.cfg = cfg
	p.client = &http.Client{Timeout: 10 * time.Second}
	p.onDown(func() error { p.client.CloseIdleConnections(); return nil })
	for n := range max(1, p.nodes) {
		cfg.Node.Name = fmt.Sprintf("node-%d", n)
		if err := p.run(ctx, cfg); err != nil {
			return err
		}
	}
	p.put, p.place = p.inProcess, placeOf(cfg)
	if p.overHTTP {
		c := client.New(p.running[0].Addr())
		p.onDown(func() error { c.CloseIdleConnections(); return nil })
		p.put = func(ctx context.Context, _ int, jobs []job) error { return submitHTTP(ctx, c, jobs) }
	}
	return p.balanced(ctx)
}

// placeOf numbers the tables so that neighbours are in different databases: each
// caller then fills another one.
func placeOf(cfg configs.Config) func(biz uint64) int {
	l := sharding.Layout{Databases: cfg.Store.Databases, TablesPerDatabase: cfg.Store.TablesPerDatabase}
	return func(biz uint64) int {
		shard := l.Shard(biz)
		return l.Table(shard)*l.Databases + l.Database(shard)
	}
}

func (p *Toc) run(ctx context.Context, cfg configs.Config) error {
	ready := make(chan struct{})
	options := []app.Option{app.WithLogger(logger()), app.WithReady(func(string) { close(ready) })}
	if !p.pulled {
		options = append(options, app.WithProcessor(bizName, noting{p}))
	}
	a, err := app.New(cfg, options...)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(work) }()
	select {
	case <-ready:
		p.running = append(p.running, a)
		p.onDown(func() error { cancel(); return <-ended })
		return nil
	case err := <-ended:
		cancel()
		return errors.Join(errors.New("the center did not start"), err)
	}
}

// balanced waits until each node owns its part of the partitions.
func (p *Toc) balanced(ctx context.Context) error {
	if p.nodes == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		least, total := -1.0, 0.0
		for _, a := range p.running {
			n, err := p.metric(ctx, a, "toc_partitions_owned", "")
			if err != nil {
				return err
			}
			if total += n; least < 0 || n < least {
				least = n
			}
		}
		if total == 256 && least >= 0.75*total/float64(p.nodes) {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the nodes did not share the partitions: one has %.0f of %.0f", least, total)
		}
	}
}

// noting is the processor of the benchmark: it notes the moment and is done.
type noting struct{ p *Toc }

func (n noting) Process(_ context.Context, t task.Task) error {
	n.p.fired(t.ActionTime, t.BizID)
	return nil
}

func (n noting) ProcessBatch(_ context.Context, tasks []task.Task) []error {
	for i := range tasks {
		n.p.fired(tasks[i].ActionTime, tasks[i].BizID)
	}
	return nil
}

func (p *Toc) inProcess(ctx context.Context, caller int, jobs []job) error {
	tasks := p.running[caller%len(p.running)].Tasks()
	if len(jobs) == 1 {
		_, err := tasks.Submit(ctx, submit(jobs[0]))
		return err
	}
	list := make([]client.Submit, len(jobs))
	for i, j := range jobs {
		list[i] = submit(j)
	}
	results, err := tasks.SubmitBatch(ctx, list)
	for _, s := range results {
		if s.Err != nil {
			return s.Err
		}
	}
	return err
}

func submit(j job) client.Submit {
	return client.Submit{BizType: bizName, BizID: j.biz, ActionTime: j.due, Attribute: Attribute}
}

func submitHTTP(ctx context.Context, c *client.Client, jobs []job) error {
	list := make([]client.Submit, len(jobs))
	for i, j := range jobs {
		list[i] = client.Submit{BizType: bizName, BizID: j.biz, ActionTime: j.due, Attribute: Attribute}
	}
	if len(list) == 1 {
		_, err := c.Submit(ctx, list[0])
		return err
	}
	results, err := c.SubmitBatch(ctx, list)
	for _, r := range results {
		if err == nil && r.Err != nil {
			err = fmt.Errorf("%s: %s", r.Err.Field, r.Err.Message)
		}
	}
	return err
}

// Work implements Peer: processors run already.
func (p *Toc) Work(context.Context) error {
	if !p.pulled {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range pullers {
		c := client.New(p.running[0].Addr())
		acks := make(chan []client.Settlement, 1)
		wg.Go(func() { defer close(acks); p.pull(ctx, c, acks) })
		wg.Go(func() {
			defer c.CloseIdleConnections()
			for list := range acks {
				if _, err := c.Settle(context.WithoutCancel(ctx), list...); err != nil {
					logger().Error("not settled", "error", err) // what is missing shows
				}
			}
		})
	}
	p.onDown(func() error { stop(); wg.Wait(); return nil })
	return nil
}

const (
	pullers  = 4
	pullSize = 256
)

// pull leases until ctx ends. What was leased is settled while it leases more.
func (p *Toc) pull(ctx context.Context, c *client.Client, acks chan<- []client.Settlement) {
	for ctx.Err() == nil {
		got, err := c.Lease(ctx, bizName, client.AskLease{Max: pullSize, Wait: 20 * time.Second})
		if err != nil || len(got.Tasks) == 0 {
			continue
		}
		list := make([]client.Settlement, len(got.Tasks))
		for i, t := range got.Tasks {
			p.fired(t.Task.ActionTime.Time(), t.Task.BizID.Number)
			list[i] = client.Settlement{Lease: t.Lease.String(), Do: client.Ack}
		}
		acks <- list
	}
}

// Done implements Peer, by the metric that counts durable outcomes.
func (p *Toc) Done(ctx context.Context) (int, error) {
	n, err := p.Metric(ctx, "toc_runs_total", `outcome="processed"`)
	return int(n), err
}

// Rows implements Purged.
func (p *Toc) Rows(ctx context.Context) (n int, err error) {
	list, err := app.Databases(p.cfg, true)
	if err != nil {
		return 0, err
	}
	for _, d := range list {
		tables := make([]string, p.cfg.Store.TablesPerDatabase)
		for i := range tables {
			tables[i] = "SELECT COUNT(*) AS n FROM " + sharding.TableName(i)
		}
		var rows int
		err = errors.Join(err, d.DB.QueryRowContext(ctx, "SELECT SUM(n) FROM ("+strings.Join(tables, " UNION ALL ")+") AS t").Scan(&rows))
		n += rows
	}
	return n, errors.Join(err, app.CloseDatabases(list))
}

// Metric adds up all series of a metric that have the label, over all nodes.
func (p *Toc) Metric(ctx context.Context, name, label string) (sum float64, err error) {
	for _, a := range p.running {
		n, err := p.metric(ctx, a, name, label)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (p *Toc) metric(ctx context.Context, a *app.App, name, label string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Addr()+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("/metrics: %s", res.Status)
	}
	sum := 0.0
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		base, labels, _ := strings.Cut(series, "{")
		if !ok || base != name || !strings.Contains(labels, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("/metrics: %s: %w", name, err)
		}
		sum += n
	}
	return sum, lines.Err()
}
