package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// cutsOf returns the number of earlier starts of a task that had no end, and whether the journal must have this
// start before it begins.
func (p *history) cutsOf(t *task.Task, limit int) (cuts int, write bool) {
	if p.clean {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.starts[t.JobID]; ok && r.Attempts == t.Attempts {
		return r.Cuts + 1, true
	}
	if p.before.IsZero() || t.ActionTime.After(p.before) {
		return 0, false
	}
	// An earlier start may have ended the process. This is only a guess, so it does not make the task dead.
	return min(1, limit-1), true
}

// prepare returns the tasks that may start now. It first writes the starts that the journal must have. A task
// with too many starts without an end becomes dead instead. A task that is one start away from that runs alone,
// so that no other task is blamed if its run ends the process.
func (w *worker) prepare(ctx context.Context, entries []*queue.Entry) []*queue.Entry {
	if w.journal.isClean(entries) {
		return entries
	}
	limit := max(1, w.bizType.Cuts)
	ready := entries[:0]
	var first []startOf
	for _, e := range entries {
		p := w.journal.historyOf(ctx, e.Partition, e.Term())
		if p == nil {
			w.cfg.Queue.Return(e)
			continue
		}
		switch cuts, write := p.cutsOf(&e.Task, limit); {
		case !write:
			ready = append(ready, e)
		case cuts >= limit:
			w.declareDead(e, cuts, p)
		case cuts+1 == limit:
			from := p.before.Add(lastChanceDelay)
			until := from.Add(aloneFor)
			if p.before.IsZero() {
				until = p.read.Add(aloneFor)
			}
			if w.cfg.Now().After(until) { // the rest runs together; each still has its last chance
				first = append(first, startOf{entry: e, cuts: max(0, cuts-1)})
				continue
			}
			w.group.Go(func() { w.runAlone(ctx, e, cuts, from, until) })
		default:
			first = append(first, startOf{entry: e, cuts: cuts})
		}
	}
	w.journal.write(first)
	for _, s := range first {
		if s.err != nil {
			w.returnEntry(s.entry)
		} else {
			ready = append(ready, s.entry)
		}
	}
	return w.confirm(ctx, ready)
}

// confirm returns the tasks that may still start. If time has passed since their rows were read, it reads them
// again, so that a change by plain SQL is honoured.
func (w *worker) confirm(ctx context.Context, entries []*queue.Entry) []*queue.Entry {
	ready := entries[:0]
	var stale []*queue.Entry
	for _, e := range entries {
		switch {
		case ctx.Err() != nil || !w.cfg.Queue.MayStart(e) || !w.finisher.isWritable(e):
			w.returnEntry(e)
		case w.cfg.Queue.IsStale(e):
			stale = append(stale, e)
		default:
			ready = append(ready, e)
		}
	}
	if len(stale) == 0 {
		return ready
	}
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
		w.returnEntry(e)
	}
	return ready
}

// isClean reports whether the entries' partitions have no earlier starts that matter: the usual case.
func (j *journal) isClean(entries []*queue.Entry) bool {
	for _, e := range entries {
		p := j.known[e.Partition].Load()
		if p == nil || p.term != e.Term() || !p.clean {
			return false
		}
	}
	return true
}

// returnEntry gives back a task that the journal may have.
func (w *worker) returnEntry(e *queue.Entry) {
	w.journal.removeStart(e.ID()) // first: after Return the task may start again
	w.cfg.Queue.Return(e)
}

// declareDead makes a task dead that started too often without an end.
func (w *worker) declareDead(e *queue.Entry, cuts int, p *history) {
	text := fmt.Sprintf("started %d times without an end: its run may end the process", cuts)
	row := e.Task
	row.Status, row.LastError = task.Dead, text
	w.cfg.Logger.Warn("task is dead", "biz_type", w.bizType.Name, "job_id", row.JobID, "biz_id", row.GivenBizID(), "cuts", cuts, "error", text)
	p.mu.Lock()
	w.journal.track(journalWrite{row: p.starts[row.JobID]}) // removed when that is recorded
	p.mu.Unlock()
	w.finisher.add(&finish{entry: e, bizType: &w.bizType, outcome: Dead, row: row,
		move: store.Move{JobID: row.JobID, From: task.Pending, To: task.Dead, Read: &e.Task, Set: store.Set{LastError: &text}}})
	w.failed = append(w.failed, failure{row, errors.New(text)})
}

// lastChanceDelay is how long a process must have had a partition before it starts a task's last chance. If
// processes end repeatedly for another reason, soon after they start, the tasks that run first must not become
// dead.
const lastChanceDelay = 5 * time.Second

// aloneFor is how long tasks run alone then. After a minute without a crash most of the waiting tasks are
// innocent: processes that end for another reason leave hundreds of them each time.
const aloneFor = time.Minute

// runAlone runs a task between two times, and no other such task on this node meanwhile. The next one starts
// when its run has ended.
func (w *worker) runAlone(ctx context.Context, e *queue.Entry, cuts int, from, until time.Time) {
	wanted := w.cfg.Queue.Postpone(e)
	if !w.awaitTurn(ctx, e, from, until, wanted) {
		w.cfg.Queue.Return(e)
		return
	}
	next := sync.OnceFunc(func() { <-w.alone })
	start := []startOf{{entry: e, cuts: cuts, onRemoved: next}}
	w.journal.write(start)
	read := w.cfg.Now()
	rows, _ := w.reread(ctx, []*queue.Entry{e})
	if row, ok := rows[e.ID()]; start[0].err != nil || !ok || !w.cfg.Queue.Start(e, row, read) {
		w.returnEntry(e)
		next()
		return
	}
	// A run that hangs is reported as stuck like any other, and the next one does not wait for it.
	x := &worker{pool: w.pool, run: run{replace: next}}
	w.watch.add(x)
	defer w.watch.remove(x)
	defer x.fire(ctx) // records a run that ended the goroutine
	x.pending = x.admit(ctx, []*queue.Entry{e}, w.cfg.Now())
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
	readCtx, cancel := context.WithTimeout(ctx, journalTimeout)
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
