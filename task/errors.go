package task

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotFound answers a look-up by a job_id that no row has.
var ErrNotFound = errors.New("no such task")

// ErrUnavailable answers a request that nobody can decide now (the task's
// database is down). The caller may try again.
var ErrUnavailable = errors.New("the task's store is not reachable now")

// ErrLocked is the ErrUnavailable of a task whose row another transaction has locked.
// Nothing was changed, and nothing is changed later.
var ErrLocked = errors.New("another transaction has locked the task's row")

// ErrNotBegun is the error of a change that was not begun, because its caller had left or
// its database is known to be out of reach: nothing was changed, and nothing is changed
// later.
var ErrNotBegun = errors.New("it was not begun")

// Conflict says why a task could not be changed, as a word of the HTTP API.
type Conflict string

// The conflicts.
const (
	ConflictProcessed Conflict = "already_processed"
	ConflictCancelled Conflict = "already_cancelled"
	ConflictDead      Conflict = "dead"
	ConflictRunning   Conflict = "running"
	ConflictPending   Conflict = "pending" // redrive of a task that is not dead
)

// ConflictOf gives the conflict of a task that stands in status s.
func ConflictOf(s Status) Conflict {
	switch s {
	case Processed:
		return ConflictProcessed
	case Cancelled:
		return ConflictCancelled
	case Dead:
		return ConflictDead
	default:
		return ConflictPending
	}
}

// conflictTime is the form of a time in a text.
const conflictTime = "2006-01-02T15:04:05.000Z"

// ConflictError answers a change that the task's state does not allow.
type ConflictError struct {
	JobID    uint64
	Conflict Conflict
	Until    time.Time // of ConflictRunning: when the lease of its consumer ends; zero: no consumer has it
}

func (e *ConflictError) Error() string {
	if e.Conflict == ConflictPending {
		return fmt.Sprintf("task %d cannot be redriven: it is pending, not dead", e.JobID)
	}
	text := fmt.Sprintf("task %d cannot be changed: %s", e.JobID, e.Conflict)
	if !e.Until.IsZero() {
		text += ", leased until " + e.Until.UTC().Format(conflictTime)
	}
	return text
}

// ChangedError answers a change that was asked for only if the task is still as
// its caller has seen it, and it is not. Nothing was changed.
type ChangedError struct {
	Task Task // as it stands
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("task %d is not as you have seen it", e.Task.JobID)
}

// FieldError answers bad input: which field, and what would be right.
type FieldError struct {
	Field   string
	Message string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// Wrong says what is wrong with a field, as fmt.Sprintf does.
func Wrong(field, message string, args ...any) *FieldError {
	return &FieldError{Field: field, Message: fmt.Sprintf(message, args...)}
}

// Reason makes a text fit for LastError: valid UTF-8 of at most MaxLastError bytes.
func Reason(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > MaxLastError {
		text = strings.ToValidUTF8(text[:MaxLastError], "")
	}
	return text
}

// UnknownTypeError is returned for the name of a business type that is not configured. It is an ErrNotFound.
type UnknownTypeError struct {
	Name  string
	Known []string // some of the names that are configured
	More  int      // the number of those left out
}

func (e *UnknownTypeError) Error() string { return "biz_type " + e.Message() }

// Message is the text without the name of the field.
func (e *UnknownTypeError) Message() string {
	known := strings.Join(e.Known, ", ")
	switch {
	case e.More > 0 && known != "":
		known += fmt.Sprintf(", %d more", e.More)
	case e.More > 0:
		known = fmt.Sprintf("%d", e.More)
	}
	if e.Name == "" {
		return "is missing; there are: " + known
	}
	return fmt.Sprintf("%.64q is not configured; there are: %s", e.Name, known)
}

// Is makes it an ErrNotFound.
func (e *UnknownTypeError) Is(target error) bool { return target == ErrNotFound }
