// Package virtual runs whole centers in virtual time: real app.Apps, one or several, in a testing/synctest bubble.
//
// Nothing of a center is replaced. Its surroundings stand in memory or in a separate directory:
//
//	databases   SQLite files; package database/sql and the store above it are the real ones
//	Redis       one miniredis
//	Consul      package fakeconsul
//	network     package memnet
//
// Time passes only when all goroutines wait, so days take milliseconds, and every wait of the code is as long as it says.
// A statement or a script takes no time, unless a verb says so.
//
// A World is the servers, a Node is a center. Both have verbs for faults. All of it must be used in the bubble's goroutines.
// SQL's own functions of time (CURRENT_TIMESTAMP) show the machine's time: the store's statements use none of them.
package virtual

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/sys/unix"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// Start is when a World begins.
var Start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// The servers in the network.
const (
	redisHost  = "redis"
	redisAddr  = redisHost + ":6379"
	consulAddr = "consul:8500"
)

// databaseHost is the name of a database in the network.
func databaseHost(d int) string { return fmt.Sprintf("database-%d", d) }

// Config says what a World has.
type Config struct {
	// Configure changes the configuration of a node before its start. It begins as one database with one table and one
	// partition, in a cluster with four tables and four partitions, without business types.
	Configure func(c *configs.Config)
	// Options are further options of a node. The processors that they give stop at a crash: none is called after it.
	Options func(node string) []app.Option
	// Reloads is whether nodes have a configuration file, for World.Reload. They look at it each second.
	Reloads bool
	// HTTP is whether a node without Consul has its HTTP API, too: at its name, port 8080.
	HTTP bool
	// Consul makes the nodes a cluster, which shares the files. Without it there is one node at a time.
	Consul bool
	// Log gets the log of all nodes, as text. Nil keeps it, and shows it if the test fails; io.Discard spares the work.
	Log io.Writer
	// Level is the lowest level of records in the log.
	Level slog.Level
}

// World is the servers of one center, and its nodes.
type World struct {
	t      testing.TB
	cfg    Config
	net    *memnet.Net
	redis  *miniredis.Miniredis
	consul *fakeconsul.Consul // nil: there is none
	dir    string
	log    io.Writer
	rest   rest

	stopServers []func()

	mu        sync.Mutex
	nodes     []*Node           // all that were started
	types     []configs.BizType // of the last Reload; nil: there was none
	databases map[int]*database
	holder    *Node // has the directory; nil: none

	files sync.Mutex // held while a configuration file is written, so that the newest is the last
}

// New makes a World. It must be called in a bubble, before that has lasted a day. It ends with the test.
func New(t testing.TB, cfg Config) *World {
	t.Helper()
	w := &World{t: t, cfg: cfg, net: new(memnet.Net), dir: tempDir(t), databases: make(map[int]*database), log: cfg.Log}
	w.net.OnChange(func() { w.rest.stir(recovers) })
	if w.log == nil {
		kept := new(lockedBuffer)
		w.log = kept
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of the nodes:\n%s", kept)
			}
		})
	}
	time.Sleep(time.Until(Start))
	w.serveRedis()
	if cfg.Consul {
		w.consul = fakeconsul.New()
		w.stopServers = append(w.stopServers, w.consul.Listen(w.net.Listen(consulAddr)))
	}
	t.Cleanup(w.close)
	if cfg.Consul { // like `toc migrate` by an operator: a cluster makes no tables
		if err := app.Migrate(context.Background(), w.Config("migrate"), slog.New(slog.DiscardHandler), nil); err != nil {
			t.Fatalf("migrate: %v", err)
		}
	}
	return w
}

// logger writes the log of the nodes.
func (w *World) logger() *slog.Logger {
	if w.log == io.Discard {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: w.cfg.Level}))
}

// tempDir is a directory for database files: in memory, where the machine has one.
func tempDir(t testing.TB) string {
	t.Helper()
	const memory = "/dev/shm"
	var kind unix.Statfs_t
	if unix.Statfs(memory, &kind) == nil && kind.Type == unix.TMPFS_MAGIC {
		if dir, err := os.MkdirTemp(memory, "toc-virtual-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

// close mends all, and ends the nodes and the servers.
func (w *World) close() {
	w.MendAll()
	w.mu.Lock()
	nodes := slices.Clone(w.nodes)
	w.mu.Unlock()
	var wait sync.WaitGroup
	for _, n := range nodes {
		wait.Go(func() { _ = n.Shutdown() })
	}
	wait.Wait()
	for _, stop := range w.stopServers {
		stop()
	}
	// go-redis looks for a server that is away once a second, and sees only then that its pool is closed.
	time.Sleep(2 * time.Second)
}

// Net is the network. The nodes have their names in it, and the servers redis, consul, database-0, database-1 …
func (w *World) Net() *memnet.Net { return w.net }

// Consul is the Consul of the World; nil: it has none.
func (w *World) Consul() *fakeconsul.Consul { return w.consul }

// Redis is the Redis of the World.
func (w *World) Redis() *miniredis.Miniredis { return w.redis }

// Nodes are the nodes that run, in the order of their start.
func (w *World) Nodes() []*Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.nodes), (*Node).isOver)
}

// Config returns the configuration of a node.
func (w *World) Config(node string) configs.Config {
	c := configs.Default()
	c.BizTypes = nil
	c.Node.Name = node
	c.Store.Driver, c.Store.SQLite.Dir = configs.DriverSQLite, w.dir
	c.Store.Databases, c.Store.TablesPerDatabase, c.Cluster.Partitions = 1, 1, 1
	c.Redis.Addrs = []string{redisAddr}
	if w.consul != nil {
		c.Cluster.Provider, c.Cluster.Consul.Address, c.Cluster.Secret = configs.ProviderConsul, consulAddr, "a secret of the nodes of a World"
		c.Cluster.Partitions = 4
		c.Store.TablesPerDatabase = 4
	}
	if w.cfg.HTTP || w.consul != nil {
		c.HTTP.Listen = node + ":8080"
	}
	if w.cfg.Configure != nil {
		w.cfg.Configure(&c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.types != nil {
		c.BizTypes = w.types
	}
	return c
}

// database returns database number d.
func (w *World) database(d int) *database {
	w.mu.Lock()
	defer w.mu.Unlock()
	db := w.databases[d]
	if db == nil {
		db = &database{number: d, dir: w.dir, host: databaseHost(d)}
		w.databases[d] = db
	}
	return db
}

// hold is the flock of a process: the directory is one node's, and a crash frees it.
func (w *World) hold(n *Node) (release func() error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder != nil && w.holder != n && !w.holder.isCrashed() {
		return nil, unix.EWOULDBLOCK
	}
	w.holder = n
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.holder == n {
			w.holder = nil
		}
		return nil
	}, nil
}

// Start starts a node and waits until it takes tasks.
func (w *World) Start(name string) *Node {
	w.t.Helper()
	n := w.Launch(name)
	if err := n.Ready(context.Background()); err != nil {
		w.t.Fatalf("start of %s: %v", name, err)
	}
	return n
}

// Wait lets time pass.
func (w *World) Wait(d time.Duration) { time.Sleep(d) }

// lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
