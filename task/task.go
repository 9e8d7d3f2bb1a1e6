// Package task holds the types that every other package uses: the Task, its
// Status and the allowed moves between them, the business types with their
// policies, and the answers that a refusal can be.
//
// It imports the standard library only. It does not depend on where tasks are
// stored, who runs them and how they travel.
package task

import (
	"fmt"
	"time"
)

// Limits of what one task may hold. They follow the columns of the task table.
const (
	MaxAttribute = 4096 // bytes of Attribute
	MaxDedupKey  = 64   // bytes of DedupKey
	MaxLastError = 255  // bytes of LastError; longer ones are cut
	MaxAttempts  = 255  // attempts is an unsigned tinyint
	MaxBizKey    = 128  // bytes of BizKey

	MinTimeout = time.Millisecond // of Timeout, where a task has one
	MaxTimeout = 24 * time.Hour
)

// Task is one row: fire BizType for BizID at ActionTime.
//
// All times are UTC with millisecond precision.
type Task struct {
	JobID      uint64    // globally unique, 63 bits; carries its shard
	BizID      uint64    // the business's own id (an order id); the sharding key. BizKey's hash where there is one
	BizKey     string    // the business's own id where it is a text, at most MaxBizKey bytes; empty: BizID is the id
	BizType    uint64    // id of the business type
	Status     Status    //
	ActionTime time.Time // next time to run: moved on by a retry's back-off
	Attribute  string    // the caller's payload, at most MaxAttribute bytes
	Attempts   int       // failed runs so far
	LastError  string    // why the last failed run failed; empty if none did
	DedupKey   string    // idempotency key of the submit; empty for none
	Created    time.Time // gmt_create
	Modified   time.Time // gmt_modified

	DueTime time.Time     // the promised time, once a failed run has moved ActionTime; zero: ActionTime. See Promised
	Timeout time.Duration // of one run, whole milliseconds; 0: the business type's

	// Trace is the W3C traceparent of the submit; empty: there is none. A row that was written by hand may have any text. A
	// processor gets that of the run where the run is traced, and never what is no traceparent.
	Trace string

	// Lease is the number of the last lease that a consumer had, or a count of starts; 0: neither. See HasLease and Cuts.
	Lease uint64
}

// FailedRun is a run of a task that failed and counted as an attempt.
type FailedRun struct {
	Attempt int       // which one; a redrive may begin again at 1
	At      time.Time // when it was recorded
	Error   string    // why, as LastError
}

// Promised is the time that was promised: ActionTime as it was submitted or last rescheduled.
func (t *Task) Promised() time.Time {
	if t.DueTime.IsZero() {
		return t.ActionTime
	}
	return t.DueTime
}

// GivenBizID is the biz_id as it was submitted: a uint64, or the text. It is for logs.
func (t *Task) GivenBizID() any {
	if t.BizKey != "" {
		return t.BizKey
	}
	return t.BizID
}

// Status is where a task stands in its life. Only pending tasks ever run.
type Status uint8

// The statuses as stored. 1 is never written.
const (
	Pending   Status = 0
	Processed Status = 2
	Cancelled Status = 3
	Dead      Status = 4
)

var statusWords = map[Status]string{
	Pending:   "pending",
	Processed: "processed",
	Cancelled: "cancelled",
	Dead:      "dead",
}

// String gives the status as the word that users see.
func (s Status) String() string {
	if w, ok := statusWords[s]; ok {
		return w
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// ParseStatus reads a status word.
func ParseStatus(word string) (Status, error) {
	for s, w := range statusWords {
		if w == word {
			return s, nil
		}
	}
	return 0, fmt.Errorf("status %q is unknown; it is pending, processed, cancelled or dead", word)
}

// CanBecome reports whether a task in status s may move to status to. These are
// all the moves there are; each one is a compare-and-set in the store.
//
//	pending ──► processed | cancelled | dead | pending (retry, reschedule)
//	dead    ──► pending (redrive) | cancelled (discard)
func (s Status) CanBecome(to Status) bool {
	switch s {
	case Pending:
		return to == Processed || to == Cancelled || to == Dead || to == Pending
	case Dead:
		return to == Pending || to == Cancelled
	default:
		return false
	}
}

// CeilMilli rounds t up to a whole millisecond, in UTC. Rounding up keeps the
// promise that a task never runs before the moment it was asked for.
func CeilMilli(t time.Time) time.Time {
	floor := t.Truncate(time.Millisecond)
	if floor.Before(t) {
		floor = floor.Add(time.Millisecond)
	}
	return floor.UTC()
}
