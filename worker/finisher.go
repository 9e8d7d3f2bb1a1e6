package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/dispatch"
	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// finish is a run that has ended and waits to be recorded.
type finish struct {
	entry      *queue.Entry
	bizType    *task.BizType
	outcome    Outcome
	move       store.Move
	row        task.Task // as it will stand
	ran        time.Duration
	tableErr   error     // what is wrong with its table; see lockedRows
	waitsSince time.Time // since when it waits there
}

// maxFlush is how many outcomes one transaction records at most.
const maxFlush = 1000

// Where many outcomes a second are to be recorded, firing goes first: they wait for
// each other, for a moment. At worst so many tasks more run again after a crash.
const (
	paceEvery = 200 * time.Millisecond
	paceFull  = 250
	paceRate  = 500 // a second, of a database
)

// finisher makes outcomes durable: per database, one flush at a time, the next
// one takes what arrived meanwhile. A task stays in the queue, as running, until
// its outcome is durable, so nobody can run it again before.
type finisher struct {
	cfg        Config
	onRecorded func(jobID uint64) // told of each outcome that is durable
	groups     []*groupcommit.Group[finish]
	failing    []atomic.Pointer[error] // by database: why its last flush failed, which is tried again
	locked     *lockedRows
}

func (f *finisher) start(ctx context.Context) {
	for d := range f.cfg.Layout.Databases {
		g := groupcommit.New(maxFlush, 1, func(batch []finish) { f.flush(ctx, d, batch) })
		f.groups = append(f.groups, g.WithDelay(paceEvery, paceFull, paceRate))
	}
}

// add hands outcomes over. Those of one database stay together.
func (f *finisher) add(list ...finish) {
	for len(list) > 0 {
		d := f.cfg.Layout.PartitionDatabase(list[0].entry.Partition)
		n := 1
		for n < len(list) && f.cfg.Layout.PartitionDatabase(list[n].entry.Partition) == d {
			n++
		}
		f.groups[d].Add(list[:n]...)
		list = list[n:]
	}
}

// writable tells whether the outcome of a task could be recorded now, as far as is
// known.
func (f *finisher) isWritable(e *queue.Entry) bool {
	d := f.cfg.Layout.PartitionDatabase(e.Partition)
	return f.cfg.Store.Writable(d) && f.failing[d].Load() == nil && !f.locked.isOverLimit(e.ID(), d)
}

func (f *finisher) wait() {
	for _, g := range f.groups {
		g.Wait()
	}
	f.locked.loops.Wait()
}

// flush records a batch. What waits for the lock of a row is set aside.
func (f *finisher) flush(ctx context.Context, database int, batch []finish) {
	f.setAside(ctx, database, f.record(ctx, database, batch))
}

// record tries until a batch is durable or ctx, the program's own patience, ends.
// Without a record the tasks are still pending and run again. It gives back the
// outcomes whose rows another transaction has locked.
func (f *finisher) record(ctx context.Context, database int, batch []finish) (locked []finish) {
	moves := make([]store.Move, len(batch))
	for i := range batch {
		moves[i] = batch[i].move
	}
	applied, held, ok := f.apply(ctx, database, moves)
	if !ok {
		return nil
	}
	var edited []finish
	for i := range batch {
		switch {
		case applied[i]:
			f.complete(&batch[i])
		case recordLocked(held, &batch[i]):
			locked = append(locked, batch[i])
		default:
			edited = append(edited, batch[i])
		}
	}
	for try := 0; len(edited) > 0 && try < amendTries; try++ {
		var more []finish
		edited, more = f.settleEdited(ctx, database, edited)
		locked = append(locked, more...)
	}
	for i := range edited { // they keep changing under our hands: whoever does it wins
		f.fence(&edited[i], edited[i].entry.Task, FencedMoved)
	}
	return locked
}

// amendTries bounds how often an outcome is written anew because its row was edited once more.
const amendTries = 5

