package queue

import (
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// reads has the open reads of one partition, and the tasks that left the queue during them. A row is current if
// its read began after the task left. Otherwise it may show the task as it was before.
type reads struct {
	open       []uint64          // when each open read began, the earliest first
	removed    map[uint64]uint64 // by job_id: when the task left
	tombstones []tombstone       // the same, in the order in which the tasks left
}

type tombstone struct{ jobID, at uint64 }

// stale reports whether a task left after a read began.
func (p *reads) stale(jobID, began uint64) bool { return p.removed[jobID] > began }

func (p *reads) add(jobID, at uint64) {
	if len(p.open) == 0 {
		return // no open read can have seen it
	}
	if p.removed == nil {
		p.removed = make(map[uint64]uint64)
	}
	p.removed[jobID] = at
	p.tombstones = append(p.tombstones, tombstone{jobID, at})
}

func (p *reads) end(began uint64) {
	i, _ := slices.BinarySearch(p.open, began)
	p.open = slices.Delete(p.open, i, i+1)
	if len(p.open) == 0 {
		p.removed, p.tombstones = nil, nil
		return
	}
	n := 0
	for ; n < len(p.tombstones) && p.tombstones[n].at < p.open[0]; n++ {
		if g := p.tombstones[n]; p.removed[g.jobID] == g.at {
			delete(p.removed, g.jobID)
		}
	}
	p.tombstones = slices.Delete(p.tombstones, 0, n)
}

// Read is an announced read of a partition's rows from the store.
type Read struct {
	queue     *Queue
	partition int
	term      uint64
	began     uint64
	at        time.Time // began as a time; the rows are at most this old
}

// BeginRead announces a read. Call it before the first statement is sent, offer the rows with it, and call End
// after.
func (q *Queue) BeginRead(partition int) *Read {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, began := &q.reads[partition], q.nextSeq()
	p.open = append(p.open, began)
	return &Read{queue: q, partition: partition, term: q.cfg.Ownership.Term(partition), began: began, at: q.cfg.Now()}
}

// End ends the read. Its rows must not be offered any more.
func (r *Read) End() {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	r.queue.reads[r.partition].end(r.began)
}

// addTombstone keeps out stale rows of a task that has just left the queue.
func (q *Queue) addTombstone(partition int, jobID uint64) {
	q.reads[partition].add(jobID, q.nextSeq())
}

// Unheld returns the rows of tasks that do not run here, are not held and have not left the queue since the read began. It
// reuses rows.
func (r *Read) Unheld(rows []task.Task) []task.Task {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	return slices.DeleteFunc(rows, func(t task.Task) bool {
		e := r.queue.entries[t.JobID]
		return e != nil && (e.state == running || e.state == held) || r.queue.reads[r.partition].stale(t.JobID, r.began)
	})
}
