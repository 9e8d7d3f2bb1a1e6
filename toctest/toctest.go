// Package toctest runs a whole timeout center inside a test, in virtual time: thirty minutes take milliseconds, and no test
// waits for a clock.
//
//	func TestAnUnpaidOrderIsClosed(t *testing.T) {
//		toctest.Run(t, func(c *toctest.Center) {
//			task := c.Submit(client.Submit{BizType: "order_close", BizID: 42, Delay: 30 * time.Minute})
//			c.Advance(30 * time.Minute)
//			c.RequireFired(task.JobID)
//		}, toctest.With("order_close", closer))
//	}
//
// It is the real center with its own store, on SQLite files in a directory that the test removes, and with a Redis in memory.
// Only time, the network and the disk's faults are the test's. Its settings are those of configs.Default, but one database with
// one table.
//
// # Time
//
// Run is a testing/synctest bubble. Inside, the time begins at Start, 2026-07-01 12:00 UTC, and stands still while anything
// works. It goes on when all goroutines wait, so time.Sleep and Center.Advance return at once in real time. time.Now,
// timers and the deadlines of contexts are all virtual, also those of your own code.
//
// # Rules
//
// They are those of synctest:
//
//   - Nothing in the test uses real sockets or other processes: a goroutine that waits for these holds the time up for ever.
//     Databases in files, as SQLite, are fine. A service that answers requests is a server of Center.Serve, in memory.
//   - All that the test starts must end before its function returns, or in a Cleanup of the Center: goroutines, sql.DBs,
//     HTTP clients (CloseIdleConnections).
//   - Channels, sync.Conds and timers that the test uses are made inside of it.
//   - Use the Center as the test: it is its *testing.T. The t outside must not be used inside. There are no subtests, no
//     t.Parallel and no second Run inside; around Run there may be.
//
// # Results
//
// Runs are recorded as they end. An assertion that fails shows the story of the task, like toc why, and at the end of a failed
// test the center's log is shown.
package toctest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Start is the time at which each Run begins, in UTC.
var Start = virtual.Start

// Option changes the center of a Run.
type Option func(*options)

type options struct {
	types  []typed
	change []func(*configs.Config)
}

type typed struct {
	bizType   configs.BizType
	processor processor.Processor // nil: it is shipped, or consumers pull
}

// With adds a business type and the processor that runs its tasks. The type has the scan engine and the defaults of
// configs.DefaultBizType.
func With(name string, p processor.Processor) Option {
	return WithBizType(configs.BizType{Name: name}, p)
}

// WithBizType adds a business type and the processor that runs its tasks. Zero fields of b get the defaults of
// configs.DefaultBizType, unless b was made by it: so MaxRetries 0 is 16 here, and none there. A zero ID gets one that is free.
// Mode is the engine: configs.ModeScan or configs.ModeRedis.
//
// Without a processor (nil) it is the one that b names: b.Webhook.URL is a server of Center.Serve, or b.Processor is
// configs.ProcessorPull and Center.Client leases its tasks.
func WithBizType(b configs.BizType, p processor.Processor) Option {
	return func(o *options) { o.types = append(o.types, typed{b, p}) }
}

// WithConfig changes the settings of the center before its start. The directory of its files, its Redis and its name are
// given.
func WithConfig(change func(*configs.Config)) Option {
	return func(o *options) { o.change = append(o.change, change) }
}

