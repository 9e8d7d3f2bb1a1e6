package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// finish is a run that has ended and is not recorded yet.
type finish struct {
	entry     *queue.Entry
	bizType   *task.BizType
	outcome   Outcome
	move      store.Move
	row       task.Task // the task after the move
	ran       time.Duration
	late      time.Duration // from the promised time to the start
	heldSince time.Time     // when it was found that its row is locked, or its table cannot be written; see heldOutcomes
	tableErr  error         // why its table cannot be written; nil: its row is locked
}

// maxFlush is the maximum number of outcomes in one transaction.
const maxFlush = 1000

// Many outcomes are recorded together. From sharedFrom outcomes a second of a database on, some share a transaction; from denseFrom
// or denseRows for each table on, those of a table share a statement. After a crash the tasks whose outcomes were still waiting run
// again.
const (
	sharedFrom = 25
	sharedGap  = 50 * time.Millisecond
	denseFrom  = 500
	denseRows  = 2
	denseGap   = time.Second
	enoughRows = 8 // of a table in a flush: more save little
)

// finisher makes outcomes durable. It has one flush at a time per database, and the next one takes all that
// arrived meanwhile. A task stays in the queue as running until its outcome is durable, so it cannot start
// again before.
type finisher struct {
	cfg     Config
	marks   *marks
	groups  []*groupcommit.Group[*finish]
	failing []atomic.Pointer[error] // by database: the error of its last flush, which is being repeated
	held    *heldOutcomes
}

func (f *finisher) start(ctx context.Context) {
	for d := range f.cfg.Layout.Databases {
		g := groupcommit.New(maxFlush, 1, func(batch []*finish) { f.record(ctx, d, batch) })
		f.groups = append(f.groups, g.WithSpacings(
			groupcommit.Spacing[*finish]{Rate: sharedFrom, Gap: sharedGap},
			groupcommit.Spacing[*finish]{Rate: float64(max(denseFrom, denseRows*f.cfg.Layout.TablesPerDatabase)), Gap: denseGap,
				Enough: f.isDense}))
	}
}

// isAwaited reports whether another node waits for outcomes, to take their partition.
func (f *finisher) isAwaited(list []*finish) bool {
	for i, d := range list {
		isKnown := i > 0 && d.entry.Partition == list[i-1].entry.Partition
		if !isKnown && f.cfg.Ownership.Term(d.entry.Partition) != d.entry.Term() {
			return true
		}
	}
	return false
}

// isDense reports whether the outcomes of a table are enough for a statement.
func (f *finisher) isDense(pending []*finish) bool {
	tables := make([]bool, f.cfg.Layout.TablesPerDatabase)
	n := 0
	for _, d := range pending {
		shard, _ := f.cfg.Layout.ShardOf(d.entry.ID())
		if t := f.cfg.Layout.Table(shard); !tables[t] {
			tables[t] = true
			n++
		}
	}
	return len(pending) >= enoughRows*n
}

// hurry makes the outcomes that wait for others be recorded now.
func (f *finisher) hurry() {
	for _, g := range f.groups {
		g.Hurry()
	}
}

// add queues outcomes. Those of one database stay together.
func (f *finisher) add(list ...*finish) {
	ended := make([]*queue.Entry, len(list))
	for i, d := range list {
		ended[i] = d.entry
	}
	isLast, isTight := f.cfg.Queue.RunsEnded(ended...) // the last: nothing more comes before they are recorded
	isAwaited := f.isAwaited(list)
	for len(list) > 0 {
		d := f.cfg.Layout.PartitionDatabase(list[0].entry.Partition)
		n := 1
		for n < len(list) && f.cfg.Layout.PartitionDatabase(list[n].entry.Partition) == d {
			n++
		}
		f.groups[d].Add(list[:n]...)
		if isLast || isAwaited {
			f.groups[d].Hurry()
		}
		list = list[n:]
	}
	if isTight {
		f.hurry()
	}
}

// isWritable reports whether the outcome of a task could be recorded now, as far as is known.
func (f *finisher) isWritable(e *queue.Entry) bool {
	d := f.cfg.Layout.PartitionDatabase(e.Partition)
	return f.cfg.Store.Writable(d) && f.failing[d].Load() == nil && !f.held.isOverLimit(e.ID())
}

func (f *finisher) wait() {
	for _, g := range f.groups {
		g.Wait()
	}
	f.held.open.Wait()
	if n := f.held.dropped.Load(); n > 0 {
		f.cfg.Logger.Error("outcomes not recorded: these tasks will run again", "tasks", n,
			"error", "their rows are locked, or their tables cannot be written")
	}
}

