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
	"time"
)

// Group collects items and flushes them in batches.
type Group[T any] struct {
	flush    func(batch []T)
	max      int
	parallel int
	few      int // so many flushes run before a crowd waits
	crowd    int
	every    time.Duration // see Pace; 0: nothing waits
	full     int
	rate     float64

	mu      sync.Mutex
	pending []T
	running int
	idle    sync.WaitGroup

	began   time.Time // when the last flush did
	since   time.Time // when counting what arrives began
	arrived int
	rush    bool // the last count was of the rate or more
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

// Pace makes flushes rarer in a rush, while rate items a second or more
// arrive: then a flush begins once full items wait, every has passed since the
// last one began, or nothing more arrives. Call it before the first Add.
func (g *Group[T]) Pace(every time.Duration, full int, rate float64) *Group[T] {
	g.every, g.full, g.rate = every, full, rate
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
	g.arrived += len(items)
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
		g.hold()
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
		g.judge()
		g.mu.Unlock()

		g.flush(batch)
		clear(batch)
	}
}

// quiet is how long nothing arrives when nothing more is expected to.
const quiet = 10 * time.Millisecond

// hold waits for more items in a rush. The lock is held, but not while it waits.
func (g *Group[T]) hold() {
	for g.rush && len(g.pending) > 0 && len(g.pending) < g.full {
		wait := min(quiet, g.every-time.Since(g.began))
		if wait <= 0 {
			return
		}
		seen := len(g.pending)
		g.mu.Unlock()
		time.Sleep(wait)
		g.mu.Lock()
		if len(g.pending) == seen {
			return
		}
	}
}

// judge tells by what has arrived whether there is a rush. The lock is held.
func (g *Group[T]) judge() {
	if g.every == 0 {
		return
	}
	g.began = time.Now()
	if passed := g.began.Sub(g.since); passed >= g.every/4 { // a rush is noticed soon
		g.rush = float64(g.arrived) >= g.rate*passed.Seconds()
		g.since, g.arrived = g.began, 0
	}
}
