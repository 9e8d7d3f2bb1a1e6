//go:build !linux

package wait

import (
	"context"
	"time"
)

// Alarm makes timers exact on Linux.
type Alarm struct{}

// Run waits until ctx ends.
func (*Alarm) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// At does nothing.
func (*Alarm) At(time.Duration) time.Duration { return 0 }

// Passed does nothing.
func (*Alarm) Passed(time.Duration) {}
