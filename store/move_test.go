package store_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func statuses() []task.Status {
	return []task.Status{task.Pending, task.Processed, task.Cancelled, task.Dead}
}

// movesFromWhatIs tries every allowed move on tasks of every status: a move
// applies where the row has its From, and else changes nothing.
func movesFromWhatIs(t *testing.T, p place) {
	f := p.open(t, small)
	for _, is := range statuses() {
		for _, from := range statuses() {
			for _, to := range statuses() {
				if !from.CanBecome(to) {
					continue
				}
				one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
				f.setStatus(t, is, one)
				want := f.everything(t)
				f.clock.advance(time.Second)
				applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, From: from, To: to})
				require.NoError(t, err)
				require.Equal(t, is == from, applied, "%s, moved from %s to %s", is, from, to)
				if applied {
					one.Status, one.Modified = to, f.clock.Now()
					want[one.JobID] = one
				}
				require.Equal(t, want, f.everything(t), "%s, moved from %s to %s", is, from, to)
			}
		}
	}
}

// refusesOtherMoves: a finished task stays finished, whoever tries.
func refusesOtherMoves(t *testing.T, p place) {
	f := p.open(t, small)
	for _, from := range append(statuses(), 1) {
		for _, to := range append(statuses(), 1) {
			if from.CanBecome(to) {
				continue
			}
			one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
			if from != 1 {
				f.setStatus(t, from, one)
			}
			before := f.everything(t)
			m := store.Move{JobID: one.JobID, From: from, To: to}
			_, err := f.Move(t.Context(), m)
			require.ErrorContains(t, err, from.String())
			require.NotErrorIs(t, err, task.ErrUnavailable, "to try again would not help")
			innocent := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
			before[innocent.JobID] = innocent
			_, err = f.Apply(t.Context(), 1, f.Stamp(1), []store.Move{{JobID: innocent.JobID, To: task.Cancelled}, m})
			require.ErrorContains(t, err, to.String())
			require.Equal(t, before, f.everything(t), "all or nothing")
		}
	}
}

func movesWriteWhatIsSet(t *testing.T, p place) {
	f := p.open(t, small)
	later, three, many, boom, note, quick := f.in(500), 3, 300, "boom", "new", 1500*time.Millisecond
	fine := later.Add(time.Nanosecond)
	for name, c := range map[string]struct {
		set  store.Set
		want func(*task.Task)
	}{
		"nothing":     {store.Set{}, func(*task.Task) {}},
		"action_time": {store.Set{ActionTime: &later}, func(o *task.Task) { o.ActionTime = later }},
		"never early": {store.Set{ActionTime: &fine}, func(o *task.Task) { o.ActionTime = f.in(501) }},
		"attempts":    {store.Set{Attempts: &three}, func(o *task.Task) { o.Attempts = 3 }},
		"many":        {store.Set{Attempts: &many}, func(o *task.Task) { o.Attempts = task.MaxAttempts }},
		"last_error":  {store.Set{LastError: &boom}, func(o *task.Task) { o.LastError = "boom" }},
		"attribute":   {store.Set{Attribute: &note}, func(o *task.Task) { o.Attribute = "new" }},
		"timeout":     {store.Set{Timeout: &quick}, func(o *task.Task) { o.Timeout = quick }},
		"no timeout":  {store.Set{Timeout: new(time.Duration)}, func(o *task.Task) { o.Timeout = 0 }},
		"promised":    {store.Set{Promised: &later}, func(o *task.Task) { o.DueTime = later }},
		"new promise": {store.Set{NewPromise: true}, func(o *task.Task) { o.DueTime = time.Time{} }},
		"all": {store.Set{ActionTime: &later, Attempts: &three, LastError: &boom, Attribute: &note}, func(o *task.Task) {
			o.ActionTime, o.Attempts, o.LastError, o.Attribute = later, 3, "boom", "new"
		}},
	} {
		stored := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), Attribute: "old", DedupKey: name, Timeout: time.Second},
			task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), Attribute: "old"})
		for _, to := range []task.Status{task.Pending, task.Dead} {
			one := stored[0]
			before := f.everything(t)
			stamp := f.Stamp(1)
			applied, err := f.Apply(t.Context(), 1, stamp, []store.Move{{JobID: one.JobID, To: to, Set: c.set}})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, applied)
			one.Status, one.Modified = to, stamp
			c.want(&one)
			before[one.JobID] = one
			require.Equal(t, before, f.everything(t), "%s: this row and no other", name)
		}
	}
}

