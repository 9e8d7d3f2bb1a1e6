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
//     Databases in files, as SQLite, are fine; net.Pipe and httptest servers on it are, too.
//   - All that the test starts must end before its function returns, or in a Cleanup of the Center: goroutines, sql.DBs,
//     HTTP clients (CloseIdleConnections).
//   - Channels, sync.Conds and timers that the test uses are made inside of it.
//   - Use the Center as the test: it is its *testing.T. The t outside must not be used inside. There are no subtests and no
//     t.Parallel inside; around Run there may be.
//
// # Results
//
// Runs are recorded as they end. An assertion that fails shows the story of the task, like toc why, and at the end of a failed
// test the center's log is shown.
package toctest

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	processor processor.Processor
}

// With adds a business type and the processor that runs its tasks. The type has the scan engine and the defaults of
// configs.DefaultBizType.
func With(name string, p processor.Processor) Option {
	return WithBizType(configs.BizType{Name: name}, p)
}

// WithBizType adds a business type and the processor that runs its tasks. Zero fields of b get the defaults of
// configs.DefaultBizType; a zero ID gets one that is free. Mode is the engine: configs.ModeScan or configs.ModeRedis.
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
		c := &Center{T: t}
		c.world = virtual.New(t, virtual.Config{
			Configure: o.configure,
			Options: func(string) []app.Option {
				var list []app.Option
				for _, b := range o.types {
					list = append(list, app.WithBizType(b.bizType, b.processor))
				}
				return append(list, app.WithMiddleware(c.record))
			},
		})
		c.node = c.world.Start(nodeName)
		f(c)
		c.world.MendAll()
		if err := c.node.Shutdown(); err != nil {
			t.Errorf("stop of the center: %v", err)
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
	started, ended := time.Now().UTC(), false
	defer func() {
		if !ended { // a panic, or runtime.Goexit
			err = errors.New("the processor did not return")
			r.center.add(ctx, t, started, err)
		}
	}()
	err = r.Processor.Process(ctx, t)
	ended = true
	r.center.add(ctx, t, started, err)
	return err
}

type batchRecorder struct {
	recorder
	batch processor.Batch
}

func (r batchRecorder) ProcessBatch(ctx context.Context, list []task.Task) []error {
	started, tasks := time.Now().UTC(), slices.Clone(list)
	errs := r.batch.ProcessBatch(ctx, list)
	if len(errs) == len(tasks) { // else each task is run by Process
		for i, t := range tasks {
			r.center.add(ctx, t, started, errs[i])
		}
	}
	return errs
}

// add records a run.
func (c *Center) add(ctx context.Context, t task.Task, started time.Time, err error) {
	if errors.Is(context.Cause(ctx), ErrCrashed) {
		err = ErrCrashed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran = append(c.ran, Ran{Task: t, Started: started, Ended: time.Now().UTC(), Err: err})
}

// Center is a running center, and the test that it is a part of. Its methods fail the test where they cannot do what they say.
type Center struct {
	*testing.T

	world *virtual.World
	node  *virtual.Node

	mu  sync.Mutex
	ran []Ran
}
