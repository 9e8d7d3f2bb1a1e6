// Package groupcommit turns many small writes into few big ones without making
// any of them wait when there is nothing to wait for.
//
// Items come in one by one or many at a time, batches go out to a flush
// function. It refuses to know what an item is; an item carries its own way of
// telling the caller what became of it.
//
// The idea is the group commit of databases (DeWitt et al., 1984): a flush
// starts at once when there is a free place for it; what arrives while all places
// are taken makes up the next batch. Under load batches grow by themselves, at
// rest there is no timer and no added latency.
package groupcommit

import (
	"runtime"
	"sync"
)

// Group collects items and flushes them in batches.
type Group[T any] struct {
	flush    func(batch []T)
	max      int
	parallel int
	few      int // so many flushes run before a crowd waits
	crowd    int

	mu      sync.Mutex
	pending []T
	running int
	idle    sync.WaitGroup
}

// New makes a group whose batches hold at most max items. At most parallel
// flushes run at the same time; with 1, items are flushed in the order in which
// they were added. flush must not keep the batch after it returns.
func New[T any](max, parallel int, flush func(batch []T)) *Group[T] {
	return &Group[T]{flush: flush, max: max, parallel: parallel, few: parallel}
}

// Gather makes batches bigger: no more than few flushes run at the same time
// while fewer than crowd items wait. Call it before the first Add.
func (g *Group[T]) Gather(few, crowd int) *Group[T] {
	g.few, g.crowd = few, crowd
	return g
}

// Add hands items over and returns at once. Items added together stay in order.
func (g *Group[T]) Add(items ...T) {
	if len(items) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending = append(g.pending, items...)
	if g.running < g.few || g.running < g.parallel && len(g.pending) >= g.crowd {
		g.running++
		g.idle.Go(g.run)
	}
}

// Wait returns when everything that was added so far has been flushed. Nothing
// may be added at the same time.
func (g *Group[T]) Wait() { g.idle.Wait() }

// run flushes until nothing is left, then ends: an idle group has no goroutine.
func (g *Group[T]) run() {
	var batch, spare []T
	for {
		runtime.Gosched() // callers that the last flush answered may be adding already
		g.mu.Lock()
		if len(g.pending) == 0 {
			g.running--
			g.mu.Unlock()
			return
		}
		if len(g.pending) <= g.max {
			// Swap buffers: the usual case copies nothing.
			batch, g.pending = g.pending, spare[:0]
			spare = batch
		} else {
			batch = append(make([]T, 0, g.max), g.pending[:g.max]...)
			rest := copy(g.pending, g.pending[g.max:])
			clear(g.pending[rest:])
			g.pending = g.pending[:rest]
		}
		g.mu.Unlock()

		g.flush(batch)
		clear(batch)
	}
}
