package processor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/groupcommit"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// finish is a run that has ended and waits to be recorded.
type finish struct {
	entry   *queue.Entry
	bizType *task.BizType
	outcome Outcome
	move    store.Move
	row     task.Task // as it will stand
	ran     time.Duration
}

// maxFlush is how many outcomes one transaction records at most.
const maxFlush = 1000

// Where many outcomes a second are to be recorded, firing goes first: they wait for
// each other, for a moment. At worst so many tasks more run again after a crash.
const (
	paceEvery = 200 * time.Millisecond
	paceFull  = 250
	paceRate  = 500 // a second, of a database
)

// finisher makes outcomes durable: per database, one flush at a time, the next
// one takes what arrived meanwhile. A task stays in the queue, as running, until
// its outcome is durable, so nobody can run it again before.
type finisher struct {
	store    Store
	queue    *queue.Queue
	layout   sharding.Layout
	observer Observer
	near     func(bizType uint64, partition int, due time.Time) bool
	kept     func(...task.Task)
	logger   *slog.Logger
	groups   []*groupcommit.Group[finish]
	failing  []atomic.Bool // by database: its last flush failed
	back     func()        // called when a database records again
}

func (f *finisher) start(ctx context.Context) {
	f.failing = make([]atomic.Bool, f.layout.Databases)
	for d := range f.layout.Databases {
		g := groupcommit.New(maxFlush, 1, func(batch []finish) { f.flush(ctx, d, batch) })
		f.groups = append(f.groups, g.Pace(paceEvery, paceFull, paceRate))
	}
}

// add hands outcomes over. Those of one database stay together.
func (f *finisher) add(list ...finish) {
	for len(list) > 0 {
		d := f.layout.PartitionDatabase(list[0].entry.Partition)
		n := 1
		for n < len(list) && f.layout.PartitionDatabase(list[n].entry.Partition) == d {
			n++
		}
		f.groups[d].Add(list[:n]...)
		list = list[n:]
	}
}

// writable tells whether outcomes of a partition's tasks can be recorded now, as
// far as is known.
func (f *finisher) writable(partition int) bool {
	return !f.failing[f.layout.PartitionDatabase(partition)].Load()
}

func (f *finisher) wait() {
	for _, g := range f.groups {
		g.Wait()
	}
}

// flush records a batch, trying until it is durable or ctx, the program's own
// patience, ends. Without a record the tasks are still pending and run again.
func (f *finisher) flush(ctx context.Context, database int, batch []finish) {
	moves := make([]store.Move, len(batch))
	for i := range batch {
		moves[i] = batch[i].move
	}
	stamp := f.store.Stamp(database)
	pause := 50 * time.Millisecond
	for try := 1; ; try++ {
		// A record on its way is not cut off: the store bounds its time.
		applied, err := f.store.Apply(context.WithoutCancel(ctx), database, stamp, moves)
		if err == nil {
			f.settle(batch, applied)
			if f.failing[database].Swap(false) {
				f.back()
			}
			if try > 1 {
				f.logger.Info("outcomes recorded after all", "database", database, "tasks", len(batch), "tries", try)
			}
			return
		}
		f.failing[database].Store(true)
		if ctx.Err() != nil {
			f.logger.Error("outcomes not recorded: these tasks will run again", "database", database, "tasks", len(batch), "error", err)
			return
		}
		f.logger.Warn("outcomes not recorded yet, trying again", "database", database, "tasks", len(batch), "retry_in", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, 5*time.Second)
	}
}

func (f *finisher) settle(batch []finish, applied []bool) {
	for i := range batch {
		d := &batch[i]
		// A claimed task goes back to its engine.
		ours := d.outcome == Failed && applied[i] && !d.entry.Claimed
		again := ours && f.near(d.bizType.ID, d.entry.Partition, d.row.ActionTime)
		if !applied[i] {
			d.outcome = Fenced
		}
		f.queue.Done(d.entry, d.row, again)
		if ours && !again {
			f.kept(d.row)
		}
		f.observer.Finished(*d.bizType, d.outcome, d.ran)
	}
}
