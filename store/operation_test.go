package store_test

import (
	"cmp"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

var operated = sharding.Layout{Databases: 2, TablesPerDatabase: 8, Partitions: 4}

// operation reads the only operation.
func (f *fixture) operation(t testing.TB) *store.Operation {
	list, err := f.Operations(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return &list[0]
}

// start starts an operation, a second after all that has happened.
func (f *fixture) start(t testing.TB, o store.Operation) *store.Operation {
	f.clock.advance(time.Second)
	o.Rate, o.Actor, o.Started = 10, "api", f.clock.Now()
	require.NoError(t, f.StartOperation(t.Context(), &o))
	got := f.operation(t)
	require.Equal(t, o.ID, got.ID)
	require.Equal(t, o.Matched, got.Matched)
	require.Equal(t, store.OperationRunning, got.State)
	return got
}

// finish makes steps until the operation has ended, and reads it before each one, as another node would.
func (f *fixture) finish(t testing.TB, most int) (o *store.Operation) {
	for o = f.operation(t); o.State == store.OperationRunning; o = f.operation(t) {
		for d := range f.layout.Databases {
			if o.Runs(d) {
				_, err := f.OperationStep(t.Context(), d, o, most)
				require.NoError(t, err)
			}
		}
	}
	return o
}

// readsOperations: each field is read as it was written.
func readsOperations(t *testing.T, p place) {
	f := p.open(t, operated)
	written := store.Operation{Kind: store.OperationDiscard, Undoes: 1<<64 - 2, Limit: 5, Rate: 2.5, Actor: "api", Started: f.in(3),
		Filter: store.DeadFilter{BizType: ptr(uint64(1<<64 - 1)), Error: "a", Since: f.in(1), Until: f.in(2)}}
	require.NoError(t, f.StartOperation(t.Context(), &written))
	written.Parts = slices.Repeat([]store.OperationPart{{State: store.OperationRunning}}, f.layout.Databases)
	read := f.operation(t)
	require.Equal(t, written, *read)
	require.NoError(t, f.EndUndo(t.Context(), 0, read))
	_, err := f.StopOperation(t.Context(), written.ID, f.in(4))
	require.NoError(t, err)
	written.State, written.Ended = store.OperationStopped, f.in(4)
	written.Parts = []store.OperationPart{{State: store.OperationDone}, {State: store.OperationStopped}}
	require.Equal(t, written, *f.operation(t))
	written = store.Operation{Kind: store.OperationRedrive, Rate: 1, Started: f.in(5)}
	require.NoError(t, f.StartOperation(t.Context(), &written))
	written.Parts = slices.Repeat([]store.OperationPart{{State: store.OperationRunning}}, f.layout.Databases)
	list, err := f.Operations(t.Context(), written.ID, 10)
	require.NoError(t, err)
	require.Equal(t, []store.Operation{written}, list)
}

// retries: each pending task of the type that has failed and waits for its next run is due now, with its attempts and its promised time.
func retries(t *testing.T, p place) {
	f := p.open(t, operated)
	batch := make([]task.Task, 84)
	for i := range batch {
		batch[i] = task.Task{BizID: uint64(i), BizType: uint64(1 + i/7%3), ActionTime: f.in(i % 5)}
	}
	stored := f.put(t, batch...)
	next := f.clock.Now().Add(time.Hour)
	var failed, others []uint64
	for i, one := range stored {
		m := store.Move{JobID: one.JobID, To: task.Pending, Set: store.Set{Attempts: ptr(3), ActionTime: &next, Promised: &one.ActionTime}}
		switch i % 7 {
		case 6: // it was moved after it had failed
			m.Promised, m.NewPromise = nil, true
		case 1:
			m.Attempts = nil // it has not failed
		case 2:
			m.ActionTime = ptr(f.in(2)) // it runs by itself, in two seconds at the latest
		case 3:
			m.ActionTime = ptr(next.Add(2 * time.Hour)) // moved by hand, far away
		case 4:
			m.Lease = ptr(uint64(7))
		case 5:
			m.To = task.Dead
		}
		ok, err := f.Move(t.Context(), m)
		require.NoError(t, err)
		require.True(t, ok)
		if i%7 == 0 && one.BizType == 2 {
			failed = append(failed, one.JobID)
		} else {
			others = append(others, one.JobID)
		}
	}
	require.Len(t, failed, 4)
	before := f.everything(t)
	o := f.start(t, store.Operation{Kind: store.OperationRetry, Filter: store.DeadFilter{BizType: ptr(uint64(2)), Until: next}})
	require.Equal(t, len(failed), o.Matched)
	f.clock.advance(time.Second)
	now := f.clock.Now()
	o = f.finish(t, 2)
	require.Equal(t, []any{store.OperationDone, len(failed), 0}, []any{o.State, o.Done, o.Skipped})
	after := f.everything(t)
	for _, id := range failed {
		want := before[id]
		want.ActionTime, want.Modified = now, after[id].Modified
		require.Equal(t, want, after[id])
	}
	for _, id := range others {
		require.Equal(t, before[id], after[id])
	}
}

// operates: each dead task that matches is changed once, and the counts say so.
func operates(t *testing.T, p place) {
	for kind, want := range map[string]task.Status{store.OperationRedrive: task.Pending, store.OperationDiscard: task.Cancelled} {
		f := p.open(t, operated)
		dead := f.die(t, 200)
		before := f.everything(t)
		filter := store.DeadFilter{BizType: ptr(uint64(2)), Since: f.in(-1)}
		f.start(t, store.Operation{Kind: kind, Filter: filter})
		o := f.finish(t, 7)
		n := 0
		for id, row := range f.everything(t) {
			if before[id].Status != task.Dead || row.BizType != 2 {
				require.Equal(t, before[id], row)
				continue
			}
			n++
			require.Equal(t, want, row.Status)
			require.Equal(t, before[id].LastError, row.LastError)
			if kind == store.OperationRedrive {
				require.Equal(t, f.clock.Now(), row.ActionTime)
				require.Equal(t, row.ActionTime, row.Promised())
				require.Zero(t, row.Attempts)
			}
		}
		require.NotZero(t, n)
		require.Less(t, n, len(dead))
		require.Equal(t, []int{n, n, 0}, []int{o.Matched, o.Done, o.Skipped})
		require.Equal(t, store.OperationDone, o.State)
		require.Equal(t, f.clock.Now(), o.Ended)
		require.Equal(t, filter, o.Filter)
	}
}

// operatesOnce: a step that another node has made is not made again, and a task that dies again stays dead.
func operatesOnce(t *testing.T, p place) {
	f := p.open(t, operated)
	dead := f.die(t, 100)
	read := f.start(t, store.Operation{Kind: store.OperationRedrive})
	same := f.operation(t)
	first, err := f.OperationStep(t.Context(), 0, read, 5)
	require.NoError(t, err)
	require.Len(t, first, 5)
	f.clock.advance(time.Second)
	var again []task.Task
	all := f.everything(t)
	for _, id := range first {
		again = append(again, all[id])
	}
	f.setStatus(t, task.Dead, again...)
	for _, id := range first { // died, by hand, at a time that is long ago
		shard, _ := f.layout.ShardOf(id)
		f.hand(t, shard, "UPDATE %s SET gmt_modified=? WHERE job_id=?", f.at(f.in(-100_000)), f.id(id))
	}
	_, err = f.OperationStep(t.Context(), 0, same, 5)
	require.NoError(t, err)
	require.Equal(t, 5, f.operation(t).Done, "made from an old reading: refused")
	o := f.finish(t, 100)
	require.Equal(t, len(dead), o.Done)
	for _, id := range first {
		require.Equal(t, task.Dead, f.everything(t)[id].Status)
	}
}

// operatesAround: what somebody else changes in the moment of a step is skipped.
func operatesAround(t *testing.T, p place) {
	f := p.open(t, operated)
	dead := f.die(t, 50)
	o := f.start(t, store.Operation{Kind: store.OperationDiscard})
	rec := store.Record(f.Store)
	rec.OnTransaction = func(do func() error) error {
		rec.OnTransaction = nil
		f.setStatus(t, task.Cancelled, dead[0])
		return do()
	}
	_, err := f.OperationStep(t.Context(), 0, o, 3)
	require.NoError(t, err)
	o = f.operation(t)
	require.Equal(t, []int{2, 1}, []int{o.Done, o.Skipped})
	o = f.finish(t, 100)
	require.Equal(t, []int{len(dead), len(dead) - 1, 1}, []int{o.Matched, o.Done, o.Skipped})
}

// stopsOperations: after a stop nothing is changed, not even by a node that does not know it; a limit ends one, too.
func stopsOperations(t *testing.T, p place) {
	f := p.open(t, operated)
	f.die(t, 100)
	o := f.start(t, store.Operation{Kind: store.OperationRedrive, Limit: 12})
	_, err := f.OperationStep(t.Context(), 0, o, 5)
	require.NoError(t, err)
	stopped, err := f.StopOperation(t.Context(), o.ID, f.clock.Now())
	require.NoError(t, err)
	require.True(t, stopped)
	_, err = f.OperationStep(t.Context(), 0, o, 5)
	require.NoError(t, err)
	o = f.operation(t)
	require.Equal(t, store.OperationStopped, o.State)
	require.Equal(t, 5, o.Done)
	require.False(t, o.Ended.IsZero())
	stopped, err = f.StopOperation(t.Context(), o.ID, f.clock.Now())
	require.NoError(t, err)
	require.False(t, stopped)
	running, err := f.RunningOperations(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, running)

	f.clock.advance(time.Second)
	for d := range f.layout.Databases {
		n, err := f.PurgeAudit(t.Context(), d, f.clock.Now())
		require.NoError(t, err)
		require.Positive(t, n, "the operation, and what it has changed")
	}
	f.start(t, store.Operation{Kind: store.OperationRedrive, Limit: 12})
	o = f.finish(t, 5)
	require.Equal(t, 12, o.Done)
	_, err = f.StopOperation(t.Context(), o.ID, f.clock.Now())
	require.NoError(t, err)
	require.Equal(t, store.OperationDone, f.operation(t).State)

	// By hand, in one database: that stops all.
	_, err = f.hands[1].ExecContext(t.Context(), "UPDATE toc_operation SET state='stopped', ended=started")
	require.NoError(t, err)
	_, err = f.hands[0].ExecContext(t.Context(), "UPDATE toc_operation SET state='running', ended=NULL")
	require.NoError(t, err)
	running, err = f.RunningOperations(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, running, 1)
	require.Equal(t, store.OperationStopped, running[0].State, "the runner copies it")
	require.False(t, running[0].Runs(0))
}

// runsTheOldest: where more operations run than are asked for, the oldest come first. At 799f0ec the latest did, so that a hundred
// new ones stopped all others for good.
func runsTheOldest(t *testing.T, p place) {
	f := p.open(t, operated)
	f.die(t, 50)
	var ids []uint64
	for range 5 {
		f.clock.advance(time.Second)
		o := store.Operation{Kind: store.OperationRedrive, Rate: 1, Started: f.clock.Now()}
		require.NoError(t, f.StartOperation(t.Context(), &o))
		ids = append(ids, o.ID)
	}
	_, err := f.StopOperation(t.Context(), ids[1], f.clock.Now())
	require.NoError(t, err)
	running, err := f.RunningOperations(t.Context(), 3)
	require.NoError(t, err)
	var got []uint64
	for i := range running {
		require.True(t, running[i].Runs(0) && running[i].Runs(1))
		got = append(got, running[i].ID)
	}
	require.Equal(t, []uint64{ids[0], ids[2], ids[3]}, got)
}

// startsNoHalfOperation: one that a database did not take runs nowhere.
func startsNoHalfOperation(t *testing.T, p place) {
	f := p.open(t, operated)
	f.die(t, 50)
	_, err := f.hands[1].ExecContext(t.Context(), "DROP TABLE toc_operation")
	require.NoError(t, err)
	o := store.Operation{Kind: store.OperationRedrive, Rate: 1, Started: f.clock.Now()}
	require.ErrorIs(t, f.StartOperation(t.Context(), &o), task.ErrUnavailable)
	list, err := f.Operations(t.Context(), o.ID, 10)
	require.Error(t, err)
	require.Len(t, list, 1)
	require.Equal(t, store.OperationStopped, list[0].State)
}

// An undo takes back exactly what was changed and has not changed since.
func undoes(t *testing.T, p place) {
	f := p.open(t, small)
	dead := f.die(t, 40)
	o := store.Operation{Kind: store.OperationRedrive, Actor: "api", Rate: 100, Started: f.in(10_000)}
	f.clock.advance(10 * time.Second)
	require.NoError(t, f.StartOperation(t.Context(), &o))
	for d := range f.layout.Databases {
		list, err := f.Operations(t.Context(), o.ID, 1)
		require.NoError(t, err)
		_, err = f.OperationStep(t.Context(), d, &list[0], 15)
		require.NoError(t, err)
	}
	all := f.everything(t)
	var redriven []task.Task
	before := map[uint64]task.Task{}
	for _, one := range dead {
		before[one.JobID] = one
		if all[one.JobID].Status == task.Pending {
			redriven = append(redriven, all[one.JobID])
		}
	}
	total := len(redriven)
	require.Greater(t, total, 15)
	_, err := f.StopOperation(t.Context(), o.ID, f.clock.Now())
	require.NoError(t, err)
	changed := slices.DeleteFunc(slices.Clone(redriven), func(one task.Task) bool { return f.layout.Database(f.layout.Shard(one.BizID)) != 0 })
	slices.SortFunc(changed, func(a, b task.Task) int { return cmp.Compare(a.JobID, b.JobID) }) // the last of each database runs, below
	f.setStatus(t, task.Processed, changed[0])                                                  // it has run
	shard, _ := f.layout.ShardOf(changed[1].JobID)
	f.hand(t, shard, "UPDATE %s SET action_time=? WHERE job_id=?", f.at(f.in(60_000)), f.id(changed[1].JobID)) // moved
	f.setStatus(t, task.Cancelled, changed[2])

	undo := store.Operation{Kind: store.OperationUndo, Undoes: o.ID, Actor: "api", Started: f.clock.Now()}
	require.NoError(t, f.StartUndo(t.Context(), &undo))
	require.Equal(t, total, undo.Matched)
	for d := range f.layout.Databases {
		list, err := f.OperationTasks(t.Context(), d, o.ID, 0, 100)
		require.NoError(t, err)
		require.NoError(t, f.EndUndo(t.Context(), d, &undo), "tasks are left")
		running := list[len(list)-1:]
		for range 2 { // twice: the answer of the first one was lost
			require.NoError(t, f.UndoStep(t.Context(), d, &undo, list[:len(list)-1], running))
		}
		rest, err := f.OperationTasks(t.Context(), d, o.ID, 0, 100)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.NoError(t, f.EndUndo(t.Context(), d, &undo))
	}
	list, err := f.Operations(t.Context(), undo.ID, 1)
	require.NoError(t, err)
	require.Equal(t, store.OperationDone, list[0].State)
	skipped := 3 + f.layout.Databases
	require.Equal(t, []int{total, total - skipped, skipped}, []int{list[0].Matched, list[0].Done, list[0].Skipped})
	back := 0
	for _, one := range redriven {
		if now := f.everything(t)[one.JobID]; now.Status == task.Dead {
			want := before[one.JobID]
			want.Modified = now.Modified
			require.Equal(t, want, now)
			back++
		}
	}
	require.Equal(t, total-skipped, back)
}

// undoesDiscards: what was discarded is dead again, unless somebody has given it a fresh start.
func undoesDiscards(t *testing.T, p place) {
	f := p.open(t, operated)
	dead := f.die(t, 40)
	o := f.start(t, store.Operation{Kind: store.OperationDiscard})
	f.finish(t, 100)
	f.setStatus(t, task.Pending, dead[0])
	undo := store.Operation{Kind: store.OperationUndo, Undoes: o.ID, Actor: "api", Started: f.clock.Now()}
	require.NoError(t, f.StartUndo(t.Context(), &undo))
	for d := range f.layout.Databases {
		list, err := f.OperationTasks(t.Context(), d, o.ID, 0, 100)
		require.NoError(t, err)
		require.NoError(t, f.UndoStep(t.Context(), d, &undo, list, nil))
	}
	all := f.everything(t)
	require.Equal(t, task.Pending, all[dead[0].JobID].Status)
	for _, want := range dead[1:] {
		now := all[want.JobID]
		want.Modified = now.Modified
		require.Equal(t, want, now)
	}
	list, err := f.Operations(t.Context(), undo.ID, 1)
	require.NoError(t, err)
	require.Equal(t, []int{len(dead), len(dead) - 1, 1}, []int{list[0].Matched, list[0].Done, list[0].Skipped})
}

// stopsUndoes: after a stop nothing is taken back, not even by a node that does not know it; another undo goes on.
func stopsUndoes(t *testing.T, p place) {
	f := p.open(t, operated)
	dead := f.die(t, 40)
	o := f.start(t, store.Operation{Kind: store.OperationRedrive})
	f.finish(t, 100)
	undo := store.Operation{Kind: store.OperationUndo, Undoes: o.ID, Actor: "api", Started: f.clock.Now()}
	require.NoError(t, f.StartUndo(t.Context(), &undo))
	stopped, err := f.StopOperation(t.Context(), undo.ID, f.clock.Now())
	require.NoError(t, err)
	require.True(t, stopped)
	step := func(undo *store.Operation) {
		for d := range f.layout.Databases {
			list, err := f.OperationTasks(t.Context(), d, o.ID, 0, 100)
			require.NoError(t, err)
			require.NoError(t, f.UndoStep(t.Context(), d, undo, list, nil))
		}
	}
	before := f.everything(t)
	step(&undo)
	require.Equal(t, before, f.everything(t))
	f.clock.advance(time.Second)
	again := store.Operation{Kind: store.OperationUndo, Undoes: o.ID, Actor: "api", Started: f.clock.Now()}
	require.NoError(t, f.StartUndo(t.Context(), &again))
	require.Equal(t, len(dead), again.Matched)
	step(&again)
	for _, one := range dead {
		require.Equal(t, task.Dead, f.everything(t)[one.JobID].Status)
	}
}

// However many operations there have been, a look at them reads the asked ones, by an index.
func TestMySQLLooksAtOperationsAreBounded(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, operated)
	const ended = 3000
	row := "(?,'redrive','api',1,0,?,0,'2026-01-01')"
	var args []any
	for i := range ended {
		state := "done"
		if i == 7 {
			state = "running"
		}
		args = append(args, i+1, state)
	}
	for d := range f.layout.Databases {
		_, err := f.hands[d].ExecContext(t.Context(), "INSERT INTO toc_operation (id,kind,actor,rate,matched,state,done,started) VALUES "+
			strings.TrimSuffix(strings.Repeat(row+",", ended), ","), args...)
		require.NoError(t, err)
		_, err = f.hands[d].ExecContext(t.Context(), "ANALYZE TABLE toc_operation")
		require.NoError(t, err)
	}
	rec := store.Record(f.Store)
	for name, look := range map[string]func() ([]store.Operation, error){
		"latest":  func() ([]store.Operation, error) { return f.Operations(t.Context(), 0, 20) },
		"one":     func() ([]store.Operation, error) { return f.Operations(t.Context(), 5, 1) },
		"running": func() ([]store.Operation, error) { return f.RunningOperations(t.Context(), 20) },
	} {
		rec.Clear()
		list, err := look()
		require.NoError(t, err, name)
		require.Len(t, list, map[string]int{"latest": 20, "one": 1, "running": 1}[name], name)
		require.LessOrEqual(t, len(rec.Queries()), 2*f.layout.Databases, name)
		for _, q := range rec.Queries() {
			require.Contains(t, q.SQL, " LIMIT ?", name)
			require.LessOrEqual(t, rowsRead(t, f.hands[q.Database], q), 20, "%s: %s", name, q.SQL)
		}
	}
}

// rowsRead is how many rows the server reads for a query, as it counts them itself.
func rowsRead(t *testing.T, hand *sql.DB, q store.Statement) (n int) {
	conn, err := hand.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "FLUSH STATUS")
	require.NoError(t, err)
	found, err := conn.QueryContext(t.Context(), q.SQL, q.Args...)
	require.NoError(t, err)
	for found.Next() {
	}
	require.NoError(t, found.Err())
	counters, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	require.NoError(t, err)
	defer counters.Close()
	for counters.Next() {
		var name string
		var value int
		require.NoError(t, counters.Scan(&name, &value))
		n += value
	}
	return n
}
