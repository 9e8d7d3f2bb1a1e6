// Package groupcommit turns many small writes into few big ones, without delaying a write while the system is
// idle.
//
// Items come in one by one or many at a time. Batches of them go out to a flush function. The package does not
// know what an item is: the flush function reports the result of each item to its caller.
//
// The idea is the group commit of databases (DeWitt et al., 1984). A flush starts at once if fewer than the
// allowed number are running. Items that arrive while all of them run make up the next batch. Batches thus grow
// with the load, and without load there is neither a timer nor added latency.
package groupcommit

import (
	"runtime"
	"sync"
	"time"
)

// Group collects items and flushes them in batches.
type Group[T any] struct {
	flush         func(batch []T)
	max           int
	maxConcurrent int
	minConcurrent int // concurrent flushes while fewer than burstSize items are pending
	burstSize     int
	delay         time.Duration // see WithDelay; 0: no flush is delayed
	delayedSize   int
	minRate       float64

	mu      sync.Mutex
	pending []T
	running int
	ended   *sync.Cond // running has fallen to 0

	lastFlush    time.Time // when the last flush began
	countedSince time.Time // since when arrived is counted
	arrived      int
	busy         bool // the last count reached minRate
}

// New makes a group whose batches hold at most max items. At most concurrent flushes run at the same time. With
// 1, items are flushed in the order in which they were added. flush must not keep the batch after it returns.
func New[T any](max, concurrent int, flush func(batch []T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, maxConcurrent: concurrent, minConcurrent: concurrent}
	g.ended = sync.NewCond(&g.mu)
	return g
}

// WithConcurrency makes batches bigger: no more than minConcurrent flushes run at the same time while fewer
// than burstSize items are pending. Call it before the first Add.
func (g *Group[T]) WithConcurrency(minConcurrent, burstSize int) *Group[T] {
	g.minConcurrent, g.burstSize = minConcurrent, burstSize
	return g
}

// WithDelay makes flushes rarer while minRate items a second or more arrive. Then a flush begins once size
// items are pending, delay has passed since the last flush began, or nothing more arrives. Call it before the
// first Add.
func (g *Group[T]) WithDelay(delay time.Duration, size int, minRate float64) *Group[T] {
	g.delay, g.delayedSize, g.minRate = delay, size, minRate
	return g
}

// Add queues items and returns at once. Items added together stay in order.
func (g *Group[T]) Add(items ...T) {
	if len(items) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending = append(g.pending, items...)
	g.arrived += len(items)
	if g.running < g.minConcurrent || g.running < g.maxConcurrent && len(g.pending) >= g.burstSize {
		g.running++
		go g.run()
	}
}

// Wait returns when everything that was added so far has been flushed.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.running > 0 {
		g.ended.Wait()
	}
}

// run flushes until nothing is pending, then ends: an idle group has no goroutine.
func (g *Group[T]) run() {
	var batch, spare []T
	for {
		runtime.Gosched() // let callers run whose writes the last flush finished: they may add more
		g.mu.Lock()
		g.awaitBatch()
		if len(g.pending) == 0 {
			if g.running--; g.running == 0 {
				g.ended.Broadcast()
			}
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
		g.updateRate()
		g.mu.Unlock()

		g.flush(batch)
		clear(batch)
	}
}

// quietTime is the time without a new item after which a flush is not delayed any longer.
const quietTime = 10 * time.Millisecond

// awaitBatch waits for more items while the group is busy. The lock is held, but released while it sleeps.
func (g *Group[T]) awaitBatch() {
	for g.busy && len(g.pending) > 0 && len(g.pending) < g.delayedSize {
		wait := min(quietTime, g.delay-time.Since(g.lastFlush))
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

// updateRate finds out from the number of arrived items whether the group is busy. The lock is held.
func (g *Group[T]) updateRate() {
	if g.delay == 0 {
		return
	}
	g.lastFlush = time.Now()
	if passed := g.lastFlush.Sub(g.countedSince); passed >= g.delay/4 { // a quarter, so that a rise of the load shows early
		g.busy = float64(g.arrived) >= g.minRate*passed.Seconds()
		g.countedSince, g.arrived = g.lastFlush, 0
	}
}
