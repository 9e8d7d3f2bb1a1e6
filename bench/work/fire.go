package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/stat"
)

const (
	patience = 90 * time.Second // for tasks that are due, before they count as lost
	lookHow  = 10 * time.Millisecond

	killPatience = 3 * time.Minute // without a task after a kill: leases of a minute end in it
)

// runLateness: a steady rate of tasks that are due soon.
func runLateness(ctx context.Context, b *bench, rate int) error {
	if err := b.work(ctx); err != nil {
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
	start := time.Now()
	var loaded peer.Loaded
	used, err := b.cpu(func() (err error) {
		loaded, err = b.Load(ctx, b.steady(n, rate))
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
	b.run.Curve = curve(b.setLate("", fired, n))
	b.set("rate_per_s", float64(n)/loaded.Took.Seconds())
	b.set("submit_p99_ms", millis(stat.Percentile(loaded.Calls, .99)))
	b.set("cpu_percent", 100*total(used).Seconds()/time.Since(start).Seconds())
	b.setCPU("", used, n)
	return nil
}

// steady is a load at a rate. The tasks of a hundredth of a second go into one call, if the peer takes many tasks in one call.
func (b *bench) steady(n, rate int) peer.Load {
	l := peer.Load{N: n, Callers: callers, Batch: 1, Rate: rate, After: 2 * time.Second, Spread: 2 * time.Second}
	if b.Info().Has(peer.Batches) {
		l.Batch = max(1, rate/100)
	}
	return l
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

// runCrowd: many tasks due within one second. The first crowd finds caches cold that a center in use has warm.
func runCrowd(ctx context.Context, b *bench) error {
	if err := b.work(ctx); err != nil {
		return err
	}
	b.run.N = b.sizes.Crowd
	for _, prefix := range []string{"first_", ""} {
		if err := b.warm(ctx); err != nil {
			return err
		}
		if err := b.crowd(ctx, prefix); err != nil {
			return err
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
	b.run.Curve = curve(b.setLate(prefix, fired, n)) // of the later crowd
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
	if err := b.work(ctx); err != nil {
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
	b.setLate(prefix, fired, n)
	b.set(prefix+"per_s", float64(n)/end.Sub(l.At).Seconds())
	// Pollers begin up to an interval later: the second rate leaves that out.
	b.set(prefix+"flow_per_s", float64(n)/end.Sub(fired.First).Seconds())
	b.set(prefix+"first_ms", millis(fired.First.Sub(l.At)))
	b.setCPU(prefix, used, n)
	return nil
}

// runKill: the servers end in the middle of a drain.
func runKill(ctx context.Context, b *bench) error {
	servers, ok := b.Peer.(peer.Restarted)
	if !ok {
		return errors.New("this peer has no servers to kill")
	}
	if err := b.work(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	n := b.sizes.Crowd
	b.run.N = n
	const room = 4 // calls a task: some come again
	if err := b.Reset(ctx, room*n); err != nil {
		return err
	}
	g, gated := b.Peer.(peer.Gated)
	if gated {
		g.Hold()
	}
	l := b.fill(peer.Load{N: n, At: lead(n)})
	if err := b.loadBefore(ctx, l); err != nil {
		return err
	}
	if err := rest(ctx, time.Until(l.At)); err != nil {
		return err
	}
	if gated {
		g.Release()
	}
	if err := b.await(ctx, n/4, l.At.Add(patience)); err != nil {
		return err
	}
	servers.Kill()
	before, err := b.Heard(ctx)
	if err != nil {
		return err
	}
	b.set("before", float64(before))
	if err := rest(ctx, time.Second); err != nil {
		return err
	}
	if err := servers.Restart(ctx); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	fired, err := b.awaitQuiet(ctx, n)
	if err != nil {
		return err
	}
	b.set("lost", float64(n-fired.Tasks))
	b.set("twice", float64(fired.Twice))
	b.set("last_s", stat.Percentile(fired.Late, 1).Seconds())
	return nil
}

// awaitQuiet waits until all of n tasks have fired and none fires again for some seconds, or until nothing has fired for long.
func (b *bench) awaitQuiet(ctx context.Context, n int) (peer.Fired, error) {
	const again = 10 * time.Second
	for heard, since := -1, time.Now(); ; {
		now, err := b.Heard(ctx)
		if err != nil {
			return peer.Fired{}, err
		}
		if now != heard {
			heard, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet > again {
			fired, err := b.Fired(ctx)
			if err != nil || fired.Tasks >= n || quiet > killPatience {
				return fired, err
			}
		}
		if err := rest(ctx, again/10); err != nil {
			return peer.Fired{}, err
		}
	}
}
