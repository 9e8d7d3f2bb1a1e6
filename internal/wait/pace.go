package wait

import (
	"context"
	"time"
)

// Pace says how long polls wait. A test in virtual time slows them down while nothing happens, so that a month costs no month of
// polls. Scans and horizons are polls, too; the time of a task in memory or in Redis never waits.
type Pace interface {
	// Slowed returns how long a poll with an interval waits now, and a channel that ends this earlier; nil: nothing does.
	Slowed(interval time.Duration) (time.Duration, <-chan struct{})
}

// ownPace leaves polls their intervals.
type ownPace struct{}

func (ownPace) Slowed(interval time.Duration) (time.Duration, <-chan struct{}) { return interval, nil }

type paceKey struct{}

// WithPace returns a context by which the polls under it wait.
func WithPace(ctx context.Context, p Pace) context.Context {
	return context.WithValue(ctx, paceKey{}, p)
}

// PaceOf returns the Pace of a context.
func PaceOf(ctx context.Context) Pace {
	if p, ok := ctx.Value(paceKey{}).(Pace); ok {
		return p
	}
	return ownPace{}
}

// Slowed is Pace.Slowed of the Pace of ctx.
func Slowed(ctx context.Context, interval time.Duration) (time.Duration, <-chan struct{}) {
	return PaceOf(ctx).Slowed(interval)
}

// Poll waits for the next poll of a loop with an interval. If ctx ends first, its error is returned.
func Poll(ctx context.Context, interval time.Duration) error {
	d, roused := Slowed(ctx, interval)
	return ForOr(ctx, d, roused)
}
