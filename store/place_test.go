package store_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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
		return store.Config{Driver: store.SQLite, Layout: layout, Dir: t.TempDir()}
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
	var databases []migrations.Database
	for i := range cfg.Layout.Databases {
		f.hands = append(f.hands, byHand(t, cfg, i))
		databases = append(databases, migrations.Database{Index: i, DB: f.hands[i]})
	}
	require.NoError(t, migrations.Up(t.Context(), migrations.Config{
		Dialect: migrations.Dialect(cfg.Driver), Layout: cfg.Layout, Databases: databases,
	}))
	f.Store = f.another(t, f.cfg)
	return f
}

// another opens a store, typically a second one on the same databases.
func (f *fixture) another(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// byHand opens a database for plain SQL, and makes it first where it must be made.
func byHand(t testing.TB, cfg store.Config, database int) *sql.DB {
	t.Helper()
	var db *sql.DB
	if cfg.Driver == store.SQLite {
		var err error
		db, err = sql.Open("sqlite", store.SQLiteDSN(cfg.Dir, database, false))
		require.NoError(t, err)
	} else {
		dsn, err := store.MySQLDSN(cfg, database)
		require.NoError(t, err)
		require.NoError(t, migrations.CreateDatabase(t.Context(), dsn.FormatDSN()))
		connector, err := mysql.NewConnector(dsn)
		require.NoError(t, err)
		db = sql.OpenDB(connector)
	}
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
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

// hand runs an admin's statement on the table of a shard; %s stands for the table.
func (f *fixture) hand(t testing.TB, shard int, statement string, args ...any) (changed int64) {
	t.Helper()
	res, err := f.hands[f.layout.Database(shard)].ExecContext(t.Context(),
		fmt.Sprintf(statement, sharding.TableName(f.layout.Table(shard))), args...)
	require.NoError(t, err)
	changed, err = res.RowsAffected()
	require.NoError(t, err)
	return changed
}

// setStatus moves rows by hand.
func (f *fixture) setStatus(t testing.TB, to task.Status, tasks ...task.Task) {
	t.Helper()
	for _, one := range tasks {
		if one.Status == to {
			continue // MySQL counts only rows that change
		}
		shard, _ := f.layout.ShardOf(one.JobID)
		require.EqualValues(t, 1, f.hand(t, shard, "UPDATE %s SET status=? WHERE job_id=?", int(to), f.id(one.JobID)))
	}
}

// everything reads all rows of all tables by plain SQL, past the store.
func (f *fixture) everything(t testing.TB) map[uint64]task.Task {
	t.Helper()
	all := make(map[uint64]task.Task)
	for shard := range f.layout.Shards() {
		rows, err := f.hands[f.layout.Database(shard)].QueryContext(t.Context(),
			`SELECT job_id, biz_id, biz_type, status, action_time, attribute, attempts, last_error, COALESCE(dedup_key, ''),
			gmt_create, gmt_modified FROM `+sharding.TableName(f.layout.Table(shard)))
		require.NoError(t, err)
		for rows.Next() {
			var one task.Task
			var job, biz, typ string
			var due, created, modified any
			require.NoError(t, rows.Scan(&job, &biz, &typ, &one.Status, &due, &one.Attribute, &one.Attempts, &one.LastError,
				&one.DedupKey, &created, &modified))
			one.JobID, one.BizID, one.BizType = unsigned(t, job), unsigned(t, biz), unsigned(t, typ)
			one.ActionTime, one.Created, one.Modified = moment(t, due), moment(t, created), moment(t, modified)
			require.NotContains(t, all, one.JobID, "job_id in two tables")
			all[one.JobID] = one
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	return all
}

// unsigned reads an id: SQLite keeps the two's complement.
func unsigned(t testing.TB, text string) uint64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return uint64(n)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

const sqliteTime = "2006-01-02 15:04:05.000"

func moment(t testing.TB, v any) time.Time {
	if at, ok := v.(time.Time); ok {
		return at
	}
	at, err := time.Parse(sqliteTime, v.(string))
	require.NoError(t, err)
	return at
}

// id and at are parameters of statements by hand.
func (f *fixture) id(v uint64) any {
	if f.cfg.Driver == store.SQLite {
		return int64(v)
	}
	return v
}

func (f *fixture) at(t time.Time) any {
	if f.cfg.Driver == store.SQLite {
		return t.UTC().Format(sqliteTime)
	}
	return t
}

// block keeps all writers out of a database until release.
func (f *fixture) block(t testing.TB, database int) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := f.hands[database].Conn(ctx)
	require.NoError(t, err)
	begin, end := "BEGIN IMMEDIATE", "ROLLBACK"
	if f.cfg.Driver == store.MySQL {
		begin, end = "LOCK TABLES", "UNLOCK TABLES"
		for table := range f.layout.TablesPerDatabase {
			begin += " " + sharding.TableName(table) + " WRITE,"
		}
		begin = begin[:len(begin)-1]
	}
	_, err = conn.ExecContext(ctx, begin)
	require.NoError(t, err)
	return func() {
		_, err := conn.ExecContext(ctx, end)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
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