// movesWhatWasRead: a move that names the row as read applies only while the row is unchanged. Before, an
// outcome compared the status alone, and overwrote changes by hand or by another node.
func movesWhatWasRead(t *testing.T, p place) {
	f := p.open(t, small)
	shard := f.layout.Shard(9)
	for name, c := range map[string]struct {
		set            string // what a hand does after the read
		applies, whole bool   // whether a move applies then; and one that asks for the whole row
	}{
		"nothing":             {"", true, true},
		"another time":        {"action_time = '2031-02-03 04:05:06.007'", false, false},
		"more attempts":       {"attempts = attempts + 1", false, false},
		"another attribute":   {"attribute = 'by hand'", true, false},
		"a promise":           {"due_time = '2031-02-03 04:05:06.007'", true, false},
		"another time-out":    {"timeout_ms = 7", true, false},
		"no time-out, as 0":   {"timeout_ms = 0", true, false},
		"its change is known": {"gmt_modified = '2031-02-03 04:05:06.007'", true, false},
	} {
		for _, whole := range []bool{false, true} {
			one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0), Timeout: time.Second})[0]
			read, err := f.Get(t.Context(), one.JobID)
			require.NoError(t, err)
			if c.set != "" {
				require.EqualValues(t, 1, f.hand(t, shard, "UPDATE %s SET "+c.set+" WHERE job_id = ?", f.id(one.JobID)))
			}
			before := f.everything(t)
			f.clock.advance(time.Second)
			if read, err := f.Get(t.Context(), one.JobID); whole && c.set != "" {
				require.NoError(t, err)
				applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, Read: &read, Whole: true})
				require.NoError(t, err)
				require.True(t, applied, "%s, as it stands", name)
				before = f.everything(t)
			}
			applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Dead, Read: &read, Whole: whole})
			require.NoError(t, err)
			require.Equal(t, c.applies && !whole || c.whole && whole, applied, "%s, whole %t", name, whole)
			if !applied {
				require.Equal(t, before, f.everything(t), name)
			}
		}
	}
}

// movesHowItWasWritten: SQLite keeps times as text, and a hand writes them in many ways.
func movesHowItWasWritten(t *testing.T, p place) {
	f := p.open(t, small)
	shard := f.layout.Shard(9)
	for _, text := range []string{"2031-02-03 04:05:06", "2031-02-03 04:05:06.0", "2031-02-03 04:05:06.000", "2031-02-03 04:05:06.100", "2031-02-03 04:05:06.12"} {
		one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
		f.hand(t, shard, "UPDATE %s SET action_time = ? WHERE job_id = ?", text, f.id(one.JobID))
		read, err := f.Get(t.Context(), one.JobID)
		require.NoError(t, err)
		earlier := read
		earlier.ActionTime = read.ActionTime.Add(-time.Millisecond)
		applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Dead, Read: &earlier})
		require.NoError(t, err)
		require.False(t, applied, text)
		applied, err = f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Dead, Read: &read})
		require.NoError(t, err)
		require.True(t, applied, text)
	}
}

// promisesStay: the first promise stands until a new one is made.
func promisesStay(t *testing.T, p place) {
	f := p.open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
	first, second := f.in(1000), f.in(2000)
	for _, at := range []*time.Time{&first, &second} {
		applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, Set: store.Set{Promised: at, ActionTime: at}})
		require.NoError(t, err)
		require.True(t, applied)
		got, err := f.Get(t.Context(), one.JobID)
		require.NoError(t, err)
		require.Equal(t, first, got.Promised())
		require.Equal(t, *at, got.ActionTime)
	}
}

func movesNothingForeign(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 20)
	before := f.everything(t)
	var moves []store.Move
	for _, id := range foreignIDs(t, f) {
		m := store.Move{JobID: id, To: task.Cancelled}
		applied, err := f.Move(t.Context(), m)
		require.NoError(t, err)
		require.False(t, applied)
		moves = append(moves, m)
	}
	for _, one := range stored {
		if d := f.layout.Database(f.layout.Shard(one.BizID)); d == 0 {
			moves = append(moves, store.Move{JobID: one.JobID, To: task.Cancelled})
		}
	}
	applied, err := f.Apply(t.Context(), 1, f.Stamp(1), moves)
	require.NoError(t, err)
	require.NotContains(t, applied, true, "rows of database 0 are not in database 1")
	require.Equal(t, before, f.everything(t))

	applied, err = f.Apply(t.Context(), 1, f.Stamp(1), nil)
	require.NoError(t, err)
	require.Empty(t, applied)
}

