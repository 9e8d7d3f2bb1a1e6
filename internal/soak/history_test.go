package soak_test

import (
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// history is a task as those know it who submitted and changed it.
type history struct {
	jobID   uint64
	bizType string
	bizID   uint64
	// submits are the tries to store it, each with a time of its own. Which of them stored it is known only if there is one.
	submits   []submitTry
	attribute string
	key       string    // dedup_key; empty: none
	at        *process  // who took the last of them; nil: a hand's INSERT
	known     time.Time // when it was answered

	mu      sync.Mutex
	changes []*change
}

// submitTry is one request that may have stored the task.
type submitTry struct{ sent, answered, due time.Time }

// change is what somebody did to a task, and what came of it.
type change struct {
	kind           string
	hand           bool // by SQL; else by the API
	sent, answered time.Time
	done           answer
	from           task.Status // it applies to such a task only
	set            effect
	// read is when the answer to the GET came whose ETag the change named; zero: it named none.
	read time.Time
	// asked is when that GET was sent; mismatch tells that the tag was refused.
	asked    time.Time
	mismatch bool
}

// The kinds of changes.
const (
	cancelled   = "cancel"
	rescheduled = "reschedule"
	resubmitted = "submit again, to move it"
	edited      = "edit"
	redriven    = "redrive"
	lowered     = "lower attempts"
	locked      = "lock" // a transaction of a hand that is open for seconds, and then commits or rolls back
)

// effect is what a change writes.
type effect struct {
	status       *task.Status
	low, high    time.Time // action_time is from low to high; zero: it stays
	attempts     *int
	attribute    uint64 // 0: it stays
	hasAttribute bool
}

// answer is what is known of a change.
type answer int

const (
	refused answer = iota // surely not made
	unknown               // nobody could say, or no answer came
	made
)

func (h *history) add(c *change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, c)
}

// due is the time that was asked for first, as far as is known.
func (h *history) due() time.Time { return h.submits[len(h.submits)-1].due }

// changesMade counts the changes of a kind, those included of which nobody knows.
func (h *history) changesMade(kind string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.changes {
		if c.kind == kind && c.done != refused {
			n++
		}
	}
	return n
}

// inTurn gives the changes in the order in which they were asked for.
func (h *history) inTurn() []*change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(slices.Values(h.changes), func(a, b *change) int { return a.sent.Compare(b.sent) })
}
