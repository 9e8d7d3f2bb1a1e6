package api

import (
	"context"
	"errors"
	"strings"

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

// NewBatchError says why one task of a batch was not stored. known is false if that is an error of the center itself.
func NewBatchError(err error) (e *BatchError, known bool) {
	var field *task.FieldError
	var conflict *task.ConflictError
	switch {
	case errors.As(err, &field):
		return &BatchError{Field: field.Field, Message: field.Message}, true
	case errors.As(err, &conflict):
		return &BatchError{Field: "dedup_key", Message: conflict.Error(), Outcome: string(conflict.Conflict)}, true
	case IsUnavailable(err):
		return &BatchError{Message: Undecided(err, DetailUnavailable+DetailRepeat), Retry: true}, true
	}
	return &BatchError{Message: err.Error()}, false
}

func (e *BatchError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Unwrap gives the errors of package task that e stands for.
func (e *BatchError) Unwrap() []error {
	switch {
	case e.Outcome != "":
		return []error{&task.ConflictError{Conflict: task.Conflict(e.Outcome)}}
	case e.Field != "":
		return []error{&task.FieldError{Field: e.Field, Message: e.Message}}
	case e.Retry:
		return Unavailable(e.Message)
	}
	return nil
}
