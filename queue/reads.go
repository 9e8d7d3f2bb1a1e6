package queue

import (
	"slices"
	"time"
)

// reads are the announced reads of one partition, and the tasks that left the
// queue meanwhile. A row may be taken over if its read began after the task
// left; otherwise it may show the task as it was before.
type reads struct {
	open   []uint64          // when each open read began, the oldest first
	left   map[uint64]uint64 // by job_id: when the task left
	graves []grave           // the same, in the order of leaving
}

type grave struct{ jobID, at uint64 }

// stale tells whether a task left after a read began.
func (p *reads) stale(jobID, began uint64) bool { return p.left[jobID] > began }

func (p *reads) bury(jobID, at uint64) {
	if len(p.open) == 0 {
		return // nobody can have seen it
	}
	if p.left == nil {
		p.left = make(map[uint64]uint64)
	}
	p.left[jobID] = at
	p.graves = append(p.graves, grave{jobID, at})
}

func (p *reads) end(began uint64) {
	i, _ := slices.BinarySearch(p.open, began)
	p.open = slices.Delete(p.open, i, i+1)
	if len(p.open) == 0 {
		p.left, p.graves = nil, nil
		return
	}
	n := 0
	for ; n < len(p.graves) && p.graves[n].at < p.open[0]; n++ {
		if g := p.graves[n]; p.left[g.jobID] == g.at {
			delete(p.left, g.jobID)
		}
	}
	p.graves = slices.Delete(p.graves, 0, n)
}

// Read announces that rows of a partition are being read from the store.
type Read struct {
	queue     *Queue
	partition int
	term      uint64
	began     uint64
	at        time.Time // the same; what is read is no older
}

// BeginRead announces a read before its first statement is sent. The rows are
// offered with it; End must follow.
func (q *Queue) BeginRead(partition int) *Read {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, began := &q.reads[partition], q.tick()
	p.open = append(p.open, began)
	return &Read{queue: q, partition: partition, term: q.cfg.Term(partition), began: began, at: q.cfg.Now()}
}

// End ends the read. Rows that were read under it must not be offered any more.
func (r *Read) End() {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	r.queue.reads[r.partition].end(r.began)
}

// tombstone keeps stale rows of a task that has just left out.
func (q *Queue) tombstone(partition int, jobID uint64) {
	q.reads[partition].bury(jobID, q.tick())
}
