package work

import (
	"context"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/stat"
)

const (
	patience = 90 * time.Second // for tasks that are due, before they count as lost
	lookHow  = 10 * time.Millisecond
)

// runLateness: a steady rate of tasks that are due soon.
func runLateness(ctx context.Context, b *bench, rate int) error {
	if err := b.Work(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	n := rate * int(b.sizes.Steady/time.Second)
	b.run.N = n
	if err := b.Reset(ctx, n); err != nil {
		return err
	}
	// The tasks of a hundredth of a second go into one call, if the peer takes many tasks in one call.
	batch := 1
	if b.Info().Has(peer.Batches) {
		batch = max(1, rate/100)
	}
	start := time.Now()
	var loaded peer.Loaded
	used, err := b.cpu(func() (err error) {
		loaded, err = b.Load(ctx, peer.Load{N: n, Callers: callers, Batch: batch, Rate: rate, After: 2 * time.Second, Spread: 2 * time.Second})
		if err != nil {
			return err
		}
		return b.await(ctx, n, time.Now().Add(patience))
	})
	if err != nil {
		return err
	}
	fired, err := b.Fired(ctx)
	if err != nil {
		return err
	}
	b.run.Curve = curve(b.setLate("", fired.Late, n))
	b.set("rate_per_s", float64(n)/loaded.Took.Seconds())
	b.set("submit_p99_ms", millis(stat.Percentile(loaded.Calls, .99)))
	b.set("cpu_percent", 100*total(used).Seconds()/time.Since(start).Seconds())
	return nil
}

// await waits until n tasks have fired, or the deadline: then some are lost.
func (b *bench) await(ctx context.Context, n int, deadline time.Time) error {
	for {
		heard, err := b.Heard(ctx)
		if err != nil || heard >= n || time.Now().After(deadline) {
			return err
		}
		if err := rest(ctx, lookHow); err != nil {
			return err
		}
	}
}

// runCrowd: many tasks due within one second, first with nothing parked.
func runCrowd(ctx context.Context, b *bench) error {
	if err := b.Work(ctx); err != nil {
		return err
	}
	b.run.N = b.sizes.Crowd
	if err := b.warm(ctx); err != nil {
		return err
	}
	if err := b.crowd(ctx, "empty_"); err != nil {
		return err
	}
	loaded, err := b.Load(ctx, b.fill(parked(b.sizes.Parked, 0, 0)))
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}
	b.set("park_per_s", float64(b.sizes.Parked)/loaded.Took.Seconds())
	if err := rest(ctx, b.sizes.IdleSettle); err != nil {
		return err
	}
	if err := b.crowd(ctx, "parked_"); err != nil {
		return err
	}
	for _, key := range []string{"p50_ms", "p99_ms", "max_ms"} {
		if before := b.run.Values["empty_"+key]; before > 0 {
			b.set("ratio_"+key[:len(key)-len("_ms")], b.run.Values["parked_"+key]/before)
		}
	}
	return nil
}

// lead is the time to submit n tasks in, before they are due: a whole second.
func lead(n int) time.Time {
	const slowest = 2000 // tasks a second
	at := time.Now().Add(3*time.Second + time.Duration(n)*time.Second/slowest)
	return at.Truncate(time.Second).Add(time.Second)
}

func (b *bench) crowd(ctx context.Context, prefix string) error {
	n := b.sizes.Crowd
	if err := b.Reset(ctx, n); err != nil {
		return err
	}
	l := b.fill(peer.Load{N: n, At: lead(n), Spread: time.Second})
	if err := b.loadBefore(ctx, l); err != nil {
		return err
	}
	if err := b.await(ctx, n, l.At.Add(patience)); err != nil {
		return err
	}
	fired, err := b.Fired(ctx)
	if err != nil {
		return err
	}
	b.run.Curve = curve(b.setLate(prefix, fired.Late, n)) // of the later crowd
	return nil
}

// loadBefore submits tasks of one instant, and insists on having done so in time.
func (b *bench) loadBefore(ctx context.Context, l peer.Load) error {
	if _, err := b.Load(ctx, l); err != nil {
		return err
	}
	if late := time.Since(l.At); late > 0 {
		return fmt.Errorf("submitting %d tasks ended %s after they were due: they were given too little time", l.N, late.Round(time.Millisecond))
	}
	return nil
}

// runDrain: many tasks due at one instant.
func runDrain(ctx context.Context, b *bench) error {
	if g, ok := b.Peer.(peer.Gated); ok {
		g.Hold()
	}
	if err := b.Work(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	return b.drain(ctx, "")
}

// awaitDone waits until n outcomes are recorded. It is called when they are about
// to be: asking costs something.
func (b *bench) awaitDone(ctx context.Context, n int, deadline time.Time) error {
	for {
		done, err := b.Done(ctx)
		if err != nil || done >= n {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d outcomes are not recorded", n-done)
		}
		if err := rest(ctx, lookHow/2); err != nil {
			return err
		}
	}
}

func (b *bench) drain(ctx context.Context, prefix string) error {
	n := b.sizes.Drain
	b.run.N = n
	if err := b.Reset(ctx, n); err != nil {
		return err
	}
	before, err := b.Done(ctx)
	if err != nil {
		return err
	}
	l := b.fill(peer.Load{N: n, At: lead(n)})
	if err := b.loadBefore(ctx, l); err != nil {
		return err
	}
	if err := rest(ctx, time.Until(l.At)); err != nil {
		return err
	}
	var end time.Time
	used, err := b.cpu(func() error {
		if g, ok := b.Peer.(peer.Gated); ok {
			g.Release()
		}
		if err := b.await(ctx, n, l.At.Add(patience)); err != nil {
			return err
		}
		err := b.awaitDone(ctx, before+n, l.At.Add(2*patience))
		end = time.Now()
		return err
	})
	if err != nil {
		return err
	}
	fired, err := b.Fired(ctx)
	if err != nil {
		return err
	}
	b.setLate(prefix, fired.Late, n)
	b.set(prefix+"per_s", float64(n)/end.Sub(l.At).Seconds())
	// Pollers begin up to an interval later: the second rate leaves that out.
	b.set(prefix+"flow_per_s", float64(n)/end.Sub(fired.First).Seconds())
	b.set(prefix+"first_ms", millis(fired.First.Sub(l.At)))
	b.set(prefix+"cpu_us", float64(total(used).Microseconds())/float64(n))
	return nil
}
