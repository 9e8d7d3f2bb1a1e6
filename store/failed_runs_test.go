package store_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// fails is the move of a failed run that goes on from a row as it was read.
func fails(read task.Task, to task.Status, why string) store.Move {
	attempts, next := read.Attempts+1, read.ActionTime.Add(time.Second)
	return store.Move{JobID: read.JobID, To: to, Read: &read, Set: store.Set{ActionTime: &next, Attempts: &attempts, LastError: &why}}
}

func (f *fixture) failedRuns(t testing.TB, jobID uint64) []task.FailedRun {
	t.Helper()
	runs, err := f.FailedRuns(t.Context(), jobID)
	require.NoError(t, err)
	return runs
}

// apply makes one move, and makes it again as if its answer had been lost.
func (f *fixture) apply(t testing.TB, m store.Move) (stamp time.Time) {
	t.Helper()
	shard, _ := f.layout.ShardOf(m.JobID)
	d := f.layout.Database(shard)
	stamp = f.Stamp(d)
	for range 2 {
		applied, err := f.Apply(t.Context(), d, stamp, []store.Move{m})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, applied)
	}
	return stamp
}

// keepsFailedRuns: each run that failed and counted, and nothing else.
func keepsFailedRuns(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)}, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})
	one, other := stored[0], stored[1]
	require.Empty(t, f.failedRuns(t, one.JobID))
	read := func() task.Task {
		row, err := f.Get(t.Context(), one.JobID)
		require.NoError(t, err)
		return row
	}
	const hostile = "two\nlines \"\\\x1b[31m\x00 <b>\u2028 ä 💥"
	var want []task.FailedRun
	for i, why := range []string{"boom", "", "boom"} {
		want = append(want, task.FailedRun{Attempt: i + 1, At: f.apply(t, fails(read(), task.Pending, why)), Error: why})
	}
	want = append(want, task.FailedRun{Attempt: 4, At: f.apply(t, fails(read(), task.Dead, hostile)), Error: hostile})
	require.Equal(t, want, f.failedRuns(t, one.JobID))

	zero, why, now := 0, "the circuit is open", f.in(7)
	f.apply(t, store.Move{JobID: one.JobID, From: task.Dead, To: task.Pending, Set: store.Set{Attempts: &zero, ActionTime: &now, NewPromise: true}})
	row := read()
	f.apply(t, store.Move{JobID: one.JobID, Read: &row, Set: store.Set{LastError: &why}}) // no attempt
	require.Equal(t, want, f.failedRuns(t, one.JobID))
	want = append(want, task.FailedRun{Attempt: 1, At: f.apply(t, fails(read(), task.Pending, "again")), Error: "again"})
	row = read()
	f.apply(t, store.Move{JobID: one.JobID, Read: &row, To: task.Dead, Set: store.Set{LastError: &why}}) // expired
	require.Equal(t, want, f.failedRuns(t, one.JobID))
	require.Empty(t, f.failedRuns(t, other.JobID))

	for _, id := range foreignIDs(t, f) {
		_, err := f.FailedRuns(t.Context(), id)
		require.ErrorIs(t, err, task.ErrNotFound)
	}
}

// boundsFailedRuns: the newest are kept, and a line that was cut is left out.
func boundsFailedRuns(t *testing.T, p place) {
	f := p.open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
	shard := f.layout.Shard(9)
	f.hand(t, shard, "UPDATE %s SET errors=? WHERE job_id=?", "by hand\n{}\nnull\n{\"attempt\":1}\n", f.id(one.JobID))
	require.Empty(t, f.failedRuns(t, one.JobID))
	for i := range 200 {
		one.Attempts, one.ActionTime = i, f.in(i*1000)
		f.apply(t, fails(one, task.Pending, strings.Repeat("ä", 100+i%11)))
	}
	runs := f.failedRuns(t, one.JobID)
	require.Greater(t, len(runs), 40)
	for i, run := range runs {
		require.Equal(t, 200-len(runs)+1+i, run.Attempt)
		require.Equal(t, strings.Repeat("ä", 100+(run.Attempt-1)%11), run.Error)
	}
	var text string
	require.NoError(t, f.hands[1].QueryRowContext(t.Context(), "SELECT errors FROM "+sharding.TableName(f.layout.Table(shard))).Scan(&text))
	require.Len(t, []rune(text), 8192)

	// The statements of docs/sql.md find the same.
	rows, err := f.hands[1].QueryContext(t.Context(), f.failedRunsOfTheDocs(t, shard), f.id(one.JobID))
	require.NoError(t, err)
	defer rows.Close()
	var found []task.FailedRun
	for rows.Next() {
		var run task.FailedRun
		var at string
		require.NoError(t, rows.Scan(&run.Attempt, &at, &run.Error))
		run.At, err = time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		found = append(found, run)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, runs, found)
}

