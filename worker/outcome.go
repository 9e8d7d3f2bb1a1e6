package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Outcome is the result of a run, a label value of the metrics.
type Outcome string

// The outcomes.
const (
	Processed Outcome = "processed" // done
	Failed    Outcome = "failed"    // will be tried again after a pause
	Dead      Outcome = "dead"      // retries used up, or too late to run at all
	Discarded Outcome = "discarded" // the processor does not want the task any more
	Fenced    Outcome = "fenced"    // it ran, and nothing was written: the row had changed meanwhile
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Processed, Failed, Dead, Discarded, Fenced}

// Fence is the part of an outcome that was not written, because the row had changed since the run began.
type Fence string

// The fences, label values of the metrics.
const (
	FencedStatus   Fence = "status"   // the task was not pending any more
	FencedAttempts Fence = "attempts" // attempts were edited: they stay as edited
	FencedMoved    Fence = "moved"    // action_time was edited: it stays as edited
)

// Fences lists all fences.
var Fences = []Fence{FencedStatus, FencedAttempts, FencedMoved}

// decide turns the result of a run into the move that records it and the task after that move. The move of a
// failed run depends on the row that was read, so it names that row: an edit made meanwhile, by hand or by a
// newer owner, wins.
func decide(b *task.BizType, t task.Task, runErr error, now time.Time) (Outcome, store.Move, task.Task) {
	m := store.Move{JobID: t.JobID, From: task.Pending}
	if t.Lease != 0 { // a void one, of a pull type once
		m.Lease = new(uint64)
		t.Lease = 0
	}
	switch {
	case runErr == nil:
		m.To = task.Processed
		t.Status = m.To
		return Processed, m, t

	case processor.IsDiscard(runErr):
		m.To = task.Cancelled
		m.LastError = reason(runErr)
		t.Status, t.LastError = m.To, *m.LastError
		return Discarded, m, t
	}

	read := t
	m.Read, m.LastError = &read, reason(runErr)
	t.LastError = *m.LastError
	pause, untried := processor.IsNoAttempt(runErr)
	if !untried {
		attempts := t.Attempts + 1
		m.Attempts, t.Attempts = &attempts, attempts
		if attempts > b.MaxRetries {
			m.To = task.Dead
			t.Status = m.To
			return Dead, m, t
		}
		var asked bool
		if pause, asked = processor.RetryPause(runErr); !asked {
			pause = backoff(b, attempts, rand.Float64())
		}
	}
	next, promised := task.CeilMilli(now.Add(pause)), t.Promised()
	m.To, m.ActionTime, m.Promised = task.Pending, &next, &promised
	t.ActionTime, t.DueTime = next, promised
	return Failed, m, t
}

// amend returns the part of a failed run's move that is still written if its row, pending, was edited during
// the run: the attempts if they were not edited, the pause if action_time was not, and the error. fences names
// the rest. The run does not make the task dead: the edit shows that it should run.
func amend(b *task.BizType, read task.Task, failed store.Move, row task.Task,
	now time.Time) (m store.Move, after task.Task, fences []Fence) {
	after = row
	m = store.Move{JobID: row.JobID, From: task.Pending, To: task.Pending, Read: &row}
	m.LastError = failed.LastError
	after.LastError = *m.LastError
	if read.Lease != 0 {
		m.HasLease, m.Lease, after.Lease = &row.Lease, new(uint64), 0
	}
	switch {
	case failed.Attempts == nil: // this run does not count as an attempt
	case row.Attempts == read.Attempts:
		m.Attempts = failed.Attempts
		after.Attempts = *m.Attempts
	default:
		fences = append(fences, FencedAttempts)
	}
	if row.ActionTime.Equal(read.ActionTime) {
		next, promised := failed.ActionTime, row.Promised()
		if next == nil { // it would have been dead
			at := task.CeilMilli(now.Add(backoff(b, row.Attempts+1, rand.Float64())))
			next = &at
		}
		m.ActionTime, m.Promised = next, &promised
		after.ActionTime, after.DueTime = *next, promised
	} else {
		fences = append(fences, FencedMoved)
	}
	return m, after, fences
}

