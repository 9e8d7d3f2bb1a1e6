package processor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Outcome is what became of a run, as a word of the metrics.
type Outcome string

// The outcomes.
const (
	Processed Outcome = "processed" // done
	Failed    Outcome = "failed"    // tried again after a pause
	Dead      Outcome = "dead"      // retries used up, or too late to run at all
	Discarded Outcome = "discarded" // the processor does not want it any more
	Fenced    Outcome = "fenced"    // ran, but the row was not pending any more when it ended
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Processed, Failed, Dead, Discarded, Fenced}

// decide turns the end of a run into the move that records it, and into the
// task as it will stand then.
func decide(b *task.BizType, t task.Task, runErr error, now time.Time) (Outcome, store.Move, task.Task) {
	m := store.Move{JobID: t.JobID, From: task.Pending}
	switch {
	case runErr == nil:
		m.To = task.Processed
		t.Status = m.To
		return Processed, m, t

	case IsDiscard(runErr):
		m.To = task.Cancelled
		m.LastError = reason(runErr)
		t.Status, t.LastError = m.To, *m.LastError
		return Discarded, m, t
	}

	attempts := t.Attempts + 1
	m.Attempts, m.LastError = &attempts, reason(runErr)
	t.Attempts, t.LastError = attempts, *m.LastError
	if attempts > b.MaxRetries {
		m.To = task.Dead
		t.Status = m.To
		return Dead, m, t
	}
	pause, asked := RetryPause(runErr)
	if !asked {
		pause = backoff(b, attempts, rand.Float64())
	}
	next := task.CeilMilli(now.Add(pause))
	m.To, m.ActionTime = task.Pending, &next
	t.ActionTime = next
	return Failed, m, t
}

// expire is the move of a task that is too late to run.
func expire(t task.Task, late time.Duration) (store.Move, task.Task) {
	text := fmt.Sprintf("expired: %s late", late.Round(time.Millisecond))
	t.Status, t.LastError = task.Dead, text
	return store.Move{JobID: t.JobID, From: task.Pending, To: task.Dead, Set: store.Set{LastError: &text}}, t
}

// backoff is the pause after the n-th failed run: min, 2·min, 4·min … up to
// max, spread by a quarter so that tasks that failed together do not come back
// together. random is from 0 to 1.
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

// reason is an error as last_error holds it: valid UTF-8, at most 255 bytes.
func reason(err error) *string {
	text := strings.ToValidUTF8(fmt.Sprint(err), "?") // Sprint survives an Error that panics
	text = strings.ReplaceAll(text, "\x00", "?")
	if len(text) > task.MaxLastError {
		text = strings.ToValidUTF8(text[:task.MaxLastError], "")
	}
	return &text
}
