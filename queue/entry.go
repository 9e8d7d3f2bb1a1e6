package queue

import (
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Receipt is how an entry reports back to the engine that offered it. Each
// entry with a receipt gets exactly one call, never under the queue's lock.
type Receipt interface {
	// Settled: the outcome of a run is durable; t is the row as it is now.
	Settled(t task.Task)
	// GivenBack: the task left the queue without having been started.
	GivenBack(t task.Task)
}

// Item is what an engine offers.
type Item struct {
	Task      task.Task
	Partition int
	Receipt   Receipt // nil: the store's row says it all
	// Claimed: the engine keeps the task until its receipt is told, and offers it
	// again when it is given back.
	Claimed bool
}

type state uint8

const (
	waiting  state = iota // in memory before its time
	checking              // its row is being read again
	ready                 // runs as soon as it is due
	running               // taken by a worker, until its outcome is durable
	held                  // somebody is changing the task
	gone                  // left the queue
)

// Entry is a task in the queue. Its fields are the taker's from Take to Done.
type Entry struct {
	Item

	lane  *lane
	state state
	runAt time.Time // when it can first run: the later of action_time and the offer
	seq   uint64    // order among equals
	term  uint64    // of the partition, when the row was seen or the hold began
	read  time.Time // when the read of its row began
	asked time.Time // when the one that is under way began; see NextChecks
	slow  bool      // the last check took longer than a row may be old
	began time.Time // when it was taken by a worker
	near  int       // index in lane.waiting by runAt, or in lane.ready
	far   int       // index in lane.farthest

	missed bool          // while held: Task was offered meanwhile
	wanted chan struct{} // while postponed: closed when somebody wants to change the task
	free   chan struct{} // of held and postponed: closed when it leaves the queue
}

func (e *Entry) before(f *Entry) bool {
	if !e.runAt.Equal(f.runAt) {
		return e.runAt.Before(f.runAt)
	}
	return e.seq < f.seq
}

// nearHeap orders entries by runAt, the next one first (container/heap).
type nearHeap []*Entry

func (h nearHeap) Len() int           { return len(h) }
func (h nearHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h nearHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].near, h[j].near = i, j
}

func (h *nearHeap) Push(x any) {
	e := x.(*Entry)
	e.near = len(*h)
	*h = append(*h, e)
}

func (h *nearHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = nil
	*h = old[:n]
	return e
}

// farHeap orders entries by runAt, the last one first.
type farHeap []*Entry

func (h farHeap) Len() int           { return len(h) }
func (h farHeap) Less(i, j int) bool { return h[j].before(h[i]) }
func (h farHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].far, h[j].far = i, j
}

func (h *farHeap) Push(x any) {
	e := x.(*Entry)
	e.far = len(*h)
	*h = append(*h, e)
}

func (h *farHeap) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = nil
	*h = old[:n]
	return e
}

// ID is the task's job_id. Unlike the other fields it may be read by anyone.
func (e *Entry) ID() uint64 { return e.Task.JobID }

// Term is the term of the task's partition in which it was seen last.
func (e *Entry) Term() uint64 { return e.term }
