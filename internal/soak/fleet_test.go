package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
	"github.com/timeoutcenter/toc/sharding"
)

// The business types. In the beginning those with an even index are scanned, the others are on Redis.
var bizTypes = []string{"scan-a", "redis-a", "scan-b", "redis-b"}

// fleet is a center, of one node or more.
type fleet struct {
	t     testing.TB
	cfg   configs.Config // what the nodes have in common
	dir   string
	http  *http.Client
	nodes []*node
	// ended has a fault for each process that a poison has ended.
	ended []*audit.Fault
}

// servers are what a fleet works with. Each node reaches them by lines of its own; a Redis Cluster it reaches directly.
type servers struct {
	mysql        *testrig.MySQLServer    // nil: SQLite files, or databases
	databases    []*testrig.PrivateMySQL // share the databases; reached directly, as a Redis is then
	redis        []string                // one: a single server; more: a cluster; none: embedded
	redisPrefix  string
	consul       string // empty: a single node
	consulPrefix string
}

// sharedServers are the servers that all tests share, and a Consul.
func sharedServers(t testing.TB, consul, prefix string) servers {
	t.Helper()
	redis := testrig.Redis(t)
	return servers{mysql: testrig.MySQL(t), redis: []string{redis.Addr()}, redisPrefix: redis.Prefix(), consul: consul, consulPrefix: prefix}
}

// maxRetries is small, so that tasks die within a soak.
const maxRetries = 4

// How long a failed task pauses.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = time.Second
)

// newFleet describes a center on servers; no node runs yet. A change is what it has instead of 64 partitions.
func newFleet(t testing.TB, s servers, nodes int, changes ...func(*configs.Config)) *fleet {
	t.Helper()
	cfg := configs.Default()
	cfg.HTTP.Listen = "127.0.0.1:0"
	cfg.Store.TablesPerDatabase = 16
	cfg.Cluster.Partitions = 64
	cfg.Redis.Prefix = s.redisPrefix
	cfg.Redis.SweepAfter = 2 * time.Second
	cfg.Scan.Schedule = "@every 2s"
	cfg.Scan.Lookahead = 4 * time.Second // well beyond windows.hand, so that what waits in memory is changed there
	cfg.BizTypes = nil
	for i, name := range bizTypes {
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Mode, b.Processor = uint64(i+1), name, []string{configs.ModeScan, configs.ModeRedis}[i%2], "ledger"
		b.Timeout, b.MaxRetries, b.Workers = traffic.RunTimeout, maxRetries, 32
		b.Backoff = configs.Backoff{Min: backoffMin, Max: backoffMax}
		cfg.BizTypes = append(cfg.BizTypes, b)
	}
	switch {
	case s.mysql != nil:
		cfg.Store.Driver = configs.DriverMySQL
		cfg.Store.MySQL.DSN = s.mysql.DSN()
		cfg.Store.MySQL.MaxOpenConns = 4
	case s.databases != nil:
		cfg.Store.Driver = configs.DriverMySQL
		for d := range cfg.Store.Databases {
			cfg.Store.MySQL.DSNs = append(cfg.Store.MySQL.DSNs, fmt.Sprintf(s.databases[d%len(s.databases)].DSN(), d))
		}
		cfg.Store.MySQL.MaxOpenConns = 4
	default:
		cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
	}
	if s.consul != "" {
		cfg.Cluster.Provider = configs.ProviderConsul
		cfg.Cluster.Consul.Address = s.consul
		cfg.Cluster.Consul.Prefix = s.consulPrefix
	}
	if len(s.redis) > 0 {
		cfg.Redis.Addrs = s.redis
	}
	if len(s.redis) > 1 {
		cfg.Redis.Mode = configs.RedisCluster
	}
	for _, change := range changes {
		change(&cfg)
	}
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))

	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	f := &fleet{t: t, cfg: cfg, dir: t.ArtifactDir(), http: &http.Client{Transport: transport}}
	for i := range nodes {
		n := &node{fleet: f, name: fmt.Sprintf("node%d", i+1), cfg: cfg, lines: map[string]*testrig.Proxy{}}
		n.cfg.Node.Name = n.name
		n.cfg.BizTypes = slices.Clone(cfg.BizTypes)
		if s.consul != "" {
			n.lines["consul"] = testrig.StartProxy(t, s.consul)
			n.cfg.Cluster.Consul.Address = n.lines["consul"].Addr()
		}
		if s.mysql != nil {
			n.lines["mysql"] = testrig.StartProxy(t, s.mysql.Addr())
			n.cfg.Store.MySQL.DSN = strings.Replace(cfg.Store.MySQL.DSN, s.mysql.Addr(), n.lines["mysql"].Addr(), 1)
		}
		if len(s.redis) == 1 && s.databases == nil {
			n.lines["redis"] = testrig.StartProxy(t, s.redis[0])
			n.cfg.Redis.Addrs = []string{n.lines["redis"].Addr()}
		}
		f.nodes = append(f.nodes, n)
	}
	return f
}

func (f *fleet) layout() sharding.Layout {
	return sharding.Layout{Databases: f.cfg.Store.Databases, TablesPerDatabase: f.cfg.Store.TablesPerDatabase, Partitions: f.cfg.Cluster.Partitions}
}

// startAll starts all nodes at once.
func (f *fleet) startAll() {
	f.t.Helper()
	for _, n := range f.nodes {
		n.begin()
	}
	for _, n := range f.nodes {
		n.awaitListening()
	}
}