// record retries until a batch is durable or ctx, which bounds the program's shutdown, ends. Tasks without a
// recorded outcome are still pending and run again. An outcome whose row is locked does not keep the others waiting.
func (f *finisher) record(ctx context.Context, database int, batch []*finish) {
	moves := make([]store.Move, len(batch))
	for i := range batch {
		moves[i] = batch[i].move
	}
	applied, locked, ok := f.apply(ctx, database, moves)
	if !ok {
		for _, d := range batch {
			f.drop(d)
		}
		return
	}
	var edited []*finish
	recorded := make([]*finish, 0, len(batch))
	for i, d := range batch {
		tableErr, isLocked := locked[d.entry.ID()]
		switch {
		case applied[i]:
			recorded = append(recorded, d)
		case isLocked:
			f.hold(ctx, database, d, d.move, tableErr, nil)
		default:
			edited = append(edited, d)
		}
	}
	f.complete(recorded...)
	for try := 0; len(edited) > 0 && try < amendTries; try++ {
		edited = f.settleEdited(ctx, database, edited)
	}
	for i := range edited { // the rows keep changing: the other writer wins
		f.fence(edited[i], edited[i].entry.Task, FencedMoved)
	}
}

// amendTries is how often an outcome is rewritten because its row was edited once more.
const amendTries = 5

// apply makes moves. It retries with growing pauses until the database accepts them, and returns the tasks with
// a locked row or a broken table: it wrote nothing for those. ok is false if ctx ended first.
func (f *finisher) apply(ctx context.Context, database int, moves []store.Move) (applied []bool, held map[uint64]error, ok bool) {
	stamp := f.cfg.Store.Stamp(database)
	pauses := wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}
	for try := 1; ; try++ {
		// Do not cancel a write that is under way: the store bounds its time.
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
		pause := pauses.Next()
		f.cfg.Logger.Warn("outcomes not recorded yet, trying again", "database", database, "tasks", len(moves), "retry_in", pause, "error", err)
		_ = wait.For(ctx, pause)
	}
}

// settleEdited handles outcomes whose rows have changed since they were read, by hand or by a newer owner. It
// keeps the edited columns and writes the rest of the outcome. It returns the outcomes whose rows changed once
// more.
func (f *finisher) settleEdited(ctx context.Context, database int, batch []*finish) (again []*finish) {
	entries := make([]*queue.Entry, len(batch))
	for i := range batch {
		entries[i] = batch[i].entry
	}
	rows, unread := loadRows(context.WithoutCancel(ctx), f.cfg.Store, entries) // the store bounds its time
	var moves []store.Move
	var open []*finish
	var fences [][]Fence
	for _, d := range batch {
		row, there := rows[d.entry.Task.JobID]
		switch {
		case !there && unread != nil: // its table is locked or missing, or the database has just failed
			var tableErr error
			if !errors.Is(unread, task.ErrLocked) {
				tableErr = unread
			}
			f.hold(ctx, database, d, d.move, tableErr, nil)
			continue
		case !there:
			row = d.entry.Task
			row.Status = task.Cancelled // the row is gone: the same as cancelled
			f.fence(d, row, FencedStatus)
			continue
		case row.Status != task.Pending:
			f.fence(d, row, FencedStatus)
			continue
		// Its consumer still has it, or has ended it.
		case d.move.HasLease != nil && (!task.IsSameLease(row.Lease, d.entry.Task.Lease) || !row.HasLease() || row.IsLeased(f.cfg.Now())):
			f.fence(d, row, FencedMoved)
			continue
		case d.isSkipped(): // a later edit wants it to run
			f.fence(d, row, FencedMoved)
			continue
		}
		m, fenced := d.move, []Fence(nil)
		if d.outcome == Failed || d.outcome == Dead {
			m, d.row, fenced = amend(d.bizType, d.entry.Task, d.move, row, f.cfg.Now())
			d.outcome = Failed
		} // else it became pending again meanwhile: retry
		moves, open, fences = append(moves, m), append(open, d), append(fences, fenced)
	}
	if len(moves) == 0 {
		return nil
	}
	applied, locked, ok := f.apply(ctx, database, moves)
	for i, d := range open {
		switch tableErr, isLocked := locked[d.entry.ID()]; {
		case !ok:
			f.drop(d)
		case isLocked:
			f.hold(ctx, database, d, moves[i], tableErr, fences[i])
		case applied[i]:
			f.completeAmended(d, fences[i])
		default:
			again = append(again, d)
		}
	}
	return again
}

// completeAmended reports a durable outcome of which a part was not written.
func (f *finisher) completeAmended(d *finish, fences []Fence) {
	for _, why := range fences {
		f.cfg.Observer.Fenced(*d.bizType, why)
	}
	f.complete(d)
}

// fence ends a run without writing anything; row is the task as the store has it.
func (f *finisher) fence(d *finish, row task.Task, why Fence) {
	f.cfg.Observer.Fenced(*d.bizType, why)
	d.outcome, d.row = Fenced, row
	f.complete(d)
}

// complete reports durable outcomes.
func (f *finisher) complete(list ...*finish) {
	changes := make([]dispatch.Change, len(list))
	for i, d := range list {
		changes[i] = dispatch.Change{Row: &d.row, Entry: d.entry}
		if !d.heldSince.IsZero() {
			f.release(d)
			defer f.held.open.Done()
		}
		f.marks.end(d.entry) // first: after Moved the task may start again
	}
	f.cfg.Dispatch.Moved(changes...)
	for _, d := range list {
		f.cfg.Observer.Finished(*d.bizType, d.outcome, d.ran, d.late)
	}
}
