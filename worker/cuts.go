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

// cutsOf tells how many starts of a task before this one had no end, and whether
// it must be written down before it starts.
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
	// It may have been started, and may have ended the process at once. What is only
	// supposed does not make it dead.
	return min(1, limit-1), true
}

// prepare answers the tasks that may start now, once what must be written down is.
// A task whose starts had no end too often becomes dead instead. One that is a
// start away from it runs apart, alone: if its run ends the process once more, no
// other one is taken for the culprit.
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
			if w.cfg.Now().After(until) { // the rest runs together, and has its last chance still
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

// confirm answers the tasks that may start still. Where something took its time since
// their rows were read, these are read again: a change by plain SQL is honoured.
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
		if err != nil && !e.Claimed { // it is to be found again before the next tick
			defer w.cfg.Queue.SetResume(w.bizType.ID, e.Partition, task.KeyOf(&e.Task))
		}
		w.returnEntry(e)
	}
	return ready
}

// isQuiet tells whether nothing is known of starts before that concern the entries'
// partitions: the usual case.
func (j *journal) isClean(entries []*queue.Entry) bool {
	for _, e := range entries {
		p := j.known[e.Partition].Load()
		if p == nil || p.term != e.Term() || !p.clean {
			return false
		}
	}
	return true
}

// notStarted gives a task back that may be in the journal.
func (w *worker) returnEntry(e *queue.Entry) {
	w.journal.removeStart(e.ID()) // first: after that it may be started again
	w.cfg.Queue.Return(e)
}

// giveUp makes a task dead that was started too often without an end.
func (w *worker) declareDead(e *queue.Entry, cuts int, p *history) {
	text := fmt.Sprintf("started %d times without an end: its run may end the process", cuts)
	row := e.Task
	row.Status, row.LastError = task.Dead, text
	w.cfg.Logger.Warn("task is dead", "biz_type", w.bizType.Name, "job_id", row.JobID, "biz_id", row.BizID, "cuts", cuts, "error", text)
	p.mu.Lock()
	w.journal.track(journalWrite{row: p.starts[row.JobID]}) // goes when that is recorded
	p.mu.Unlock()
	w.finisher.add(finish{entry: e, bizType: &w.bizType, outcome: Dead, row: row,
		move: store.Move{JobID: row.JobID, From: task.Pending, To: task.Dead, Read: &e.Task, Set: store.Set{LastError: &text}}})
	w.failed = append(w.failed, failure{row, errors.New(text)})
}

// calm is how long a process must have had a partition before it runs what is at its
// last chance. Processes that end again and again for another reason, each time soon
// after their start, must not make the tasks dead that happen to be first.
const lastChanceDelay = 5 * time.Second

// aloneFor is how long tasks run alone then. After a minute of calm most of those that
// wait are innocent: processes that end again and again for another reason make
// hundreds of them each time.
const aloneFor = time.Minute

// runAlone runs a task from a time on, and before another, while no other one of its kind
// does, on this node. The next one follows when its run has ended.
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
	// If the run hangs it is stuck, as any other, and the next one does not wait for it.
	x := &worker{pool: w.pool, run: run{replace: next}}
	w.watch.add(x)
	defer w.watch.remove(x)
	defer x.fire(ctx) // records a run that ended the goroutine
	x.pending = x.admit([]*queue.Entry{e}, w.cfg.Now())
	x.fire(x.label(ctx))
}

// awaitTurn waits for a time, and until no other task runs alone. It answers false when
// ctx has ended, the task is wanted or not to start here any more, or it took too long.
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

// reread reads the rows of tasks again that have waited, and answers those that are to
// start as they were read before, by job_id. Whoever reads the others next sees what they
// have become.
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
