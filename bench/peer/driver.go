package peer

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/bench/stat"
)

// Attribute is what each task carries.
const Attribute = `{"order":"4711","reason":"unpaid"}`

// job is one task to be submitted. A peer that cannot say due exactly rounds it
// up, and puts into the task what it has asked for: lateness is counted from that.
type job struct {
	biz uint64
	due time.Time
}

// driver is what all peers have in common whose client is this process: it makes
// the load and notes what fires.
type driver struct {
	// put submits some jobs in one call, or one by one if the system has no batches.
	// caller is below the number of callers.
	put func(ctx context.Context, caller int, jobs []job) error
	// place is where a task is stored: tasks with near numbers lie near each other.
	// nil: the place is unknown.
	place func(biz uint64) int

	late  stat.Recorder[time.Duration]
	tasks stat.Recorder[uint64] // whose calls these are
	first atomic.Int64          // Unix nanoseconds; 0: nothing has fired

	servers []*server.Server
	closers []func() error // run in reverse
}

// fired is called by processors, first thing. No other task has this one's number.
func (d *driver) fired(due time.Time, number uint64) {
	now := time.Now()
	d.late.Add(now.Sub(due))
	d.tasks.Add(number)
	d.first.CompareAndSwap(0, now.UnixNano())
}

func (d *driver) Reset(_ context.Context, n int) error {
	d.late.Reset(n)
	d.tasks.Reset(n)
	d.first.Store(0)
	return nil
}

func (d *driver) Heard(context.Context) (int, error) { return d.late.Len(), nil }

func (d *driver) Fired(context.Context) (Fired, error) {
	f := Fired{Late: d.late.Sorted()}
	f.Tasks, f.Twice = tally(d.tasks.Sorted())
	if ns := d.first.Load(); ns != 0 {
		f.First = time.Unix(0, ns)
	}
	return f, nil
}

// tally counts the different numbers of a sorted list, and how many of them stand there more than once.
func tally(sorted []uint64) (different, twice int) {
	for i, n := range sorted {
		switch {
		case i == 0 || n != sorted[i-1]:
			different++
		case i == 1 || n != sorted[i-2]:
			twice++
		}
	}
	return different, twice
}

func (d *driver) start(ctx context.Context, k server.Kind, env Env) (*server.Server, error) {
	s, err := k.Start(ctx, env.Scratch)
	if errors.Is(err, server.ErrMissing) {
		return nil, errors.Join(ErrMissing, err)
	}
	if err == nil {
		d.servers = append(d.servers, s)
	}
	return s, err
}

func (d *driver) onDown(f func() error) { d.closers = append(d.closers, f) }

func (d *driver) Down() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	for _, s := range d.servers {
		errs = append(errs, s.Stop())
	}
	d.closers, d.servers = nil, nil
	return errors.Join(errs...)
}

// Kill implements Restarted.
func (d *driver) Kill() {
	for _, s := range d.servers {
		s.Kill()
	}
}

// Restart implements Restarted.
func (d *driver) Restart(ctx context.Context) error {
	for _, s := range d.servers {
		if err := s.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) Processes() []Process {
	list := []Process{{Name: "client", PID: os.Getpid()}}
	for _, s := range d.servers {
		list = append(list, process(s.Name, s))
	}
	return list
}

// step is how often a load with a rate submits what has become due to be submitted.
const step = 10 * time.Millisecond

func (d *driver) Load(ctx context.Context, l Load) (Loaded, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls := make(chan int, l.Callers)
	var took stat.Recorder[time.Duration]
	took.Reset(l.N/l.Batch + l.Callers)
	var wg sync.WaitGroup
	errs := make([]error, l.Callers)
	ids := d.ids(l)
	start := time.Now()
	for c := range l.Callers {
		wg.Go(func() {
			jobs := make([]job, 0, l.Batch)
			for n := range calls {
				jobs = jobs[:0]
				asked := time.Now()
				for _, biz := range ids(n) {
					jobs = append(jobs, job{biz, l.due(asked)})
				}
				if errs[c] = d.put(ctx, c, jobs); errs[c] != nil {
					cancel()
					return
				}
				took.Add(time.Since(asked))
			}
		})
	}
	l.feed(ctx, start, calls)
	close(calls)
	wg.Wait()
	loaded := Loaded{Took: time.Since(start), Calls: took.Sorted()}
	if err := errors.Join(errs...); err != nil {
		return loaded, err
	}
	return loaded, ctx.Err()
}

// ids gives each call n of the load's ids, all of them random.
func (d *driver) ids(l Load) func(n int) []uint64 {
	random := func(n int) []uint64 {
		list := make([]uint64, n)
		for i := range list {
			list[i] = rand.Uint64()
		}
		return list
	}
	if !l.Near || d.place == nil {
		return random
	}
	all := random(l.N)
	slices.SortFunc(all, func(a, b uint64) int { return d.place(a) - d.place(b) })
	var given atomic.Int64
	return func(n int) []uint64 {
		end := int(given.Add(int64(n)))
		return all[end-n : end]
	}
}

// feed hands out how many tasks each call has.
func (l Load) feed(ctx context.Context, start time.Time, calls chan<- int) {
	hand := func(n int) bool {
		select {
		case calls <- n:
			return true
		case <-ctx.Done():
			return false
		}
	}
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for sent := 0; sent < l.N; {
		until := l.N
		if l.Rate > 0 {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			until = min(l.N, int(time.Since(start).Seconds()*float64(l.Rate)))
		}
		for sent < until {
			n := min(l.Batch, until-sent)
			if !hand(n) {
				return
			}
			sent += n
		}
	}
}

// due is a whole millisecond, so that it is the same moment for all systems with millisecond precision.
func (l Load) due(now time.Time) time.Time {
	at := l.At
	if at.IsZero() {
		at = now
	}
	at = at.Add(l.After)
	if l.Spread > 0 {
		at = at.Add(rand.N(l.Spread))
	}
	return ceil(at, time.Millisecond)
}

// ceil rounds up to a whole unit since the epoch.
func ceil(t time.Time, unit time.Duration) time.Time {
	ns := t.UnixNano()
	if over := ns % int64(unit); over != 0 {
		ns += int64(unit) - over
	}
	return time.Unix(0, ns)
}

// moduleVersion is the version of a library that this program is built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}