// Run starts a center, calls f and stops the center, all in virtual time. The center has no business types but those of the
// options. A wrong option, and a center that cannot stop in order, fail the test.
func Run(t *testing.T, f func(c *Center), opts ...Option) {
	t.Helper()
	var o options
	for _, option := range opts {
		option(&o)
	}
	o.number()
	synctest.Test(t, func(t *testing.T) {
		c := &Center{T: t, hangs: make(map[int]bool), runs: make(map[*Ran]bool)}
		c.world = virtual.New(t, virtual.Config{
			Configure: o.configure,
			HTTP:      true,
			Options: func(string) []app.Option {
				var list []app.Option
				for _, b := range o.types {
					if b.processor != nil {
						list = append(list, app.WithBizType(b.bizType, b.processor))
					}
				}
				return append(list, app.WithMiddleware(c.record))
			},
		})
		c.start()
		f(c)
		c.world.MendAll()
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
}

const nodeName = "center"

// number gives ids to the types that have none.
func (o *options) number() {
	isTaken := func(id uint64) bool {
		return slices.ContainsFunc(o.types, func(b typed) bool { return b.bizType.ID == id })
	}
	next := uint64(1)
	for i := range o.types {
		if o.types[i].bizType.ID == 0 {
			for isTaken(next) {
				next++
			}
			o.types[i].bizType.ID = next
		}
	}
}

// configure changes a configuration.
func (o *options) configure(c *configs.Config) {
	given := *c
	c.HTTP.Console = false // it looks at the cluster each second
	for _, b := range o.types {
		if b.processor == nil {
			c.BizTypes = append(c.BizTypes, b.bizType.WithDefaults())
		}
	}
	for _, change := range o.change {
		change(c)
	}
	c.Node, c.Store.SQLite, c.Redis.Addrs, c.Cluster.Provider = given.Node, given.Store.SQLite, given.Redis.Addrs, given.Cluster.Provider
}

// Ran is a run of a task that has ended.
type Ran struct {
	// Task is the task as the processor got it.
	Task task.Task
	// BizType is its business type.
	BizType string
	// Started and Ended are when the processor was called and when it returned, in UTC.
	Started, Ended time.Time
	// Err is what the processor returned; ErrCrashed if the center crashed meanwhile.
	Err error
}

// Late is how long after the time of its task the run started: 0 or more.
func (r Ran) Late() time.Duration { return r.Started.Sub(r.Task.ActionTime) }

// ErrCrashed is the Err of a run during which the center crashed: its outcome, good or bad, is not recorded.
var ErrCrashed = virtual.ErrCrashed

// record is a middleware that records each run.
func (c *Center) record(p processor.Processor) processor.Processor {
	r := recorder{p, c}
	if b, ok := p.(processor.Batch); ok {
		return batchRecorder{r, b}
	}
	return r
}

type recorder struct {
	processor.Processor
	center *Center
}

func (r recorder) Process(ctx context.Context, t task.Task) (err error) {
	end := r.center.begin(t)
	err = errors.New("the processor panicked, or ended its goroutine (runtime.Goexit, FailNow)")
	defer func() { end(ctx, err) }()
	err = r.Processor.Process(ctx, t)
	return err
}

type batchRecorder struct {
	recorder
	batch processor.Batch
}

func (r batchRecorder) ProcessBatch(ctx context.Context, list []task.Task) []error {
	ends := make([]func(context.Context, error), len(list))
	for i, t := range list {
		ends[i] = r.center.begin(t)
	}
	errs := r.batch.ProcessBatch(ctx, list)
	for i, end := range ends {
		if len(errs) == len(ends) {
			end(ctx, errs[i])
		} else { // each task is run by Process
			end(ctx, errNoRun)
		}
	}
	return errs
}

// errNoRun ends a run that was none.
var errNoRun = errors.New("no run")

// begin records the start of a run, and returns what records its end.
func (c *Center) begin(t task.Task) (end func(context.Context, error)) {
	r := &Ran{Task: t, Started: time.Now().UTC()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[r] = true
	return func(ctx context.Context, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.runs, r)
		if errors.Is(context.Cause(ctx), ErrCrashed) {
			err = ErrCrashed
		}
		if r.Ended, r.Err = time.Now().UTC(), err; err != errNoRun {
			c.ran = append(c.ran, *r)
		}
	}
}

// stop stops the center in order. The error names the runs that were under way.
func (c *Center) stop() error {
	c.mu.Lock()
	var text strings.Builder
	for r := range c.runs {
		fmt.Fprintf(&text, "\nthe run of task %d has not ended since %s: let it end first, by Advance", r.Task.JobID, moment(r.Started))
	}
	c.mu.Unlock()
	if err := c.node.Load().Shutdown(); err != nil {
		return fmt.Errorf("stop of the center: %w%s", err, &text)
	}
	return nil
}

// Center is a running center, and the test that it is a part of. Its methods fail the test where they cannot do what they say.
type Center struct {
	*testing.T

	world *virtual.World
	node  atomic.Pointer[virtual.Node]
	time  sync.Mutex // held by Advance
	hangs map[int]bool

	mu   sync.Mutex
	ran  []Ran
	runs map[*Ran]bool // under way
}
