package audit

import (
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// History is the record of a task by its submitters and by the authors of its changes.
type History struct {
	JobID   uint64
	BizType string
	BizID   uint64
	// Submits are the tries to store it, each with its own due time. Which try stored it is known only if there is one.
	Submits   []SubmitTry
	Attribute string
	Poison    bool      // each run of it ends its process
	Key       string    // dedup_key; empty: none
	At        *Process  // who took the last of them; nil: a hand's INSERT
	Known     time.Time // when it was answered

	Mu      sync.Mutex
	Changes []*Change
}

// SubmitTry is one request that may have stored the task.
type SubmitTry struct{ Sent, Answered, Due time.Time }

// Change is what somebody did to a task, and what came of it.
type Change struct {
	Kind           string
	Hand           bool // by SQL; else by the API
	Sent, Answered time.Time
	Done           Answer
	From           task.Status // it applies to such a task only
	Set            Effect
	// Read is when the answer to the GET came whose ETag the change named; zero: it named none.
	Read time.Time
	// Asked is when that GET was sent. Mismatch reports whether the tag was refused.
	Asked    time.Time
	Mismatch bool
	// ByState: it was refused because of how the task stood. Conflict is the reason that was given; empty: none was.
	ByState  bool
	Conflict task.Conflict
}

// String names a change and who made it.
func (c *Change) String() string {
	by, done := "API", []string{" refused", " unknown", ""}[c.Done]
	if c.Hand {
		by = "hand"
	}
	return c.Kind + " by " + by + done
}

// The kinds of changes.
const (
	Cancelled   = "cancel"
	Rescheduled = "reschedule"
	Resubmitted = "submit again, to move it"
	Edited      = "edit"
	Redriven    = "redrive"
	Lowered     = "lower attempts"
	Stopped     = "make dead"
	Locked      = "lock" // a transaction of a hand that is open for seconds, and then commits or rolls back
)

// Effect is what a change writes.
type Effect struct {
	Status       *task.Status
	Low, High    time.Time // action_time is from low to high; zero: it stays
	Attempts     *int
	Attribute    uint64 // 0: it stays
	HasAttribute bool
}

// Answer is what is known of a change.
type Answer int

const (
	Refused Answer = iota // surely not made
	Unknown               // nobody could say, or no answer came
	Made
)

func (h *History) Add(c *Change) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.Changes = append(h.Changes, c)
}

// Due is the time that was asked for first, as far as is known.
func (h *History) Due() time.Time { return h.Submits[len(h.Submits)-1].Due }

// ChangesMade counts the changes of a kind that were made or may have been made.
func (h *History) ChangesMade(kind string) (n int) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for _, c := range h.Changes {
		if c.Kind == kind && c.Done != Refused {
			n++
		}
	}
	return n
}

// InTurn gives the changes in the order in which they were asked for.
func (h *History) InTurn() []*Change {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return slices.SortedFunc(slices.Values(h.Changes), func(a, b *Change) int { return a.Sent.Compare(b.Sent) })
}

// Undecided is for how long a change without an answer may still be made.
const Undecided = 30 * time.Second