// batchOf is one database's worth of moves of all kinds, on tasks in all states.
func batchOf(t *testing.T, f *fixture) (moves []store.Move, want []bool, after map[uint64]task.Task) {
	later, retry, fresh, boom, note := f.in(5000), 4, 0, "boom", "note"
	kinds := []store.Move{
		{From: task.Pending, To: task.Processed},
		{From: task.Pending, To: task.Cancelled},
		{From: task.Pending, To: task.Dead, Set: store.Set{LastError: &boom}},
		{From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: &later, Attempts: &retry, LastError: &boom}},
		{From: task.Pending, To: task.Pending, Set: store.Set{Attribute: &note}},
		{From: task.Dead, To: task.Pending, Set: store.Set{ActionTime: &later, Attempts: &fresh}},
	}
	var tasks []task.Task
	for table := range f.layout.TablesPerDatabase {
		for _, biz := range bizIDs(f.layout, table, 2*len(kinds)*len(statuses())) {
			tasks = append(tasks, task.Task{BizID: biz, BizType: 1, ActionTime: f.in(0), Attribute: "old"})
		}
	}
	tasks = f.put(t, tasks...)
	for i, one := range tasks {
		m := kinds[i%len(kinds)]
		m.JobID = one.JobID
		is := statuses()[i/len(kinds)%len(statuses())]
		f.setStatus(t, is, one)
		moves, want = append(moves, m), append(want, is == m.From)
	}
	after = f.everything(t)
	for i, m := range moves {
		if !want[i] {
			continue
		}
		one := after[m.JobID]
		one.Status = m.To
		if m.ActionTime != nil {
			one.ActionTime = *m.ActionTime
		}
		if m.Attempts != nil {
			one.Attempts = *m.Attempts
		}
		if m.LastError != nil {
			one.LastError = *m.LastError
		}
		if m.Attribute != nil {
			one.Attribute = *m.Attribute
		}
		after[m.JobID] = one
	}
	return moves, want, after
}

func movesOfAllKindsAtOnce(t *testing.T, p place) {
	f := p.open(t, small)
	moves, want, after := batchOf(t, f)
	stamp := f.Stamp(0)
	for i := range moves {
		if one := after[moves[i].JobID]; want[i] {
			one.Modified = stamp
			after[one.JobID] = one
		}
	}
	// The answer to the first try gets lost: the second one must say the same.
	for range 2 {
		applied, err := f.Apply(t.Context(), 0, stamp, moves)
		require.NoError(t, err)
		require.Equal(t, want, applied)
		require.Equal(t, after, f.everything(t))
	}
	// Another batch with the same moves is another batch.
	for i, m := range moves {
		want[i] = after[m.JobID].Status == m.From
	}
	applied, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	require.NoError(t, err)
	require.Equal(t, want, applied)
}

// anEditInTheMillisecondOfABatch has the batch's stamp, and is not its move. Before, the outcome of a run counted as
// written that was not: the task ran once more than its retries allow.
func anEditInTheMillisecondOfABatch(t *testing.T, p place) {
	f := p.open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
	read, err := f.Get(t.Context(), one.JobID)
	require.NoError(t, err)
	stamp, later, attempts := f.Stamp(1), f.in(1), 1
	require.EqualValues(t, 1, f.hand(t, f.layout.Shard(9), "UPDATE %s SET action_time = '2031-02-03 04:05:06.007', gmt_modified = '"+
		stamp.Format("2006-01-02 15:04:05.000")+"' WHERE job_id = ?", f.id(one.JobID)))
	applied, err := f.Apply(t.Context(), 1, stamp, []store.Move{{JobID: one.JobID, To: task.Pending, Read: &read, Set: store.Set{ActionTime: &later, Attempts: &attempts}}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, applied)
}

// movesOneTaskTwice: the callers that share a commit do not know of each other.
func movesOneTaskTwice(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.put(t, make([]task.Task, 4)...)
	boom, bang, soon, late, fresh := "boom", "bang", f.in(1), f.in(2), 0
	f.setStatus(t, task.Dead, stored[2])
	batch := []struct {
		store.Move
		want bool
	}{
		{store.Move{JobID: stored[0].JobID, To: task.Cancelled}, true},
		{store.Move{JobID: stored[0].JobID, To: task.Cancelled}, false},
		{store.Move{JobID: stored[0].JobID, To: task.Processed}, false},
		{store.Move{JobID: stored[1].JobID, To: task.Dead, Set: store.Set{LastError: &boom}}, true},
		{store.Move{JobID: stored[1].JobID, To: task.Dead, Set: store.Set{LastError: &bang}}, false},
		{store.Move{JobID: stored[2].JobID, From: task.Dead, Set: store.Set{ActionTime: &soon, Attempts: &fresh}}, true},
		{store.Move{JobID: stored[2].JobID, From: task.Dead, Set: store.Set{ActionTime: &late, Attempts: &fresh}}, false},
		{store.Move{JobID: stored[3].JobID, Set: store.Set{ActionTime: &soon}}, true},
		{store.Move{JobID: stored[3].JobID, Set: store.Set{ActionTime: &late}}, true},
		{store.Move{JobID: stored[3].JobID, Set: store.Set{ActionTime: &late}}, true},
	}
	var moves []store.Move
	var want []bool
	for _, m := range batch {
		moves, want = append(moves, m.Move), append(want, m.want)
	}
	applied, err := f.Apply(t.Context(), 0, f.Stamp(0), moves)
	require.NoError(t, err)
	require.Equal(t, want, applied)

	all := f.everything(t)
	require.Equal(t, task.Cancelled, all[stored[0].JobID].Status)
	require.Equal(t, "boom", all[stored[1].JobID].LastError)
	require.Equal(t, [2]any{task.Pending, soon}, [2]any{all[stored[2].JobID].Status, all[stored[2].JobID].ActionTime})
	require.Equal(t, late, all[stored[3].JobID].ActionTime)
}

// redrivesOnlyTheDead: a task that was stored this very millisecond is pending
// already, and was not made so by the redrive.
func redrivesOnlyTheDead(t *testing.T, p place) {
	f := p.open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
	applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, From: task.Dead, To: task.Pending})
	require.NoError(t, err)
	require.False(t, applied)
}

