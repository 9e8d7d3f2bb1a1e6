package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// A run may end its process. Its row is still pending then, so the task would run again, and end the next process. So the starts
// that had no end, the cuts, are counted in the row: see marks. Only suspects need that: tasks with such a count, and tasks that
// were due when this node took their partition from a process that did not hand it over. Any of those may have ended that process.

// prepare returns the tasks that may start now. It marks the starts of suspects. A suspect with too many starts without an end
// becomes dead instead. A suspect that is one start away from that runs alone, so that no other task is blamed if its run ends the
// process.
func (w *worker) prepare(ctx context.Context, entries []*queue.Entry) []*queue.Entry {
	ready := entries[:0]
	var starts []*start
	var back []*queue.Entry
	limit := max(2, w.bizType.Cuts) // the first one is a guess, which makes no task dead
	for _, e := range entries {
		cuts, suspect := w.cutsOf(e)
		if !suspect {
			ready = append(ready, e)
			continue
		}
		s := &start{entry: e, cuts: cuts, mark: uint64(cuts + 1)}
		taken, _ := w.cfg.Ownership.Taken(e.Partition)
		from := taken.Add(lastChanceDelay)
		until := from.Add(aloneFor)
		switch lastChance := cuts+1 == limit; {
		case !w.mayMark(e):
			back = append(back, e)
		case cuts >= limit:
			w.declareDead(e, cuts)
		case lastChance && w.cfg.Now().Before(until):
			w.group.Go(func() { w.runAlone(ctx, s, from, until) })
		case lastChance: // the rest runs together; each still has its last chance
			s.mark = uint64(cuts)
			fallthrough
		default:
			starts = append(starts, s)
		}
	}
	w.returnEntries(back...)
	if len(starts) == 0 {
		return ready
	}
	return w.confirm(ctx, append(ready, w.markAll(starts)...))
}

// cutsOf returns how many starts of a task had no end, and whether it is a suspect.
func (r *Runner) cutsOf(e *queue.Entry) (cuts int, suspect bool) {
	if n := e.Task.Cuts(); n > 0 {
		if s := r.marks.unmadeOf(e); s != nil {
			n = s.cuts
		}
		return n, true
	}
	at, unclean := r.cfg.Ownership.TakenUncleanly(e.Partition)
	if !unclean || e.Task.ActionTime.After(at) {
		return 0, false
	}
	return 1, true // the start before may have ended the process; that is only a guess, so it makes no task dead
}

// mayMark reports whether a suspect may start now, as far as is known.
func (w *worker) mayMark(e *queue.Entry) bool {
	return w.cfg.Queue.MayStart(e) && w.finisher.isWritable(e) && w.marks.refusal(w.shardOf(e.ID()), w.cfg.Now()) == nil
}

// confirm returns the tasks that may still start. If time has passed since their rows were read, it reads them
// again, so that a change by plain SQL is honoured.
func (w *worker) confirm(ctx context.Context, entries []*queue.Entry) []*queue.Entry {
	ready := entries[:0]
	var stale, back []*queue.Entry
	for _, e := range entries {
		switch {
		case ctx.Err() != nil || !w.cfg.Queue.MayStart(e) || !w.finisher.isWritable(e):
			back = append(back, e)
		case w.cfg.Queue.IsStale(e):
			stale = append(stale, e)
		default:
			ready = append(ready, e)
		}
	}
	if len(stale) > 0 {
		read := w.cfg.Now()
		rows, err := w.reread(ctx, stale)
		for _, e := range stale {
			if row, ok := rows[e.ID()]; ok && w.cfg.Queue.Start(e, row, read) {
				ready = append(ready, e)
				continue
			}
			if err != nil && !e.Claimed { // it must be found again before the next tick
				defer w.cfg.Queue.SetResume(w.bizType.ID, e.Partition, task.KeyOf(&e.Task))
			}
			back = append(back, e)
		}
	}
	w.returnEntries(back...)
	return ready
}

// returnEntries gives back tasks that were taken and do not start after all.
func (w *worker) returnEntries(entries ...*queue.Entry) {
	var marked []*start
	for _, e := range entries {
		if s := w.marks.of(e); s != nil {
			marked = append(marked, s)
		}
	}
	w.undo(marked) // first: after Return the task may start again
	for _, e := range entries {
		w.cfg.Queue.Return(e)
	}
}

