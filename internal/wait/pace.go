package wait

import (
	"context"
	"sync"
	"time"
)

// Pace slows the polls of a center down while nothing happens, so that a month in virtual time costs no month of
// polls. Scans and horizons are polls, too: who slows them down rouses them before the next task is due. The time of a task in
// memory or in Redis never waits.
type Pace struct {
	mu     sync.Mutex
	least  time.Duration // between two polls of a loop; 0: as the loop has it
	roused chan struct{} // closed when the polls go on at their own pace
}

type paceKey struct{}

// WithPace returns a context by which the polls under it wait.
func WithPace(ctx context.Context, p *Pace) context.Context {
	return context.WithValue(ctx, paceKey{}, p)
}

// Slow makes each poll that waits from now on wait for d at least, until Rouse.
func (p *Pace) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 {
		p.roused = make(chan struct{})
	}
	p.least = d
}

// Rouse ends Slow: polls that wait are made at once.
func (p *Pace) Rouse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least > 0 {
		close(p.roused)
	}
	p.least = 0
}

// Slowed returns how long a poll with an interval waits now, and a channel that ends this earlier; nil: nothing does.
func Slowed(ctx context.Context, interval time.Duration) (time.Duration, <-chan struct{}) {
	return PaceOf(ctx).Slowed(interval)
}

// PaceOf returns the Pace of a context; nil: there is none, and polls have their own pace.
func PaceOf(ctx context.Context) *Pace {
	p, _ := ctx.Value(paceKey{}).(*Pace)
	return p
}

// Slowed is like the function.
func (p *Pace) Slowed(interval time.Duration) (time.Duration, <-chan struct{}) {
	if p == nil {
		return interval, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 {
		return interval, nil
	}
	return max(interval, p.least), p.roused
}

// Poll waits for the next poll of a loop with an interval. If ctx ends first, its error is returned.
func Poll(ctx context.Context, interval time.Duration) error {
	d, roused := Slowed(ctx, interval)
	return ForOr(ctx, d, roused)
}

// Ticker is a time.Ticker for polls.
type Ticker struct {
	C    <-chan time.Time
	stop func()
}

// NewTicker makes a Ticker; the end of ctx or Stop ends it.
func NewTicker(ctx context.Context, interval time.Duration) *Ticker {
	if PaceOf(ctx) == nil {
		t := time.NewTicker(interval)
		return &Ticker{t.C, t.Stop}
	}
	ctx, cancel := context.WithCancel(ctx)
	c := make(chan time.Time, 1)
	go func() {
		for Poll(ctx, interval) == nil {
			select {
			case c <- time.Now():
			default:
			}
		}
	}()
	return &Ticker{c, cancel}
}

// Stop ends the Ticker.
func (t *Ticker) Stop() { t.stop() }