// adminsMovesCount: what was changed by plain SQL is what the next move meets.
func adminsMovesCount(t *testing.T, p place) {
	f := p.open(t, small)
	one := f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(0)})[0]
	shard := f.layout.Shard(9)
	f.hand(t, shard, "UPDATE %s SET status=3 WHERE job_id=?", f.id(one.JobID))
	applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Processed})
	require.NoError(t, err)
	require.False(t, applied, "cancelled meanwhile")
	f.hand(t, shard, "UPDATE %s SET status=0 WHERE job_id=?", f.id(one.JobID))
	applied, err = f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Processed})
	require.NoError(t, err)
	require.True(t, applied)
}

// A text that the column does not take fails the batch, and nothing is written.
func movesAllOrNothing(t *testing.T, p place) {
	f := p.open(t, small)
	stored := f.spread(t, 40)
	before := f.everything(t)
	long := strings.Repeat("x", 300)
	moves := make(map[int][]store.Move)
	for _, one := range stored {
		d := f.layout.Database(f.layout.Shard(one.BizID))
		moves[d] = append(moves[d], store.Move{JobID: one.JobID, To: task.Cancelled})
	}
	for d := range maps.Keys(moves) {
		moves[d][len(moves[d])-1].LastError = &long
		applied, err := f.Apply(t.Context(), d, f.Stamp(d), moves[d])
		require.ErrorContains(t, err, "last_error")
		require.Nil(t, applied)
	}
	require.Equal(t, before, f.everything(t))
	for _, one := range stored {
		applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, To: task.Processed})
		require.NoError(t, err, "the connection is as good as before")
		require.True(t, applied)
	}
}

// countsStarts: package worker counts starts that have no end in the column lease, each by a compare-and-set of many tasks. Rows that a hand
// has changed since stay as they are.
func countsStarts(t *testing.T, p place) {
	f := p.open(t, small)
	var list []task.Task
	for i := range 200 { // more than share a transaction with other databases
		list = append(list, f.put(t, task.Task{BizID: uint64(i), BizType: 1, ActionTime: f.in(-1 - i%3)})...)
	}
	now := f.in(0)
	mark := func(from, to uint64, list ...task.Task) (applied []bool) {
		moves := make([]store.Move, len(list))
		for i := range list {
			moves[i] = store.Move{JobID: list[i].JobID, From: task.Pending, To: task.Pending, Read: &list[i], DueBy: &now, HasLease: &from,
				Set: store.Set{Lease: &to}}
		}
		for _, m := range f.MoveAll(t.Context(), moves) {
			require.NoError(t, m.Err)
			applied = append(applied, m.Applied)
		}
		return applied
	}
	byHand := func(one task.Task, set string, args ...any) {
		shard, _ := f.layout.ShardOf(one.JobID)
		f.hand(t, shard, "UPDATE %s SET "+set+" WHERE job_id=?", append(args, f.id(one.JobID))...)
	}
	require.NotContains(t, mark(0, 1, list...), false)
	byHand(list[0], "action_time=?", f.at(f.in(60)))
	byHand(list[1], "status=3")
	byHand(list[2], "attempts=7")
	byHand(list[3], "lease=NULL")
	applied := mark(1, 2, list...)
	require.Equal(t, []bool{false, false, false, false, true}, applied[:5])
	require.NotContains(t, applied[4:], false)
	require.NotContains(t, mark(1, 2, list[4:]...), true, "each is made once")
	for _, row := range f.everything(t) {
		require.Contains(t, []uint64{0, 1, 2}, row.Lease)
		require.Equal(t, int(row.Lease), row.Cuts())
	}
	f.apply(t, store.Move{JobID: list[4].JobID, From: task.Pending, To: task.Dead})
	require.Zero(t, f.everything(t)[list[4].JobID].Lease, "who is redriven begins anew")
}
