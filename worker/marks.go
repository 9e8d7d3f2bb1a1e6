package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// marks are the starts of suspects that this process has marked, until their outcomes are durable.
//
// A mark is a number in the column lease of the row: how many starts had no end, with the one that is about to begin. A
// compare-and-set writes it right before that start, and the outcome of the run takes it out. If the process ends in between, the
// mark stays, and the next owner reads it with the row.
type marks struct {
	starts  sync.Map                  // *start by *queue.Entry
	unmade  sync.Map                  // *start by job_id: it is none, and its row may have its mark all the same
	refused []atomic.Pointer[refusal] // by shard: the last one
	work    sync.WaitGroup            // calls of the store, and settlePartitions
}

// start is the start of a suspect. Its fields do not change once it is one of the marks.
type start struct {
	entry *queue.Entry
	cuts  int    // starts before it that had no end
	mark  uint64 // what the row has from now on
	next  func() // lets the next task run that runs alone; may be nil
}

// refusal is why a row of a table could not be marked.
type refusal struct {
	err   error
	until time.Time // no other suspect of the table is tried before
}

// refusedFor is how long no suspect of a table is tried after one could not be marked: a lock takes a worker's time.
const refusedFor = 5 * time.Second

// storePatience is how long a worker waits for one answer of a database. Its other tasks may be of databases that answer.
const storePatience = 2 * time.Second

// markAll marks starts, and returns the tasks that may start. The others go back: their rows have changed, or cannot be written.
func (w *worker) markAll(starts []*start) (ready []*queue.Entry) {
	now := w.cfg.Now()
	moves := make([]store.Move, len(starts))
	for i, s := range starts {
		read := s.entry.Task
		moves[i] = store.Move{JobID: read.JobID, From: task.Pending, To: task.Pending, Read: &read, DueBy: &now, HasLease: &read.Lease,
			Set: store.Set{Lease: &s.mark}}
		w.marks.starts.Store(s.entry, s)
		w.marks.unmade.Delete(read.JobID)
	}
	var failed error
	for i, m := range w.moveInTime(moves) {
		s := starts[i]
		if m.Applied {
			s.entry.Task.Lease = s.mark
			ready = append(ready, s.entry)
			continue
		}
		if m.Err != nil {
			failed = m.Err
			w.marks.unmade.Store(s.entry.ID(), s)
			w.marks.refused[w.shardOf(s.entry.ID())].Store(&refusal{m.Err, w.cfg.Now().Add(refusedFor)})
		}
		w.marks.end(s.entry)
		w.cfg.Queue.Return(s.entry)
	}
	if failed != nil {
		w.cfg.Logger.Warn("tasks do not start: they may have ended a process, and their rows cannot be marked", "biz_type", w.bizType.Name,
			"tasks", len(starts)-len(ready), "error", failed)
	}
	return ready
}

// undo takes back marks: these starts are none, or their runs are cut off without their fault. Earlier starts still count.
func (r *Runner) undo(starts []*start) {
	moves := make([]store.Move, len(starts))
	for i, s := range starts {
		moves[i] = store.Move{JobID: s.entry.ID(), From: task.Pending, To: task.Pending, HasLease: &s.mark,
			Set: store.Set{Lease: new(uint64(s.cuts))}}
	}
	for i, m := range r.moveInTime(moves) {
		s := starts[i]
		if m.Err != nil {
			r.marks.unmade.Store(s.entry.ID(), s)
		} else {
			r.marks.unmade.CompareAndDelete(s.entry.ID(), s)
		}
		r.marks.end(s.entry)
	}
}

// Hurry makes outcomes be recorded soon: another node waits for a partition.
func (r *Runner) Hurry() { r.finisher.hurry() }

// Abandon takes back the marks of a partition that goes to another node while its tasks still run here. It returns when that is
// durable, or its database does not answer.
func (r *Runner) Abandon(partition int) { r.abandon(func(p int) bool { return p == partition }) }

func (r *Runner) abandon(which func(partition int) bool) {
	var starts []*start
	for _, known := range []*sync.Map{&r.marks.starts, &r.marks.unmade} {
		for _, s := range known.Range {
			if s := s.(*start); which(s.entry.Partition) {
				starts = append(starts, s)
			}
		}
	}
	r.undo(starts)
}

var errNoAnswer = errors.New("no answer in time")

// moveInTime makes moves and waits for the answers, for storePatience at most. A move without an answer may be made later.
func (r *Runner) moveInTime(moves []store.Move) []store.Moved {
	byDatabase := make(map[int][]int)
	results := make([]store.Moved, len(moves))
	for i := range moves {
		results[i].Err = errNoAnswer
		d := r.cfg.Layout.Database(r.shardOf(moves[i].JobID))
		byDatabase[d] = append(byDatabase[d], i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	answers := make(chan func(), len(byDatabase))
	for _, of := range byDatabase {
		part := make([]store.Move, len(of))
		for i, m := range of {
			part[i] = moves[m]
		}
		r.marks.work.Go(func() {
			moved := r.cfg.Store.MoveAll(ctx, part)
			answers <- func() {
				for i, m := range of {
					results[m] = moved[i]
				}
			}
		})
	}
	for range byDatabase {
		select {
		case answer := <-answers:
			answer()
		case <-ctx.Done():
			return results
		}
	}
	return results
}

func (r *Runner) shardOf(jobID uint64) int {
	shard, _ := r.cfg.Layout.ShardOf(jobID)
	return shard
}

// of returns the marked start of a taken entry; nil: it has none.
func (m *marks) of(e *queue.Entry) *start {
	known, _ := m.starts.Load(e)
	s, _ := known.(*start)
	return s
}

// unmadeOf returns the start of this process that the row of an entry counts and that was none; nil: there is none.
func (m *marks) unmadeOf(e *queue.Entry) *start {
	known, _ := m.unmade.Load(e.ID())
	if s, _ := known.(*start); s != nil && s.mark == e.Task.Lease && s.entry.Term() == e.Term() {
		return s
	}
	return nil
}

// end forgets the start of an entry, whose outcome is durable, or which is none.
func (m *marks) end(e *queue.Entry) {
	if s, known := m.starts.LoadAndDelete(e); known && s.(*start).next != nil {
		s.(*start).next()
	}
}

// refusal returns why no suspect of a table is tried now; nil: each may be.
func (m *marks) refusal(shard int, now time.Time) error {
	if why := m.refused[shard].Load(); why != nil && now.Before(why.until) {
		return why.err
	}
	return nil
}