// apply makes moves, with growing pauses until the database takes them, and tells which of them met a locked row or a
// broken table: nothing is written of those. ok is false when ctx ended before.
func (f *finisher) apply(ctx context.Context, database int, moves []store.Move) (applied []bool, held map[uint64]error, ok bool) {
	stamp := f.cfg.Store.Stamp(database)
	pause := 50 * time.Millisecond
	for try := 1; ; try++ {
		// A record on its way is not cut off: the store bounds its time.
		applied, err := f.cfg.Store.Apply(context.WithoutCancel(ctx), database, stamp, moves)
		locked, is := errors.AsType[*store.LockedError](err)
		if is {
			held, err = locked.Tasks, nil
		}
		if err == nil {
			if f.failing[database].Swap(nil) != nil {
				f.cfg.Dispatch.Tick() // tasks were left in the store
			}
			if try > 1 {
				f.cfg.Logger.Info("outcomes recorded after all", "database", database, "tasks", len(moves), "tries", try)
			}
			return applied, held, true
		}
		f.failing[database].Store(&err)
		if ctx.Err() != nil {
			f.cfg.Logger.Error("outcomes not recorded: these tasks will run again", "database", database, "tasks", len(moves), "error", err)
			return nil, nil, false
		}
		f.cfg.Logger.Warn("outcomes not recorded yet, trying again", "database", database, "tasks", len(moves), "retry_in", pause, "error", err)
		_ = wait.For(ctx, pause)
		pause = min(2*pause, 2*time.Second)
	}
}

// settleEdited settles outcomes whose rows are not as they were read: by hand, or by
// a newer owner. What was edited stays; the rest of an outcome is written. It gives
// back those whose row has changed once more, and those whose row is locked.
func (f *finisher) settleEdited(ctx context.Context, database int, batch []finish) (again, locked []finish) {
	entries := make([]*queue.Entry, len(batch))
	for i := range batch {
		entries[i] = batch[i].entry
	}
	rows, unread := loadRows(context.WithoutCancel(ctx), f.cfg.Store, entries) // the store bounds its time
	var moves []store.Move
	var open []finish
	var fences [][]Fence
	for i := range batch {
		d := &batch[i]
		row, there := rows[d.entry.Task.JobID]
		switch {
		case !there && unread != nil: // its table is locked or gone, or the database has gone just now
			if d.tableErr = nil; !errors.Is(unread, task.ErrLocked) {
				d.tableErr = unread
			}
			locked = append(locked, *d)
			continue
		case !there:
			row = d.entry.Task
			row.Status = task.Cancelled // as good as
			f.fence(d, row, FencedStatus)
			continue
		case row.Status != task.Pending:
			f.fence(d, row, FencedStatus)
			continue
		case d.outcome == Dead && d.move.Attempts == nil: // it expired, and somebody wants it to run
			f.fence(d, row, FencedMoved)
			continue
		}
		m, fenced := d.move, []Fence(nil)
		if d.outcome == Failed || d.outcome == Dead {
			m, d.row, fenced = d.amend(row, f.cfg.Now())
			d.outcome = Failed
		} // else it came back to pending in between: once more
		moves, open, fences = append(moves, m), append(open, *d), append(fences, fenced)
	}
	if len(moves) == 0 {
		return nil, locked
	}
	applied, held, ok := f.apply(ctx, database, moves)
	if !ok {
		return nil, nil
	}
	for i := range open {
		if recordLocked(held, &open[i]) {
			locked = append(locked, open[i])
			continue
		}
		if !applied[i] {
			again = append(again, open[i])
			continue
		}
		for _, why := range fences[i] {
			f.cfg.Observer.Fenced(*open[i].bizType, why)
		}
		f.complete(&open[i])
	}
	return again, locked
}

// fence ends a run of which nothing is written; row is the task as it stands.
func (f *finisher) fence(d *finish, row task.Task, why Fence) {
	f.cfg.Observer.Fenced(*d.bizType, why)
	d.outcome, d.row = Fenced, row
	f.complete(d)
}

// done tells everybody of an outcome that is durable. A task that is to run again goes where it is found in time; a
// claimed one goes back to its engine.
func (f *finisher) complete(d *finish) {
	ours := d.row.Status == task.Pending && !d.entry.Claimed
	again := ours && f.cfg.Dispatch.Where(&d.row) == dispatch.Queue
	f.onRecorded(d.entry.ID()) // first: after that it may be started again
	f.cfg.Queue.Done(d.entry, d.row, again)
	if ours && !again {
		f.cfg.Dispatch.Place(d.row)
	}
	f.cfg.Observer.Finished(*d.bizType, d.outcome, d.ran)
}
