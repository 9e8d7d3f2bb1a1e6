// Package processor is what a user implements: a Processor fires the tasks of a
// business type.
//
// Process gets a task that is due. The error that it returns, or nil, decides what
// becomes of the task. The packages below, webhook, kafka and logger, are the processors that ship.
// Package worker calls every processor.
package processor

import (
	"context"
	"errors"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Processor fires the tasks of a business type. It is called from many
// goroutines. ctx ends when the business type's timeout is over or when the
// program gives up on a graceful stop; a run that ends with an error is tried
// again after a back-off. A panic is a failed run, and so is runtime.Goexit. A run
// that does not end when ctx does keeps its worker; another one takes its place.
//
// At least once: after a crash a task that had already run may run again, so
// Process should be idempotent by t.JobID.
//
//	return nil                       // processed
//	return err                       // failed run: retried with back-off
//	return processor.RetryAfter(...) // failed run: retried after a given pause
//	return processor.Discard(...)    // not wanted any more: never run again
type Processor interface {
	Process(ctx context.Context, t task.Task) error
}

// Batch is the optional batch form: a Processor that also has it is handed many
// due tasks at once. The answer has one error a task, in order; nil means that
// all were processed. tasks must not be kept after the call. Where it panics, or
// answers another number of errors, each of the tasks is run by Process.
type Batch interface {
	ProcessBatch(ctx context.Context, tasks []task.Task) []error
}

// Limited is the optional form of a Processor with its own limits. tasks is the most tasks that a call of its batch form has,
// up to 1,000; 1: its Process is called; 0: 256. workers is the most calls at a time on a node; 0: as many as are configured.
type Limited interface {
	Limits() (tasks, workers int)
}

// Func makes a Processor of a function.
type Func func(ctx context.Context, t task.Task) error

// Process calls f.
func (f Func) Process(ctx context.Context, t task.Task) error { return f(ctx, t) }

// Constructor builds the processor of one business type. settings is the block
// of the configuration (webhook: {…}) where the processor ships with toc; for one of
// a program it is nil. A processor that is an io.Closer is closed when its business
// type goes.
type Constructor func(b task.BizType, settings any) (Processor, error)

// RetryAfter answers a failed run that shall be tried again after d instead of
// after the back-off. It counts as a failed run.
func RetryAfter(d time.Duration, cause error) error {
	if cause == nil {
		return &retryAfterError{verdict{text: "retry after " + d.String(), after: d}}
	}
	return &retryAfterError{verdict{cause.Error(), d, cause}}
}

// NoAttempt answers that the task was not tried at all, for a reason that is this
// machine's own (no descriptor was free, say): it runs again after d, and no attempt
// is counted.
func NoAttempt(d time.Duration, cause error) error {
	return &noAttemptError{newVerdict("not tried", d, cause)}
}

// Discard answers that the task is not wanted any more: it becomes cancelled,
// with the reason as its last error, and never runs again.
func Discard(reason error) error { return &discardError{newVerdict("discarded", 0, reason)} }

type (
	retryAfterError struct{ verdict }
	noAttemptError  struct{ verdict }
	discardError    struct{ verdict }
)

// verdict is what these errors have in common.
type verdict struct {
	text  string
	after time.Duration
	cause error
}

func newVerdict(text string, after time.Duration, cause error) verdict {
	if cause != nil {
		text += ": " + cause.Error()
	}
	return verdict{text, after, cause}
}

func (v *verdict) Error() string { return v.text }

func (v *verdict) Unwrap() error { return v.cause }

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
