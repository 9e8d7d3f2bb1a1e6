package store_test

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// TestMySQLStatementsUseTheirIndex lets a table grow from nothing to many rows
// while its statistics stand still, and looks at how the server reads for each
// statement of the store: before and after a restart.
func TestMySQLStatementsUseTheirIndex(t *testing.T) {
	t.Parallel()
	server := testrig.StartMySQL(t, testrig.BufferPool("256M"))
	f := openFixture(t, store.Config{
		Driver: store.MySQL, DSN: server.DSN(),
		Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 2, Partitions: 1},
	})
	g := grow(t, f)
	g.requireStaleStatistics(t)
	rec := store.Record(f.Store)
	for _, c := range g.cases(rec) {
		g.look(t, rec, c)
	}
	server.Stop()
	server.Start()
	g.requireStaleStatistics(t)
	for _, c := range g.cases(rec) {
		g.look(t, rec, c)
	}
}

// TestSQLiteStatementsUseTheirIndex is the same for SQLite, which has no
// statistics and guesses.
func TestSQLiteStatementsUseTheirIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test keeps the machine busy for long")
	}
	t.Parallel()
	f := openFixture(t, store.Config{
		Driver: store.SQLite, Dir: t.TempDir(),
		Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 2, Partitions: 1},
	})
	g := grow(t, f)
	rec := store.Record(f.Store)
	for _, c := range g.cases(rec) {
		g.plan(t, rec, c)
	}
}

// grown is a table with many rows of every status.
type grown struct {
	*fixture
	due, dead []task.Task
	one       task.Task // with a dedup_key, and a biz_id that has no other task
}

// What the grown table holds.
const (
	rowsDue    = 20_000 // at the same moment
	rowsFuture = 10_000
	rowsDone   = 19_000
	rowsDead   = 1_000
	rowsAll    = rowsDue + rowsFuture + rowsDone + rowsDead
)

func grow(t *testing.T, f *fixture) *grown {
	t.Helper()
	batch := make([]task.Task, rowsAll)
	for i, biz := range bizIDs(f.layout, 0, rowsAll) {
		batch[i] = task.Task{BizID: biz, BizType: uint64(i % 3), ActionTime: f.in(0)}
		if i%2 == 0 {
			batch[i].DedupKey = "k"
		}
		if i >= rowsDue && i < rowsDue+rowsFuture {
			batch[i].ActionTime = f.in(1000 + i)
		}
	}
	stored := make([]task.Task, rowsAll)
	var wg sync.WaitGroup
	for part := range slices.Chunk(batch, 1000) {
		first := slices.IndexFunc(batch, func(one task.Task) bool { return one.BizID == part[0].BizID })
		wg.Go(func() {
			for i, r := range f.Insert(t.Context(), part) {
				if r.Err != nil {
					t.Error(r.Err)
				}
				stored[first+i] = r.Task
			}
		})
	}
	wg.Wait()
	g := &grown{fixture: f, due: stored[:rowsDue], dead: stored[rowsAll-rowsDead:], one: stored[rowsDue]}
	var moves []store.Move
	for i, one := range stored[rowsDue+rowsFuture:] {
		moves = append(moves, store.Move{JobID: one.JobID, To: []task.Status{task.Processed, task.Cancelled}[i%2]})
		if i >= rowsDone {
			moves[i].To = task.Dead
		}
	}
	for part := range slices.Chunk(moves, 1000) {
		_, err := f.Apply(t.Context(), 0, f.Stamp(0), part)
		require.NoError(t, err)
	}
	f.clock.advance(time.Hour) // long ago, for a purge
	return g
}

// requireStaleStatistics checks that the server's statistics are as old as the test needs.
func (g *grown) requireStaleStatistics(t *testing.T) {
	t.Helper()
	var known int
	require.NoError(t, g.hands[0].QueryRowContext(t.Context(),
		"SELECT n_rows FROM mysql.innodb_table_stats WHERE database_name=DATABASE() AND table_name=?", sharding.TableName(0)).Scan(&known))
	require.Zero(t, known)
}

// look is a call of the store, how many statements it makes, the index that each
// table must be read by, and how many rows and entries of an index may be touched.
type look struct {
	name       string
	call       func(ctx context.Context)
	statements int
	index      string
	most       int
}

