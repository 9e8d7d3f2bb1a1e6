package queue_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// storm runs all users at once: a scanner with its ticks, refills, checks, submits, cancels and workers. Each
// pauses between reading the store and calling the queue.
type storm struct {
	*rig
	lookahead time.Duration
	ids       uint64
	runs      map[uint64]int  // started
	running   map[uint64]bool // running now
	latest    time.Duration   // the latest start after its time
}

func (s *storm) pause() { time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond) }

func (s *storm) due(p int, from task.Key) (rows []task.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(s.lookahead)
	for id, row := range s.rows {
		if int(id%4) == p && row.Status == task.Pending && !row.ActionTime.After(until) && !task.KeyOf(&row).Before(from) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b task.Task) int {
		if task.KeyOf(&a).Before(task.KeyOf(&b)) {
			return -1
		}
		return 1
	})
	return rows
}

// read reads a partition page by page, to its end or until the queue is full.
func (s *storm) read(p int, from task.Key) {
	read := s.BeginRead(p)
	defer read.End()
	for page := range slices.Chunk(s.due(p, from), 20) {
		s.pause()
		items := make([]queue.Item, len(page))
		for i, t := range page {
			items[i] = queue.Item{Task: t, Partition: p}
		}
		if len(s.Offer(read, items...)) > 0 {
			s.SetResume(orders, p, task.KeyOf(&page[len(page)-1]))
			return
		}
	}
}

func (s *storm) submit() {
	s.mu.Lock()
	s.ids++
	id := s.ids
	s.mu.Unlock()
	due := time.Now().UTC().Add(time.Duration(rand.IntN(4000)) * time.Millisecond)
	s.change(id, func(*task.Task) (task.Task, bool) {
		return task.Task{JobID: id, BizType: orders, ActionTime: due}, true
	})
}

// change holds a task, changes its row and ends the hold.
func (s *storm) change(id uint64, f func(*task.Task) (task.Task, bool)) {
	h, err := s.Hold(context.Background(), id, int(id%4))
	if err != nil {
		return // it is running
	}
	s.pause()
	s.mu.Lock()
	row := s.rows[id]
	row, ok := f(&row)
	if ok {
		s.rows[id] = row
	}
	s.mu.Unlock()
	s.pause()
	if ok && row.Status == task.Pending && !row.ActionTime.After(time.Now().Add(s.lookahead)) {
		h.Requeue(queue.Item{Task: row, Partition: int(id % 4)}, true)
		return
	}
	h.Remove()
}

func (s *storm) cancelOrMove() {
	s.mu.Lock()
	id := 1 + rand.Uint64N(s.ids+1)
	s.mu.Unlock()
	s.change(id, func(row *task.Task) (task.Task, bool) {
		t := *row
		if t.JobID == 0 || t.Status != task.Pending {
			return t, false
		}
		switch rand.IntN(3) {
		case 0:
			t.Status = task.Cancelled
		default:
			t.ActionTime = time.Now().UTC().Add(time.Duration(rand.IntN(3000)) * time.Millisecond)
		}
		return t, true
	})
}

// work runs tasks; one run in four fails and is retried.
func (s *storm) work(ctx context.Context, t *testing.T, most int) {
	for {
		entries, err := s.orders.Take(ctx, most)
		if err != nil {
			return
		}
		for _, e := range entries {
			s.begin(t, e)
		}
		s.pause()
		for _, e := range entries {
			row := e.Task
			if again := rand.IntN(4) == 0; again {
				row.Attempts++
				row.ActionTime = time.Now().UTC().Add(time.Duration(rand.IntN(2000)) * time.Millisecond)
			} else {
				row.Status = task.Processed
			}
			s.mu.Lock()
			s.rows[e.ID()] = row
			delete(s.running, e.ID())
			s.mu.Unlock()
			s.pause()
			s.Done(e, row, row.Status == task.Pending)
		}
	}
}

func (s *storm) begin(t *testing.T, e *queue.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := time.Since(e.Task.ActionTime)
	assert.GreaterOrEqual(t, late, time.Duration(0), "task %d is early", e.ID())
	assert.False(t, s.running[e.ID()], "task %d runs twice at once", e.ID())
	assert.Equal(t, s.rows[e.ID()], e.Task, "task %d runs on a stale row", e.ID())
	s.running[e.ID()] = true
	s.runs[e.ID()]++
	s.latest = max(s.latest, late)
}

func TestStorm(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity int
		submits  int           // a second
		latest   time.Duration // the lateness that is allowed
	}{
		{"with room", 10_000, 100, 20 * time.Millisecond},
		{"in a small queue", 40, 100, 100 * time.Millisecond},
		{"in a queue for one", 1, 4, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.capacity, func(t *testing.T, r *rig) {
				s := &storm{rig: r, lookahead: 2500 * time.Millisecond, runs: map[uint64]int{}, running: map[uint64]bool{}}
				s.play(t, c.submits, 30*time.Second)
				for id, row := range s.rows {
					require.NotEqual(t, task.Pending, row.Status, "task %d is lost", id)
				}
				require.Equal(t, queue.Stats{}, s.Stats(orders))
				t.Logf("%d tasks, %s late at most", s.ids, s.latest)
				require.LessOrEqual(t, s.latest, c.latest)
			})
		})
	}
}

func (s *storm) play(t *testing.T, submits int, length time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var all, users sync.WaitGroup
	for i := range 32 {
		all.Go(func() { s.work(ctx, t, 1+i%2) })
	}
	all.Go(func() { s.checks(ctx) })
	for range 2 {
		all.Go(func() {
			for {
				f, err := s.NextRefill(ctx)
				if err != nil {
					return
				}
				s.read(f.Partition, f.From)
			}
		})
	}
	for p := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				s.ClearResume(p, nil)
				s.read(p, task.Key{})
				time.Sleep(2 * time.Second)
			}
		})
	}
	end := time.Now().Add(length)
	for range 4 {
		users.Go(func() {
			for time.Now().Before(end) {
				s.submit()
				time.Sleep(4 * time.Second / time.Duration(submits))
			}
		})
		users.Go(func() {
			for time.Now().Before(end) {
				s.cancelOrMove()
				time.Sleep(12 * time.Second / time.Duration(submits))
			}
		})
	}
	users.Wait()
	time.Sleep(15 * time.Second)
	cancel()
	s.Close()
	all.Wait()
}

func (s *storm) checks(ctx context.Context) {
	for {
		entries, err := s.NextChecks(ctx)
		if err != nil {
			return
		}
		s.pause()
		rows := map[uint64]task.Task{}
		s.mu.Lock()
		for _, e := range entries {
			rows[e.ID()] = s.rows[e.ID()]
		}
		s.mu.Unlock()
		s.pause()
		s.ApplyChecks(entries, rows)
	}
}
