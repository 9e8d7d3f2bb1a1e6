package queue

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Receipt reports the fate of an entry to the engine that offered it. The queue calls exactly one of its
// methods for each entry with a receipt, and never under the queue's lock.
type Receipt interface {
	// Ack reports that the outcome of a run is durable. t is the row as it is now.
	Ack(t task.Task)
	// Release reports that the task left the queue without having been started.
	Release(t task.Task)
}

// Item is one task that an engine offers.
type Item struct {
	Task      task.Task
	Partition int
	Receipt   Receipt // nil if the engine needs no report
	// Claimed means that the engine keeps the task until its receipt is called, and offers it again after a
	// Release.
	Claimed bool
	// Found is when the engine has found the task, before its row was read. Zero: with the offer.
	Found time.Time
}

type state uint8

const (
	waiting  state = iota // read before its time
	checking              // its row is being read again
	ready                 // starts as soon as it is due
	running               // taken by a worker, until its outcome is durable
	held                  // the placeholder of a Hold
	removed               // left the queue
)

// Entry is a task in the queue. Between Take and Done its fields belong to the worker that took it.
type Entry struct {
	Item

	bizQueue   *bizQueue
	state      state
	runAt      time.Time // when it can first run: the later of action_time and the time of the offer
	at         int64     // in Unix nanoseconds: runAt of a ready entry, or when the row of a waiting one is read again
	seq        uint64    // breaks ties of at
	term       uint64    // term of the partition when the row was read or the hold began
	readAt     time.Time // when the read of its row began
	checkBegan time.Time // when the read of the current check began; see NextChecks
	slowCheck  bool      // the last check took longer than StaleAfter
	reread     bool      // it is waiting or checking although it is due; see bizQueue.rereads
	startedAt  time.Time // when a worker took it, or its start was confirmed

	// For Called:
	offeredAt time.Time     // when its row, with this action_time, came into the queue
	checked   time.Duration // the time of its checks after it was due
	takenAt   time.Time
	called    bool

	class       class // of ready
	late        bool  // it belongs to the backlog that catch_up limits
	retryCall   *int  // the retries of its call of Take that have not ended; nil: it is none
	isFree      bool  // it counts for no limit any more
	hasEnded    bool  // its run has ended; see RunsEnded
	index       int   // index in bizQueue.waiting or bizQueue.ready
	latestIndex int   // index in bizQueue.latest

	wasOffered bool          // while held: an engine offered the task, and Task has its row
	holdWanted chan struct{} // while postponed: closed when a Hold of the task is wanted
	removed    chan struct{} // closed when it leaves the queue; nil: nobody waits for that
}

func (e *Entry) before(f *Entry) bool {
	if !e.runAt.Equal(f.runAt) {
		return e.runAt.Before(f.runAt)
	}
	return e.seq < f.seq
}

// sooner is the order of the heap that an entry is in.
func (e *Entry) sooner(f *Entry) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	return e.seq < f.seq
}

// earliestHeap orders entries by at, the earliest first (container/heap).
type earliestHeap []*Entry

func (h earliestHeap) Len() int           { return len(h) }
func (h earliestHeap) Less(i, j int) bool { return h[i].sooner(h[j]) }
func (h earliestHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *earliestHeap) Push(x any) {
	e := x.(*Entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *earliestHeap) Pop() any { return pop((*[]*Entry)(h)) }

// latestHeap orders entries by runAt, the latest first.
type latestHeap []*Entry

func (h latestHeap) Len() int           { return len(h) }
func (h latestHeap) Less(i, j int) bool { return h[j].before(h[i]) }
func (h latestHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].latestIndex, h[j].latestIndex = i, j
}

func (h *latestHeap) Push(x any) {
	e := x.(*Entry)
	e.latestIndex = len(*h)
	*h = append(*h, e)
}

func (h *latestHeap) Pop() any { return pop((*[]*Entry)(h)) }

// pop removes the last entry.
func pop(list *[]*Entry) *Entry {
	n := len(*list) - 1
	e := (*list)[n]
	*list = slices.Delete(*list, n, n+1)
	return e
}

// ID is the task's job_id. Unlike the other fields it may be read at any time.
func (e *Entry) ID() uint64 { return e.Task.JobID }

// Term is the term of the task's partition in which its row was last read.
func (e *Entry) Term() uint64 { return e.term }