func (g *grown) cases(rec *store.Recorder) []look {
	until := g.due[0].ActionTime.Add(time.Minute)
	first := task.KeyOf(&g.due[0])
	deep := task.KeyOf(&g.due[15_000])
	ids := make([]uint64, 200)
	finish := make([]store.Move, len(ids))
	for i := range ids {
		ids[i] = g.due[i*97].JobID
		finish[i] = store.Move{JobID: ids[i], To: task.Processed}
	}
	typ, pending := uint64(2), task.Pending
	page := func(q store.Due) func(context.Context) {
		return func(ctx context.Context) {
			q.Until, q.PerPage = until, 500
			_, _ = g.DuePages(0, q).Next(ctx)
		}
	}
	// unmade keeps a transaction from being made: it is looked at first.
	unmade := func(call func(context.Context)) func(context.Context) {
		return func(ctx context.Context) {
			rec.OnTransaction = func(func() error) error { return errLost }
			call(ctx)
			rec.OnTransaction = nil
		}
	}
	due, biz, primary := migrations.IndexDue, migrations.IndexBiz, migrations.IndexPrimary
	return []look{
		{"due, the first page", page(store.Due{}), 1, due, 520},
		{"due, from a place", page(store.Due{From: first}), 1, due, 520},
		{"due, from a place deep in one moment", page(store.Due{From: deep}), 1, due, 520},
		{"due, narrow", page(store.Due{From: first, Only: []uint64{1, 2, 3}, Narrow: true}), 1, due, 800},
		{"due, two pages", func(ctx context.Context) {
			pages := g.DuePages(0, store.Due{Until: until, PerPage: 500})
			_, _ = pages.Next(ctx)
			_, _ = pages.Next(ctx)
		}, 2, due, 1520},
		{"due, one biz_type", page(store.Due{Only: []uint64{typ}}), 1, due, 1600},
		{"due, without a biz_type", page(store.Due{Except: []uint64{typ}}), 1, due, 800},
		{"next due", func(ctx context.Context) { _, _, _ = g.NextDue(ctx, 0) }, 1, due, 2 * 2},
		{"load", func(ctx context.Context) { _, _ = g.Load(ctx, ids) }, 1, primary, 400},
		{"get", func(ctx context.Context) { _, _ = g.Get(ctx, g.one.JobID) }, 1, primary, 1},
		{"failed runs", func(ctx context.Context) { _, _ = g.FailedRuns(ctx, g.one.JobID) }, 1, primary, 1},
		{"finish", unmade(func(ctx context.Context) { _, _ = g.Apply(ctx, 0, g.Stamp(0), finish) }), 1, primary, 400},
		{"insert of duplicates", func(ctx context.Context) { g.Insert(ctx, []task.Task{g.one, g.due[0], g.due[2]}) }, 2, biz, 20},
		{"first", func(ctx context.Context) { _, _ = g.First(ctx, g.one.BizID, "", g.one.BizType, g.one.DedupKey) }, 1, biz, 4},
		{"list", func(ctx context.Context) { _, _ = g.List(ctx, g.one.BizID, store.Filter{Limit: 100}) }, 1, biz, 10},
		{"list, filtered", func(ctx context.Context) {
			_, _ = g.List(ctx, g.one.BizID, store.Filter{BizType: &typ, Status: &pending, After: 1, Limit: 100})
		}, 1, biz, 10},
		{"all", func(ctx context.Context) {
			_, _, _, _ = g.Walk(ctx, store.WalkFilter{BizType: &typ, To: until}, store.Place{}, 100)
		}, 1, due, 6000},
		{"upcoming", func(ctx context.Context) { _, _, _, _ = g.Upcoming(ctx, []int{0, 1}, g.clock.Now(), until, 1000) }, 1, due, 1600},
		{"superseded", func(ctx context.Context) {
			_, _ = g.Superseded(ctx, 0, []task.Task{g.one, g.due[0]}, store.Rivals{Now: until})
		}, 1, biz, 30},
		{"dead", func(ctx context.Context) { _, _, _ = g.ListDead(ctx, store.DeadFilter{}, 0, 100) }, 1, due, rowsDead + 200},
		{"dead, the next page", func(ctx context.Context) {
			_, _, _ = g.ListDead(ctx, store.DeadFilter{BizType: &typ}, g.dead[500].JobID, 100)
		}, 1, due, 2 * rowsDead},
		{"dead, counted", func(ctx context.Context) { _, _ = g.CountDead(ctx, store.DeadFilter{}) }, 1, due, rowsDead + 20},
		// At most 10,000 a table, each read, copied and counted.
		{"overdue", func(ctx context.Context) { _, _ = g.Overdue(ctx, 0, until) }, 1, due, 40_100},
		{"retrying", func(ctx context.Context) { _, _ = g.Retrying(ctx, 0, until, until) }, 1, due, 40_100},
		{"purge", unmade(func(ctx context.Context) { _, _ = g.Purge(ctx, 0, g.clock.Now()) }), 2, due, 3100},
		{"purge early", func(ctx context.Context) { _, _ = g.PurgeEarly(ctx, 0, g.clock.Now()) }, 1, due, 3100},
	}
}

