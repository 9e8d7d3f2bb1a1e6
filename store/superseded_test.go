package store_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// A task is superseded by a later one of its type and biz_id that is due, and pending or processed. What moves action_time later on
// makes none later: a lease, its settlement, a failed run, a redrive. (At 799f0ec each did, and the newest task was cancelled.)
func findsSuperseded(t *testing.T, p place) {
	f := p.open(t, small)
	now := f.in(0)
	put := func(t2 task.Task) task.Task { return f.put(t, t2)[0] }
	first := put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(-30)})
	same := put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(-30)}) // its job_id is greater
	later := put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(-10)})
	put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(10)})           // not due
	other := put(task.Task{BizID: 9, BizType: 2, ActionTime: f.in(-60)}) // of another type
	expired := put(task.Task{BizID: 9, BizType: 3, ActionTime: f.in(-70)})
	put(task.Task{BizID: 9, BizType: 3, ActionTime: f.in(-60)})
	text := put(task.Task{BizID: 9, BizKey: "k", BizType: 1, ActionTime: f.in(-40)})
	dead := put(task.Task{BizID: 17, BizType: 1, ActionTime: f.in(-40)})
	f.setStatus(t, task.Dead, put(task.Task{BizID: 17, BizType: 1, ActionTime: f.in(-20)}))
	done := put(task.Task{BizID: 25, BizType: 1, ActionTime: f.in(-40)})
	f.setStatus(t, task.Processed, put(task.Task{BizID: 25, BizType: 1, ActionTime: f.in(-20)}))

	var moved []task.Task
	move := func(m store.Move) {
		older := put(task.Task{BizID: 33 + 8*uint64(len(moved)), BizType: 1, ActionTime: f.in(-60)})
		newer := put(task.Task{BizID: older.BizID, BizType: 1, ActionTime: f.in(-30)})
		m.JobID = older.JobID
		if m.From == task.Dead {
			f.setStatus(t, task.Dead, older)
			shard, _ := f.layout.ShardOf(older.JobID)
			f.hand(t, shard, "UPDATE %s SET last_error='x' WHERE job_id=?", f.id(older.JobID))
		}
		applied, err := f.Move(t.Context(), m)
		require.NoError(t, err)
		require.True(t, applied)
		moved = append(moved, newer)
	}
	at, end := f.in(-5), f.in(20)
	move(store.Move{Set: store.Set{ActionTime: &end, KeepDue: true, Lease: new(task.NewLease(end))}})
	move(store.Move{Set: store.Set{ActionTime: &at, KeepDue: true, Attempts: new(1), LastError: new("x")}})
	move(store.Move{From: task.Dead, Set: store.Set{ActionTime: &at, Attempts: new(0), NewPromise: true}})
	move(store.Move{To: task.Processed, Set: store.Set{Restore: true}})
	move(store.Move{From: task.Dead, Set: store.Set{ActionTime: &at, Attempts: new(3), NewPromise: true}}) // as by SQL, one more run

	byDatabase := map[int][]task.Task{}
	for _, one := range slices.Concat(moved, []task.Task{first, same, later, other, expired, text, dead, done}) {
		shard, _ := f.layout.ShardOf(one.JobID)
		d := f.layout.Database(shard)
		byDatabase[d] = append(byDatabase[d], one)
	}
	found := map[uint64]bool{}
	for d, list := range byDatabase {
		part, err := f.Superseded(t.Context(), d, list, store.Rivals{Now: now, Expired: f.in(-50), MaxRetries: 2})
		require.NoError(t, err)
		for id := range part {
			found[id] = true
		}
	}
	require.Equal(t, map[uint64]bool{first.JobID: true, same.JobID: true, done.JobID: true}, found)
}

// What consumers have is read of one partition and type, without what is parked, over or edited by hand.
func readsLeases(t *testing.T, p place) {
	f := p.open(t, small)
	leased := func(bizType uint64, end time.Time) task.Task {
		one := f.put(t, task.Task{BizID: 9, BizType: bizType, ActionTime: f.in(-30)})[0]
		applied, err := f.Move(t.Context(), store.Move{JobID: one.JobID, Set: store.Set{ActionTime: &end, KeepDue: true, Lease: new(task.NewLease(end))}})
		require.NoError(t, err)
		require.True(t, applied)
		return one
	}
	one, byHand := leased(1, f.in(10)), leased(1, f.in(10))
	leased(1, f.in(-10))
	leased(1, f.in(90))
	leased(2, f.in(10))
	f.put(t, task.Task{BizID: 9, BizType: 1, ActionTime: f.in(10)})
	shard, _ := f.layout.ShardOf(one.JobID)
	f.hand(t, shard, "UPDATE %s SET action_time=? WHERE job_id=?", f.at(f.in(11)), f.id(byHand.JobID))
	list, err := f.Leased(t.Context(), f.layout.Partition(shard), 1, f.in(0), f.in(60))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, one.JobID, list[0].JobID)
}

// Of the rivals exactly one is the latest, however they were redriven and moved. Before, a redriven task was later than one that was
// promised for later than a third one, which was later than the redriven one: all three were cancelled.
func oneIsLatest(t *testing.T, p place) {
	f := p.open(t, small)
	now, random := f.in(0), rand.New(rand.NewPCG(1, 1))
	for bizID := range uint64(40) {
		var list []task.Task
		for range 2 + random.IntN(5) {
			one := f.put(t, task.Task{BizID: 1000 + bizID, BizType: 1, ActionTime: f.in(-20 + random.IntN(15))})[0]
			move := func(m store.Move) {
				m.JobID = one.JobID
				ok, err := f.Move(t.Context(), m)
				require.NoError(t, err)
				require.True(t, ok)
			}
			die := func() { move(store.Move{To: task.Dead, Set: store.Set{Attempts: ptr(1), LastError: ptr("x")}}) }
			at := f.in(-random.IntN(20))
			moved := store.Move{Set: store.Set{ActionTime: &at, NewPromise: true}}
			redriven := store.Move{From: task.Dead, Set: store.Set{ActionTime: ptr(f.in(-2)), Attempts: ptr(0), NewPromise: true}}
			shard, _ := f.layout.ShardOf(one.JobID)
			switch random.IntN(6) {
			case 0:
				move(moved)
			case 1:
				die()
				move(redriven)
			case 2:
				die()
				move(redriven)
				move(moved)
			case 3:
				die()
				f.hand(t, shard, "UPDATE %s SET status=0,action_time=?,due_time=NULL WHERE job_id=?", f.at(f.in(-2)), f.id(one.JobID)) // as docs/sql.md has it
			case 4:
				move(store.Move{Set: store.Set{ActionTime: &at, KeepDue: true, Attempts: ptr(1), LastError: ptr("x")}})
				move(moved)
			}
			rows, err := f.Load(t.Context(), []uint64{one.JobID})
			require.NoError(t, err)
			list = append(list, rows...)
		}
		shard, _ := f.layout.ShardOf(list[0].JobID)
		found, err := f.Superseded(t.Context(), f.layout.Database(shard), list, store.Rivals{Now: now})
		require.NoError(t, err)
		require.Len(t, found, len(list)-1, "%v: %v", list, found)
	}
}