// failedRunsOfTheDocs is the SELECT of docs/sql.md for MySQL, or that for toc sql, of one table.
func (f *fixture) failedRunsOfTheDocs(t testing.TB, shard int) string {
	t.Helper()
	docs, err := os.ReadFile("../docs/sql.md")
	require.NoError(t, err)
	pattern, table := `(?s)SELECT r\.\* FROM [^;]+`, "toc_2.timeout_task_0005"
	if f.cfg.Driver == store.SQLite {
		pattern, table = `(?s)SELECT r\.value[^?]+?\d{18}`, "timeout_task t"
	}
	text := regexp.MustCompile(pattern).FindString(string(docs))
	require.Contains(t, text, table)
	text = strings.NewReplacer(table, sharding.TableName(f.layout.Table(shard))+" t", `\"`, `"`, "500361530171131904", "?").Replace(text)
	return strings.Replace(text, " t t,", " t,", 1)
}

// losesNoFailedRun: a batch whose answer was lost adds no line again.
func losesNoFailedRun(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t, f.inEachTable(20)...)
	moves := make([]store.Move, len(stored))
	for i, one := range stored {
		moves[i] = fails(one, []task.Status{task.Pending, task.Dead}[i%2], fmt.Sprint("order ", i%3))
	}
	rec := store.Record(f.Store)
	rec.OnTransaction = func(do func() error) error { return errors.Join(do(), errLost) }
	stamp := f.Stamp(0)
	_, err := f.Apply(t.Context(), 0, stamp, moves)
	require.ErrorIs(t, err, errLost)
	rec.OnTransaction = nil
	applied, err := f.Apply(t.Context(), 0, stamp, moves)
	require.NoError(t, err)
	require.NotContains(t, applied, false)
	f.requireOneRun(t, moves, stamp)
}

// requireOneRun requires that each move has added its line once.
func (f *fixture) requireOneRun(t *testing.T, moves []store.Move, stamp time.Time) {
	t.Helper()
	for _, m := range moves {
		require.Equal(t, []task.FailedRun{{Attempt: 1, At: stamp, Error: *m.LastError}}, f.failedRuns(t, m.JobID))
	}
}

// A batch that meets a lock is made in parts, some of them again, and each run is told once.
func TestMySQLFailedRunsOfALockedBatch(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	stored := f.put(t, f.inEachTable(20)...)
	moves := make([]store.Move, len(stored))
	for i, one := range stored {
		moves[i] = fails(one, task.Pending, "boom")
	}
	release := f.forgetRow(t, stored[7])
	stamp := f.Stamp(0)
	_, err := f.Apply(t.Context(), 0, stamp, moves)
	var locked *store.LockedError
	require.ErrorAs(t, err, &locked)
	release()
	require.Empty(t, f.failedRuns(t, stored[7].JobID))
	f.requireOneRun(t, slices.Delete(slices.Clone(moves), 7, 8), stamp)
	applied, err := f.Apply(t.Context(), 0, stamp, moves)
	require.NoError(t, err)
	require.NotContains(t, applied, false)
	f.requireOneRun(t, moves, stamp)
}

// readsNoErrors: only whoever asks for the failed runs reads them.
func readsNoErrors(t *testing.T, p place) {
	f := p.open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), DedupKey: "k"})[0]
	rec := store.Record(f.Store)
	_, err := f.Get(t.Context(), one.JobID)
	require.NoError(t, err)
	_, err = f.First(t.Context(), 9, "", 1, "k")
	require.NoError(t, err)
	_, err = f.List(t.Context(), 9, store.Filter{Limit: 10})
	require.NoError(t, err)
	require.NotEmpty(t, f.due(t, store.Due{Until: f.in(0), PerPage: 10}))
	require.NotEmpty(t, rec.Queries())
	for _, s := range rec.Queries() {
		require.NotContains(t, s.SQL, "errors")
		if f.cfg.Driver == store.MySQL { // a member of a SQLite union is SELECT * FROM (SELECT …)
			require.NotContains(t, s.SQL, "*")
		}
	}
}
