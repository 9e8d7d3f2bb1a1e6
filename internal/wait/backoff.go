package wait

import (
	"cmp"
	"context"
	"time"
)

// Backoff is the pauses between the tries of something: First, and then twice as long each time, but Most at most.
type Backoff struct {
	First, Most time.Duration
	next        time.Duration
}

// Next returns the pause before the next try.
func (b *Backoff) Next() time.Duration {
	pause := cmp.Or(b.next, b.First)
	b.next = min(2*pause, b.Most)
	return pause
}

// Wait waits before the next try. If ctx ends first, its error is returned.
func (b *Backoff) Wait(ctx context.Context) error { return For(ctx, b.Next()) }

// Reset makes First the next pause.
func (b *Backoff) Reset() { b.next = 0 }