func (f *fleet) stopAll() {
	f.t.Helper()
	for _, n := range f.nodes {
		if n.api() != nil {
			n.stop()
		}
	}
}

// rest lets time go by, and starts again what has ended by itself meanwhile.
func (f *fleet) rest(d time.Duration) {
	f.t.Helper()
	for until := time.Now().Add(d); ; {
		for _, n := range f.nodes {
			n.revive()
		}
		left := time.Until(until)
		if left <= 0 {
			return
		}
		<-time.After(min(left, 50*time.Millisecond))
	}
}

// up lists the nodes whose process runs, as far as one can know.
func (f *fleet) up() (list []*node) {
	for _, n := range f.nodes {
		if n.api() != nil {
			list = append(list, n)
		}
	}
	return list
}

// any gives a node that runs, other than the given one where there is a choice.
func (f *fleet) any(draw func(n int) int, but *node) *node {
	list := f.up()
	if i := slices.Index(list, but); i >= 0 && len(list) > 1 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		return nil
	}
	return list[draw(len(list))]
}

// anyAPI gives the API of a node that runs; nil: there is none.
func (f *fleet) anyAPI() *client.Client {
	if n := f.any(rand.IntN, nil); n != nil {
		return n.api()
	}
	return nil
}

// traffic is the fleet as traffic sees it.
func (f *fleet) traffic(long bool) traffic.Center {
	list, err := app.Databases(f.cfg, false)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, app.CloseDatabases(list)) })
	c := traffic.Center{Layout: f.layout(), Types: f.cfg.BizTypes, HTTP: f.http}
	for _, d := range list {
		d.DB.SetMaxOpenConns(8)
		c.DBs = append(c.DBs, d.DB)
	}
	c.Any = func(r *rand.Rand, but string) *traffic.Target {
		i := slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == but })
		var other *node
		if i >= 0 {
			other = f.nodes[i]
		}
		n := f.any(r.IntN, other)
		if n == nil {
			return nil
		}
		return n.now()
	}
	c.LockFor = func(r *rand.Rand) time.Duration {
		switch {
		case f.cfg.Store.Driver == configs.DriverSQLite: // it has no locks of rows: all of the file waits
			return 500*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))
		case long:
			return 5*time.Second + time.Duration(r.Int64N(int64(15*time.Second)))
		}
		return 3*time.Second + time.Duration(r.Int64N(int64(3*time.Second)))
	}
	return c
}

// steady is for how long the cluster must be whole to count as whole again.
const steady = time.Second

// wholeAgainIn is for how long that is waited for.
const wholeAgainIn = 2 * time.Minute

// awaitWhole waits until all running nodes agree that they own all partitions, each its share, and have done so for a
// while. It gives the time at which that began. When it does not happen the test has failed, but the verdict is still
// worth having.
func (f *fleet) awaitWhole() time.Time {
	f.t.Helper()
	deadline := time.Now().Add(wholeAgainIn)
	var since time.Time
	for {
		now := time.Now()
		switch why := f.broken(); {
		case why != "" && now.After(deadline):
			f.t.Errorf("the cluster is not whole again after %s: %s\n%s", wholeAgainIn, why, f.tails())
			return now
		case why != "":
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= steady:
			return since
		}
		f.rest(20 * time.Millisecond) // nobody tells: it has to be asked for
	}
}

// broken says what keeps the cluster from being whole.
func (f *fleet) broken() string {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Second)
	defer cancel()
	for _, n := range f.nodes {
		if n.api() == nil && !n.down {
			return n.name + " starts"
		}
	}
	up := f.up()
	for _, n := range up {
		c, err := n.api().Cluster(ctx)
		if err != nil {
			return fmt.Sprintf("%s: %v", n.name, err)
		}
		if why := n.otherModes(ctx); why != "" {
			return why
		}
		owners := make([]int, c.Partitions)
		fair := c.Partitions / len(up)
		names := map[string]bool{}
		for _, m := range c.Nodes {
			names[m.Name] = true
			for _, p := range m.Partitions {
				owners[p]++
			}
			if k := len(m.Partitions); k < fair*8/10 || k > (fair+1)*12/10 {
				return fmt.Sprintf("%s says that %s has %d of %d partitions", n.name, m.Name, k, c.Partitions)
			}
		}
		if len(names) != len(up) {
			return fmt.Sprintf("%s knows %d nodes of %d", n.name, len(names), len(up))
		}
		for _, other := range up {
			if !names[other.name] {
				return fmt.Sprintf("%s does not know %s", n.name, other.name)
			}
		}
		for p, k := range owners {
			if k != 1 {
				return fmt.Sprintf("%s says that partition %d has %d owners", n.name, p, k)
			}
		}
	}
	return ""
}

func (f *fleet) tails() string {
	var text strings.Builder
	for _, n := range f.nodes {
		fmt.Fprintf(&text, "--- %s\n%s\n", n.process(), n.process().tail())
	}
	return text.String()
}

// otherModes says which mode of a type the node has not taken in yet.
func (n *node) otherModes(ctx context.Context) string {
	list, err := n.api().BizTypes(ctx)
	if err != nil {
		return fmt.Sprintf("%s: %v", n.name, err)
	}
	for _, b := range list {
		if want := n.cfg.BizTypes[b.ID-1].Mode; b.Mode != want {
			return fmt.Sprintf("%s has %s in mode %s, not %s", n.name, b.Name, b.Mode, want)
		}
	}
	return ""
}