// declareDead makes a task dead that started too often without an end.
func (w *worker) declareDead(e *queue.Entry, cuts int) {
	row := w.die(e, fmt.Sprintf("started %d times without an end: its run may end the process", cuts))
	w.cfg.Logger.Warn("task is dead", "biz_type", w.bizType.Name, "job_id", row.JobID, "biz_id", row.GivenBizID(), "cuts", cuts,
		"error", row.LastError)
}

// lastChanceDelay is how long a process must have had a partition before it starts a task's last chance. If
// processes end repeatedly for another reason, soon after they start, the tasks that run first must not become
// dead.
const lastChanceDelay = 5 * time.Second

// aloneFor is how long tasks run alone then. After a minute without a crash most of the waiting tasks are
// innocent: processes that end for another reason leave hundreds of them each time.
const aloneFor = time.Minute

// runAlone runs a task between two times, and no other such task on this node meanwhile. The next one starts
// when its outcome is durable: until then this one could be blamed for an end of the process.
func (w *worker) runAlone(ctx context.Context, s *start, from, until time.Time) {
	wanted := w.cfg.Queue.Postpone(s.entry)
	if !w.awaitTurn(ctx, s.entry, from, until, wanted) {
		w.cfg.Queue.Return(s.entry)
		return
	}
	s.next = sync.OnceFunc(func() { <-w.alone })
	ready := w.confirm(ctx, w.markAll([]*start{s}))
	if len(ready) == 0 {
		return
	}
	// A run that hangs is reported as stuck like any other, and the next one does not wait for it.
	x := &worker{pool: w.pool, run: run{replace: s.next}}
	w.watch.add(x)
	defer w.watch.remove(x)
	defer x.fire(ctx) // records a run that ended the goroutine
	x.pending = x.admit(ctx, ready, w.cfg.Now())
	x.fire(x.label(ctx))
}

// awaitTurn waits for a time, and until no other task runs alone. It returns false if ctx has ended, another
// call wants the task, the task may not start here any more, or it is too late.
func (w *worker) awaitTurn(ctx context.Context, e *queue.Entry, from, until time.Time, wanted <-chan struct{}) bool {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for w.cfg.Queue.MayStart(e) && w.cfg.Now().Before(until) {
		turn := w.alone
		if w.cfg.Now().Before(from) {
			turn = nil
		}
		select {
		case turn <- struct{}{}:
			if w.cfg.Queue.MayStart(e) {
				return true
			}
			<-turn
			return false
		case <-wanted:
			return false
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// reread reads the rows of waiting tasks again and returns, by job_id, the tasks that are unchanged and may
// start. The others stay as they are in the store.
func (w *worker) reread(ctx context.Context, entries []*queue.Entry) (rows map[uint64]task.Task, err error) {
	readCtx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	rows, err = loadRows(readCtx, w.cfg.Store, entries)
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("rows not checked before their run; they stay in the store", "tasks", len(entries)-len(rows), "error", err)
	}
	for _, e := range entries {
		row, t := rows[e.ID()], &e.Task
		if row.Status != task.Pending || row.BizType != t.BizType || row.Attempts != t.Attempts || !row.ActionTime.Equal(t.ActionTime) {
			delete(rows, e.ID())
		}
	}
	return rows, err
}

// settleEvery is the time between two looks at the partitions that were taken uncleanly.
const settleEvery = 2 * time.Second

// settlePartitions looks at the partitions of a database until ctx ends. One that was taken uncleanly is settled once no task that was due
// by then is pending, and all its permits may be used.
func (r *Runner) settlePartitions(ctx context.Context, database int) {
	first, end := r.cfg.Layout.DatabasePartitions(database)
	for wait.Poll(ctx, settleEvery) == nil {
		for p := first; p < end; p++ {
			term := r.cfg.Ownership.Term(p)
			at, unclean := r.cfg.Ownership.TakenUncleanly(p)
			if term == 0 || !unclean || r.cfg.Queue.Withholds(p) {
				continue
			}
			next, none, err := r.cfg.Store.NextDue(ctx, p)
			if err != nil {
				break // try again at the next look
			}
			if none || next.After(at) {
				r.cfg.Ownership.Settled(p, term)
			}
		}
	}
}