// backoff is the pause after the n-th failed run: min, 2·min, 4·min … up to max. It varies by a quarter, so
// that tasks that failed together do not return together. random is from 0 to 1.
func backoff(b *task.BizType, n int, random float64) time.Duration {
	base := b.BackoffMin
	for i := 1; i < n && base < b.BackoffMax; i++ {
		base *= 2
	}
	if base >= b.BackoffMax {
		return b.BackoffMax - time.Duration(float64(b.BackoffMax)*random/4)
	}
	return min(base+time.Duration(float64(base)*random/4), b.BackoffMax)
}

// reason is the text of an error for last_error.
func reason(err error) *string {
	text := task.Reason(fmt.Sprint(err)) // Sprint survives an Error that panics
	return &text
}

// coalesceAfter is how long after its time a task may be replaced by a later one of its biz_id. One that starts in
// time is never looked up.
const coalesceAfter = time.Second

// expire ends a task that is too late.
func (w *worker) expire(e *queue.Entry, late time.Duration) {
	if w.bizType.OnExpire == task.OnExpireSkip {
		w.skip(e, task.Cancelled, "expired")
		return
	}
	w.die(e, fmt.Sprintf("expired: %s late", late.Round(time.Millisecond)))
}

// die makes a task dead without a run.
func (w *worker) die(e *queue.Entry, why string) task.Task {
	row := w.skip(e, task.Dead, why)
	w.failed = append(w.failed, failure{row, errors.New(why)})
	return row
}

// skip ends a task without a run, unless its row is edited meanwhile. It returns the row.
func (w *worker) skip(e *queue.Entry, to task.Status, why string) task.Task {
	read, row, outcome := e.Task, e.Task, Discarded
	if row.Status, row.LastError = to, why; to == task.Dead {
		outcome = Dead
	}
	move := store.Move{JobID: read.JobID, From: task.Pending, To: to, Read: &read, Set: store.Set{LastError: &why}}
	w.finisher.add(&finish{entry: e, bizType: &w.bizType, outcome: outcome, move: move, row: row})
	return row
}

// isSkipped reports whether the outcome is that of a task that was not to run, or of a lease.
func (d *finish) isSkipped() bool {
	return d.move.HasLease != nil || d.move.Read != nil && d.move.Attempts == nil && d.move.To != task.Pending
}

// mayCoalesce reports whether a later task of its biz_id replaces an overdue one.
func (w *worker) mayCoalesce(e *queue.Entry, now time.Time) bool {
	return w.bizType.Coalesce && now.Sub(e.Task.Promised()) > coalesceAfter
}

// findSuperseded looks up the tasks that may coalesce. It leaves out those whose database does not answer.
func (w *worker) findSuperseded(ctx context.Context, entries []*queue.Entry, now time.Time) map[uint64]bool {
	var byDatabase map[int][]task.Task
	for _, e := range entries {
		if w.mayCoalesce(e, now) {
			if byDatabase == nil {
				byDatabase = make(map[int][]task.Task)
			}
			d := w.cfg.Layout.PartitionDatabase(e.Partition)
			byDatabase[d] = append(byDatabase[d], e.Task)
		}
	}
	if byDatabase == nil {
		return nil
	}
	superseded := make(map[uint64]bool)
	rivals := store.Rivals{Now: now, MaxRetries: w.bizType.MaxRetries}
	if b := &w.bizType; b.ExpireAfter > 0 && b.OnExpire != task.OnExpireRun {
		rivals.Expired = now.Add(-b.ExpireAfter)
	}
	for d, tasks := range byDatabase {
		found, err := w.cfg.Store.Superseded(ctx, d, tasks, rivals)
		if err != nil {
			w.cfg.Logger.Warn("tasks not compared with later ones of their biz_id; they stay in the store", "biz_type", w.bizType.Name, "database",
				d, "error", err)
			continue
		}
		for i := range tasks {
			superseded[tasks[i].JobID] = found[tasks[i].JobID]
		}
	}
	return superseded
}
