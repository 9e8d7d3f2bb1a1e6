// Package await lets tests wait for events. A test that waits so does not depend on how fast the machine is: it goes on as
// soon as the event is there, and fails after a time that only a broken program takes.
package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Patience is how long a wait lasts before it fails the test. A slow machine with a busy loop on each core does not
// reach it.
const Patience = time.Minute

// T is a test: a *testing.T, a *testing.B, or a case of a property test.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// pollEvery is the pause between two looks at a condition.
const pollEvery = 5 * time.Millisecond

// That waits until holds returns true. It calls holds in the test's own goroutine, so holds may use t, and works in a
// synctest bubble, where it takes no real time. what names the event: a format and its arguments.
func That(t T, holds func() bool, what string, args ...any) {
	t.Helper()
	Within(t, Patience, holds, what, args...)
}

// Within is That with another patience, for actions that a program takes only after a while.
func Within(t T, patience time.Duration, holds func() bool, what string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("within %s not: "+what, append([]any{patience}, args...)...)
		}
	}
}

// Throughout calls check again and again in a new goroutine, so check may call t.Errorf and not t.Fatalf. The returned
// function ends that, after the call under way.
func Throughout(check func()) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			check()
			select {
			case <-ended:
				return
			case <-time.After(pollEvery):
			}
		}
	}()
	return func() { close(ended); <-done }
}

// Success waits until f returns no error.
func Success(t T, f func() error, what string, args ...any) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(Patience); ; time.Sleep(pollEvery) {
		if last = f(); last == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("within %s not: %s: %v", Patience, fmt.Sprintf(what, args...), last)
		}
	}
}

// Receive waits for a value from c; the zero value if c is closed.
func Receive[V any](t T, c <-chan V, what string, args ...any) V {
	t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("within %s not: "+what, append([]any{Patience}, args...)...)
		panic("not reached")
	}
}

// Context is the test's context with a deadline of Patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}