// run makes a call and gives each of its statements, with the index that it is to
// read by: c's, or the primary key if it deletes. An INSERT has none: what it looks
// up is unique.
func (c look) run(t *testing.T, rec *store.Recorder, each func(s store.Statement, index string)) {
	t.Helper()
	rec.Clear()
	c.call(t.Context())
	statements := rec.Queries()
	for _, tx := range rec.Transactions() {
		statements = append(statements, tx...)
	}
	require.GreaterOrEqual(t, len(statements), c.statements, c.name)
	for _, s := range statements {
		switch {
		case strings.HasPrefix(s.SQL, "INSERT"):
			each(s, "")
		case strings.HasPrefix(s.SQL, "DELETE"):
			each(s, migrations.IndexPrimary)
		case c.index == migrations.IndexDue && strings.Contains(s.SQL, " job_id IN ("): // the rows of a page of ids
			each(s, migrations.IndexPrimary)
		default:
			each(s, c.index)
		}
	}
}

// plan looks at how SQLite would read for a call.
func (g *grown) plan(t *testing.T, rec *store.Recorder, c look) {
	t.Helper()
	looksUp := regexp.MustCompile(`^(SEARCH|SCAN) (?:timeout_task_\d+|t)\b(.*)`)
	c.run(t, rec, func(s store.Statement, index string) {
		if index == "" {
			return
		}
		rows, err := g.hands[0].QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+s.SQL, s.Args...)
		require.NoError(t, err)
		defer rows.Close()
		by, tables := "INDEX "+index+"_", 0
		if index == migrations.IndexPrimary {
			by = "INTEGER PRIMARY KEY"
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			if how := looksUp.FindStringSubmatch(detail); how != nil {
				require.Equal(t, "SEARCH", how[1], "%s: %s: %s", c.name, detail, s.SQL)
				require.Contains(t, how[2], by, "%s: %s: %s", c.name, detail, s.SQL)
				tables++
			}
		}
		require.NoError(t, rows.Err())
		require.Positive(t, tables, "%s: %s", c.name, s.SQL)
	})
}

// look runs a call for its statements, and each of these again by hand.
func (g *grown) look(t *testing.T, rec *store.Recorder, c look) {
	t.Helper()
	conn, err := g.hands[0].Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	reads := 0
	c.run(t, rec, func(s store.Statement, index string) {
		reads += handlerReads(t, conn, s)
		if index == "" {
			return
		}
		for _, step := range explain(t, conn, s) {
			if step.table == "" || strings.HasPrefix(step.table, "<") {
				continue // answered by the optimizer, or made by the statement itself
			}
			require.Equal(t, index, step.index, "%s reads %s by %s: %s", c.name, step.table, step.how, s.SQL)
			require.NotContains(t, []string{"ALL", "index"}, step.how, "%s: %s", c.name, s.SQL)
		}
	})
	require.LessOrEqual(t, reads, c.most, "%s: rows touched", c.name)
}

// step is one line of an EXPLAIN: a table and how it is read.
type step struct{ table, how, index string }

func explain(t *testing.T, conn *sql.Conn, s store.Statement) (steps []step) {
	t.Helper()
	_, _ = conn.ExecContext(t.Context(), "SET SESSION explain_format = 'TRADITIONAL'") // MySQL 9 has another default; MariaDB has no other
	rows, err := conn.QueryContext(t.Context(), "EXPLAIN "+s.SQL, s.Args...)
	require.NoError(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		column := func(name string) string { return values[slices.Index(names, name)].String }
		steps = append(steps, step{column("table"), column("type"), column("key")})
	}
	require.NoError(t, rows.Err())
	return steps
}

// handlerReads runs a statement, undoes it, and counts the rows that the server
// touched for it.
func handlerReads(t *testing.T, conn *sql.Conn, s store.Statement) (reads int) {
	t.Helper()
	for _, text := range []string{"FLUSH STATUS", "START TRANSACTION"} {
		_, err := conn.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	rows, err := conn.QueryContext(t.Context(), s.SQL, s.Args...)
	require.NoError(t, err)
	for rows.Next() {
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	rows, err = conn.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Handler_icp_attempts'")
	require.NoError(t, err)
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		reads += n
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	return reads
}
