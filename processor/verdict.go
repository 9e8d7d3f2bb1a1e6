package processor

import (
	"errors"
	"time"
)

// RetryAfter answers a failed run that shall be tried again after d instead of
// after the back-off. It counts as a failed run.
func RetryAfter(d time.Duration, cause error) error {
	return &retryAfterError{after: d, cause: cause}
}

// NoAttempt answers that the task was not tried at all, for a reason that is this
// machine's own (no descriptor was free, say): it runs again after d, and no attempt
// is counted.
func NoAttempt(d time.Duration, cause error) error { return &noAttemptError{d, cause} }

// Discard answers that the task is not wanted any more: it becomes cancelled,
// with the reason as its last error, and never runs again.
func Discard(reason error) error { return &discardError{reason: reason} }

type retryAfterError struct {
	after time.Duration
	cause error
}

func (e *retryAfterError) Error() string {
	if e.cause == nil {
		return "retry after " + e.after.String()
	}
	return e.cause.Error()
}

func (e *retryAfterError) Unwrap() error { return e.cause }

type noAttemptError struct {
	after time.Duration
	cause error
}

func (e *noAttemptError) Error() string {
	if e.cause == nil {
		return "not tried"
	}
	return "not tried: " + e.cause.Error()
}

func (e *noAttemptError) Unwrap() error { return e.cause }

type discardError struct{ reason error }

func (e *discardError) Error() string {
	if e.reason == nil {
		return "discarded"
	}
	return "discarded: " + e.reason.Error()
}

func (e *discardError) Unwrap() error { return e.reason }

// RetryPause returns the pause that err asks for, and reports whether it asks for one.
func RetryPause(err error) (time.Duration, bool) {
	if r, is := errors.AsType[*retryAfterError](err); is {
		return max(0, r.after), true
	}
	return 0, false
}

// IsNoAttempt reports whether err says that the task was not tried, and returns the pause before the next try.
func IsNoAttempt(err error) (time.Duration, bool) {
	if n, is := errors.AsType[*noAttemptError](err); is {
		return max(0, n.after), true
	}
	return 0, false
}

// IsDiscard reports whether err discards its task.
func IsDiscard(err error) bool {
	var d *discardError
	return errors.As(err, &d)
}
