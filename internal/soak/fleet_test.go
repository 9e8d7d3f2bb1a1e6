package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// The business types, one for each engine.
var bizTypes = []string{"scanned", "timed"}

// fleet is a cluster and its servers.
type fleet struct {
	t     testing.TB
	cfg   configs.Config // what the nodes have in common
	dir   string
	http  *http.Client
	nodes []*node
}

// newFleet describes a cluster on the shared MariaDB and Redis, and on a Consul; no node runs yet. What it
// is to have instead of 64 partitions is a change.
func newFleet(t testing.TB, consul, prefix string, nodes int, changes ...func(*configs.Config)) *fleet {
	t.Helper()
	db, redis := testrig.MySQL(t), testrig.Redis(t)
	cfg := configs.Default()
	cfg.HTTP.Listen = "127.0.0.1:0"
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.TablesPerDatabase = 16
	cfg.Store.MySQL.DSN = db.DSN()
	cfg.Store.MySQL.MaxOpenConns = 4
	cfg.Cluster.Provider = configs.ProviderConsul
	cfg.Cluster.Partitions = 64
	cfg.Cluster.Consul.Address = consul
	cfg.Cluster.Consul.Prefix = prefix
	cfg.Redis.Addrs = []string{redis.Addr()}
	cfg.Redis.Prefix = redis.Prefix()
	cfg.Scan.Schedule = "@every 2s"
	cfg.Scan.Lookahead = 2 * time.Second
	cfg.BizTypes = nil
	for i, mode := range []string{configs.ModeScan, configs.ModeRedis} {
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Mode, b.Processor = uint64(i+1), bizTypes[i], mode, "ledger"
		cfg.BizTypes = append(cfg.BizTypes, b)
	}
	for _, change := range changes {
		change(&cfg)
	}
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))

	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	f := &fleet{t: t, cfg: cfg, dir: t.ArtifactDir(), http: &http.Client{Transport: transport}}
	for i := range nodes {
		n := &node{fleet: f, name: fmt.Sprintf("node%d", i+1), cfg: cfg, lines: map[string]*testrig.Proxy{
			"consul": testrig.StartProxy(t, consul),
			"mysql":  testrig.StartProxy(t, db.Addr()),
			"redis":  testrig.StartProxy(t, redis.Addr()),
		}}
		n.cfg.Node.Name = n.name
		n.cfg.Cluster.Consul.Address = n.lines["consul"].Addr()
		n.cfg.Store.MySQL.DSN = strings.Replace(cfg.Store.MySQL.DSN, db.Addr(), n.lines["mysql"].Addr(), 1)
		n.cfg.Redis.Addrs = []string{n.lines["redis"].Addr()}
		f.nodes = append(f.nodes, n)
	}
	return f
}

// node is one place in the cluster, in which one process after the other lives.
type node struct {
	fleet *fleet
	name  string
	cfg   configs.Config
	lines map[string]*testrig.Proxy // by server
	proc  *child.Process
	lives []*life

	mu     sync.Mutex
	client *client.Client // nil while it is down
	serves *life          // whose API that is
}

// life is one process of a node.
type life struct {
	node  *node
	dir   string
	ended time.Time // zero: not yet
}

func (l *life) String() string { return filepath.Base(l.dir) }

// start starts a process and waits until it listens.
func (n *node) start() {
	t := n.fleet.t
	t.Helper()
	n.begin()()
}

// begin starts a process; the function that it gives waits until it listens.
func (n *node) begin() (await func()) {
	t := n.fleet.t
	t.Helper()
	l := &life{node: n, dir: filepath.Join(n.fleet.dir, fmt.Sprintf("%s.%d", n.name, len(n.lives)+1))}
	require.NoError(t, os.Mkdir(l.dir, 0o755))
	raw, err := json.Marshal(n.cfg)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, configFile), raw, 0o600))
	logFile, err := os.Create(filepath.Join(l.dir, "log"))
	require.NoError(t, err)
	defer logFile.Close()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+l.dir)
	cmd.Stdout, cmd.Stderr = in, logFile
	n.proc, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	proc := n.proc
	t.Cleanup(func() { _ = proc.Signal(syscall.SIGKILL); <-proc.Done() })
	n.lives = append(n.lives, l)
	return func() {
		t.Helper()
		defer out.Close()
		addr, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err, "%s did not start:\n%s", n.name, l.tail())
		n.setClient(client.New(strings.TrimSpace(addr), client.WithHTTPClient(n.fleet.http)))
	}
}

func (n *node) life() *life { return n.lives[len(n.lives)-1] }

func (n *node) setClient(c *client.Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.client, n.serves = c, n.life()
}

func (n *node) api() *client.Client {
	c, _ := n.now()
	return c
}

// now is the process that can be asked, and how; nil: there is none.
func (n *node) now() (*client.Client, *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client, n.serves
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	n.setClient(nil)
	require.NoError(n.fleet.t, n.proc.Signal(syscall.SIGKILL))
	<-n.proc.Done()
	n.life().ended = time.Now()
}

// stop ends the process with SIGTERM, after which it must answer that all is recorded.
func (n *node) stop() {
	t := n.fleet.t
	t.Helper()
	require.NoError(t, n.proc.Signal(syscall.SIGTERM))
	// Whoever asks meanwhile is answered, or refused.
	<-n.proc.Done()
	n.setClient(nil)
	n.life().ended = time.Now()
	require.NoError(t, n.proc.Wait(), "%s did not drain:\n%s", n.life(), n.life().tail())
}

// startAll starts all nodes at once.
func (f *fleet) startAll() {
	f.t.Helper()
	var waits []func()
	for _, n := range f.nodes {
		waits = append(waits, n.begin())
	}
	for _, await := range waits {
		await()
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

// tail is the end of a process's log.
func (l *life) tail() string {
	raw, _ := os.ReadFile(filepath.Join(l.dir, "log"))
	return string(raw[max(0, len(raw)-4000):])
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
func (f *fleet) any(but *node) *node {
	list := f.up()
	if i := slices.Index(list, but); i >= 0 && len(list) > 1 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		return nil
	}
	return list[rand.IntN(len(list))]
}

// anyAPI gives the API of a node that runs; nil: there is none.
func (f *fleet) anyAPI() *client.Client {
	if n := f.any(nil); n != nil {
		return n.api()
	}
	return nil
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
		<-time.After(20 * time.Millisecond) // nobody tells: it has to be asked for
	}
}

// broken says what keeps the cluster from being whole.
func (f *fleet) broken() string {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Second)
	defer cancel()
	up := f.up()
	for _, n := range up {
		c, err := n.api().Cluster(ctx)
		if err != nil {
			return fmt.Sprintf("%s: %v", n.name, err)
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
		fmt.Fprintf(&text, "--- %s\n%s\n", n.life(), n.life().tail())
	}
	return text.String()
}
