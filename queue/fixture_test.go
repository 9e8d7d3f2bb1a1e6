package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	orders = uint64(1) // the biz_types of the queue
	mails  = uint64(2)
)

// rig is a queue with two business types on the clock of a synctest bubble, and the store that its rows are in.
type rig struct {
	*queue.Queue
	t      *testing.T
	start  time.Time
	orders queue.Source // of orders
	mails  queue.Source
	ahead  atomic.Int64 // by how many nanoseconds the wall clock was set forward

	mu       sync.Mutex
	rows     map[uint64]task.Task
	receipts map[uint64][]string // by job_id: the calls of its receipts
	lost     int                 // a partition that another node owns; 0: none
	term     uint64              // of the other partitions
}

// bubble runs a test in a synctest bubble: time passes only when all goroutines wait.
func bubble(t *testing.T, capacity int, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, start: time.Now().UTC(),
			rows: map[uint64]task.Task{}, receipts: map[uint64][]string{}, term: 1,
		}
		r.Queue = queue.New(queue.Config{Capacity: capacity, Partitions: 4, Ownership: r, Now: r.now})
		r.orders, r.mails = r.AddType(task.BizType{ID: orders}), r.AddType(task.BizType{ID: mails})
		f(t, r)
	})
}

// order stores a pending task that is due in a while (or was due, in < 0) and returns it as a read would. Its
// partition is its id modulo 4.
func (r *rig) order(id uint64, in time.Duration) queue.Item {
	return r.stored(task.Task{JobID: id, BizType: orders, ActionTime: time.Now().UTC().Add(in)})
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

// Term makes a rig the queue's Ownership.
func (r *rig) Term(partition int) uint64 {
	if r.lost != 0 && partition == r.lost {
		return 0
	}
	return r.term
}

// lose gives a partition to another node.
func (r *rig) lose(partition int) { r.DropPartitions(func(p int) bool { return p == partition }) }

func (r *rig) mail(id uint64, in time.Duration) queue.Item {
	return r.stored(task.Task{JobID: id, BizType: mails, ActionTime: time.Now().UTC().Add(in)})
}

// stored puts a row into the store, as plain SQL would.
func (r *rig) stored(t task.Task) queue.Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[t.JobID] = t
	return queue.Item{Task: t, Partition: int(t.JobID % 4), Receipt: receipt{r}}
}

func (r *rig) row(id uint64) task.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows[id]
}

// read offers rows as a scan does.
func (r *rig) read(items ...queue.Item) (full []uint64) {
	for _, it := range items {
		read := r.BeginRead(it.Partition)
		full = append(full, r.Offer(read, it)...)
		read.End()
	}
	return full
}

// receipt records its calls. It calls back into the queue, which must not be locked.
type receipt struct{ r *rig }

func (c receipt) Ack(t task.Task) { c.note(t, "acked") }

func (c receipt) Release(t task.Task) { c.note(t, "released") }

func (c receipt) note(t task.Task, word string) {
	c.r.Stats(t.BizType)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.receipts[t.JobID] = append(c.r.receipts[t.JobID], word)
}

func (r *rig) receiptsOf(id uint64) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.receipts[id]...)
}

// due takes what is due now, up to most tasks, without waiting.
func (r *rig) due(c queue.Source, most int) (entries []*queue.Entry) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { entries, _ = c.Take(ctx, most) })
	synctest.Wait()
	cancel()
	wg.Wait()
	return entries
}

// ids takes what is due now and returns the ids in the order of taking.
func (r *rig) ids(c queue.Source) (ids []uint64) {
	for _, e := range r.due(c, 1000) {
		ids = append(ids, e.ID())
	}
	return ids
}

// one takes the one task that is due now.
func (r *rig) one(c queue.Source) *queue.Entry {
	r.t.Helper()
	entries := r.due(c, 10)
	require.Len(r.t, entries, 1)
	return entries[0]
}

// processed ends a run well.
func (r *rig) processed(e *queue.Entry) {
	t := e.Task
	t.Status = task.Processed
	r.stored(t)
	r.Done(e, t, false)
}

// checks takes the rows that are to be checked now, without waiting.
func (r *rig) checks() (entries []*queue.Entry) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { entries, _ = r.NextChecks(ctx) })
	synctest.Wait()
	cancel()
	wg.Wait()
	return entries
}

// check answers NextChecks from the store until the test ends.
func (r *rig) check() {
	ctx := r.t.Context()
	go func() {
		for {
			entries, err := r.NextChecks(ctx)
			if err != nil {
				return
			}
			rows := map[uint64]task.Task{}
			r.mu.Lock()
			for _, e := range entries {
				if t, ok := r.rows[e.ID()]; ok {
					rows[t.JobID] = t
				}
			}
			r.mu.Unlock()
			r.ApplyChecks(entries, rows)
		}
	}()
}

// refill returns where to resume reading, if there is a place now.
func (r *rig) refill() (f queue.Refill, ok bool) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		f, err = r.NextRefill(ctx)
		ok = err == nil
	})
	synctest.Wait()
	cancel()
	wg.Wait()
	return f, ok
}

func (r *rig) after(d time.Duration) { time.Sleep(d) }
