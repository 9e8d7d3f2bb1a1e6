package store_test

import (
	"cmp"
	"context"
	"database/sql"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		holdLock() // this process is the other one of lock_test.go
		return
	}
	testrig.Main(m)
}

// small has two databases of four tables, and two tables to a partition.
var small = sharding.Layout{Databases: 2, TablesPerDatabase: 4, Partitions: 4}

// place is a kind of database that the suite runs on.
type place struct {
	driver store.Driver
	// config names databases of the test's own; they need not exist yet.
	config func(t testing.TB, layout sharding.Layout) store.Config
}

func onSQLite() place {
	return place{store.SQLite, func(t testing.TB, layout sharding.Layout) store.Config {
		return store.Config{Driver: store.SQLite, Layout: layout, Dir: testrig.MemoryDir(t)}
	}}
}

func onMySQL() place {
	return place{store.MySQL, func(t testing.TB, layout sharding.Layout) store.Config {
		return store.Config{Driver: store.MySQL, Layout: layout, DSN: testrig.MySQL(t).DSN()}
	}}
}

// fixture is a store on migrated databases, with all that a test wants beside it.
type fixture struct {
	*store.Store
	cfg    store.Config
	layout sharding.Layout
	clock  *clock    // the store's; it stands still unless moved
	hands  []*sql.DB // per database: plain SQL, as an admin has it
}

// open makes databases of the test's own and a store on them.
func (p place) open(t testing.TB, layout sharding.Layout) *fixture {
	t.Helper()
	return openFixture(t, p.config(t, layout))
}

func openFixture(t testing.TB, cfg store.Config) *fixture {
	t.Helper()
	f := &fixture{cfg: cfg, layout: cfg.Layout, clock: newClock()}
	f.cfg.Now = f.clock.Now
	f.cfg.IDs = newIDs(t, cfg.Layout, 1, f.clock)
	for i := range cfg.Layout.Databases {
		f.hands = append(f.hands, byHand(t, cfg, i))
	}
	f.migrate(t)
	f.Store = f.another(t, f.cfg)
	return f
}

func (f *fixture) migrate(t testing.TB) {
	t.Helper()
	cfg := migrations.Config{Dialect: migrations.Dialect(f.cfg.Driver), Layout: f.layout}
	for i, db := range f.hands {
		cfg.Databases = append(cfg.Databases, migrations.Database{Index: i, DB: db})
	}
	require.NoError(t, migrations.Up(t.Context(), cfg))
}

// another opens a store, typically a second one on the same databases.
func (f *fixture) another(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func newIDs(t testing.TB, layout sharding.Layout, worker int, c *clock) *sharding.IDs {
	t.Helper()
	ids, err := sharding.NewIDs(layout, worker, c.Now)
	require.NoError(t, err)
	return ids
}

// clock is a wall clock that a test sets.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC).UnixMilli())
	return c
}

func (c *clock) Now() time.Time           { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(by time.Duration) { c.ms.Add(by.Milliseconds()) }

// in gives the time so many milliseconds from now.
func (f *fixture) in(ms int) time.Time {
	return f.clock.Now().Add(time.Duration(ms) * time.Millisecond)
}

// put stores tasks that must be stored, and gives them as stored.
func (f *fixture) put(t testing.TB, tasks ...task.Task) []task.Task {
	t.Helper()
	stored := make([]task.Task, len(tasks))
	for i, r := range f.Insert(t.Context(), tasks) {
		require.NoError(t, r.Err)
		require.False(t, r.Duplicate)
		stored[i] = r.Task
	}
	return stored
}

// bizIDs gives n biz_ids of one shard.
func bizIDs(layout sharding.Layout, shard, n int) []uint64 {
	first := uint64(layout.Database(shard) + layout.Databases*layout.Table(shard))
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = first + uint64(i*layout.Shards())
	}
	return ids
}

// due reads all partitions to their ends.
func (f *fixture) due(t testing.TB, q store.Due) (list []task.Task) {
	t.Helper()
	for p := range f.layout.Partitions {
		pages := f.DuePages(p, q)
		for {
			page, err := pages.Next(t.Context())
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			list = append(list, page...)
		}
	}
	return list
}

// cancelled is a context that ended already.
func cancelled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// requireSame compares two lists without their order.
func requireSame(t testing.TB, want, got []task.Task, about ...any) {
	t.Helper()
	byID := func(a, b task.Task) int { return cmp.Compare(a.JobID, b.JobID) }
	require.Equal(t, slices.SortedFunc(slices.Values(want), byID), slices.SortedFunc(slices.Values(got), byID), about...)
}
