package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Details of the answer to a request that cannot be decided now. The first two say for certain
// that nothing was changed, nor will be.
const (
	DetailLocked      = "another transaction has locked the task's row or its table: nothing was changed; try again"
	DetailNotBegun    = "the center cannot decide this now: nothing was changed; try again"
	DetailUnavailable = "the center cannot decide this now, and what was asked may or may not be done; try again"
	DetailRepeat      = ". A submit with a dedup_key is safe to repeat."
)

// IsUnavailable reports whether the caller may simply try again.
func IsUnavailable(err error) bool {
	return errors.Is(err, task.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Undecided returns the words that say whether something was changed, unknown if that is not known.
func Undecided(err error, unknown string) string {
	switch {
	case errors.Is(err, task.ErrLocked):
		return DetailLocked
	case errors.Is(err, task.ErrNotBegun):
		return DetailNotBegun
	}
	return unknown
}

// Unavailable gives the errors of package task that what Undecided says stands for.
func Unavailable(detail string) []error {
	switch {
	case strings.HasPrefix(detail, DetailLocked):
		return []error{task.ErrUnavailable, task.ErrLocked}
	case strings.HasPrefix(detail, DetailNotBegun):
		return []error{task.ErrUnavailable, task.ErrNotBegun}
	}
	return []error{task.ErrUnavailable}
}

// NewBatchError says why one task of a batch was not stored.
func NewBatchError(err error) *BatchError {
	var field *task.FieldError
	var conflict *task.ConflictError
	switch {
	case errors.As(err, &field):
		return &BatchError{Field: field.Field, Message: field.Message, Cause: err}
	case errors.As(err, &conflict):
		return &BatchError{Field: "dedup_key", Message: conflict.Error(), Outcome: string(conflict.Conflict), Cause: err}
	case IsUnavailable(err):
		return &BatchError{Message: Undecided(err, DetailUnavailable+DetailRepeat), Retry: true, Cause: err}
	}
	return &BatchError{Message: err.Error(), Cause: err}
}

// IsInternal reports whether the center itself has failed.
func (e *BatchError) IsInternal() bool { return e.Cause != nil && e.Field == "" && !e.Retry }

func (e *BatchError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Unwrap gives the errors of package task that e stands for.
func (e *BatchError) Unwrap() []error {
	switch {
	case e.Cause != nil:
		return []error{e.Cause}
	case e.Outcome != "":
		return []error{&task.ConflictError{Conflict: task.Conflict(e.Outcome)}}
	case e.Field != "":
		return []error{&task.FieldError{Field: e.Field, Message: e.Message}}
	case e.Retry:
		return Unavailable(e.Message)
	}
	return nil
}

// Problem is a refusal as HTTP carries it (RFC 9457). errors.Is and errors.As find in it what
// it stands for in package task; see Unwrap.
type Problem struct {
	Status  int            `json:"status"`                // HTTP status
	Title   string         `json:"title"`                 // the status in words
	Detail  string         `json:"detail"`                // what is wrong
	Outcome string         `json:"outcome,omitempty"`     // with 409: already_processed, already_cancelled, dead, running or pending
	Until   Time           `json:"leased_until,omitzero"` // with the outcome running: when its consumer's lease ends; zero: no consumer has it
	Task    *Task          `json:"task,omitempty"`        // with 412: the task as it stands, its ETag too
	Errors  []ProblemField `json:"errors,omitempty"`      // with 422 (and 400, 413, 415): which fields are wrong

	// RetryAfter is how long the server asks to wait, with 503. 0: it does not say.
	RetryAfter time.Duration `json:"-"`
}

// ProblemField says what is wrong with one field of a request.
type ProblemField struct {
	Location string `json:"location"` // like body.biz_id or query.limit
	Message  string `json:"message"`
}

func (e *Problem) Error() string {
	if len(e.Errors) == 0 {
		return fmt.Sprintf("%d %s: %s", e.Status, e.Title, e.Detail)
	}
	parts := make([]string, len(e.Errors))
	for i, f := range e.Errors {
		parts[i] = f.Location + ": " + f.Message
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Title, strings.Join(parts, "; "))
}

// Unwrap gives the errors of package task that the refusal stands for, by its status:
//
//	404  task.ErrNotFound
//	409  *task.ConflictError; its JobID is 0: a problem does not name it
//	412  *task.ChangedError; its Task has BizType 0: a problem names it by its name
//	422  *task.FieldError, one for each field that is wrong
//	503  task.ErrUnavailable; task.ErrLocked or task.ErrNotBegun, too, if that is known
func (e *Problem) Unwrap() (known []error) {
	switch e.Status {
	case http.StatusNotFound:
		return []error{task.ErrNotFound}
	case http.StatusConflict:
		switch c := task.Conflict(e.Outcome); c {
		case task.ConflictProcessed, task.ConflictCancelled, task.ConflictDead, task.ConflictRunning, task.ConflictPending:
			return []error{&task.ConflictError{Conflict: c, Until: e.Until.Time()}}
		}
	case http.StatusPreconditionFailed:
		if e.Task != nil {
			if t, err := e.Task.Task(0); err == nil {
				return []error{&task.ChangedError{Task: t}}
			}
		}
	case http.StatusUnprocessableEntity:
		for _, f := range e.Errors {
			_, field, found := strings.Cut(f.Location, ".") // body.delay is the field delay
			if !found {
				field = f.Location
			}
			known = append(known, &task.FieldError{Field: field, Message: f.Message})
		}
	case http.StatusServiceUnavailable:
		return Unavailable(e.Detail)
	}
	return known
}
