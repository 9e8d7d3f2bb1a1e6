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
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// Group collects items and flushes them in batches.
type Group[T any] struct {
	flush         func(batch []T)
	max           int
	maxConcurrent int
	minConcurrent int // concurrent flushes while fewer than burstSize items are pending
	burstSize     int
	spacings      []Spacing[T] // in ascending order of their rates

	mu      sync.Mutex
	pending []T
	running int
	ended   *sync.Cond // running has fallen to 0

	spacing   *Spacing[T] // in force; nil: no flush waits
	hurried   bool        // the next flush does not wait
	wakeAt    int         // wake is set when so many items are pending
	wake      wait.Signal // ends the wait of a flush
	lastFlush time.Time   // when the last flush began
	arrived   wait.Rate
}

// Spacing makes flushes rarer while many items arrive. A flush then begins when Gap has passed since the last one began, when there
// are Enough items, or when no more have come for a while.
type Spacing[T any] struct {
	Rate   float64 // from so many items a second on
	Gap    time.Duration
	Enough func(pending []T) bool // asked now and then; nil: the maximum of a batch is enough
}

// New makes a group whose batches hold at most max items. At most concurrent flushes run at the same time. With
// 1, items are flushed in the order in which they were added. flush must not keep the batch after it returns.
func New[T any](max, concurrent int, flush func(batch []T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, maxConcurrent: concurrent, minConcurrent: concurrent, wakeAt: math.MaxInt, wake: wait.NewSignal()}
	g.ended = sync.NewCond(&g.mu)
	return g
}

// WithConcurrency makes batches bigger: no more than minConcurrent flushes run at the same time while fewer
// than burstSize items are pending. Call it before the first Add.
func (g *Group[T]) WithConcurrency(minConcurrent, burstSize int) *Group[T] {
	g.minConcurrent, g.burstSize = minConcurrent, burstSize
	return g
}

// WithSpacings spaces the flushes of a group that has one at a time. The rates ascend. Call it before the first Add.
func (g *Group[T]) WithSpacings(list ...Spacing[T]) *Group[T] {
	g.spacings = list
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
	g.arrived.Add(len(items))
	if len(g.pending) >= g.wakeAt {
		g.wake.Set()
	}
	if g.running < g.minConcurrent || g.running < g.maxConcurrent && len(g.pending) >= g.burstSize {
		g.running++
		go g.run()
	}
}

// Hurry makes a flush begin that waits for more items.
func (g *Group[T]) Hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hurried = true
	g.wake.Set()
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
		g.updateSpacing()
		g.mu.Unlock()

		g.flush(batch)
		clear(batch)
	}
}

const (
	quietTime   = 50 * time.Millisecond // without a new item; after it a flush does not wait any longer
	enoughEvery = 250                   // so many items a Spacing is asked whether they are enough
	rateItems   = 25                    // so many items show a rate before the window is over
	rateWindow  = 250 * time.Millisecond
)

// awaitBatch waits for more items by the spacing. The lock is held, but released during the wait.
func (g *Group[T]) awaitBatch() {
	for g.spacing != nil && !g.hurried && len(g.pending) > 0 && len(g.pending) < g.max {
		left := min(quietTime, g.spacing.Gap-time.Since(g.lastFlush))
		if left <= 0 || g.spacing.Enough != nil && g.spacing.Enough(g.pending) {
			return
		}
		seen := len(g.pending)
		g.wakeAt = min(seen+enoughEvery, g.max)
		g.mu.Unlock()
		isWoken := g.sleep(left)
		g.mu.Lock()
		if g.wakeAt = math.MaxInt; !isWoken && len(g.pending) == seen {
			return
		}
	}
}

// sleep waits for d, or until wake is set.
func (g *Group[T]) sleep(d time.Duration) (isWoken bool) {
	select {
	case <-time.After(d):
		return false
	case <-g.wake:
		return true
	}
}

// updateSpacing chooses the spacing for the rate of the last items, once that is known. The lock is held.
func (g *Group[T]) updateSpacing() {
	g.hurried = g.hurried && len(g.pending) > 0
	if len(g.spacings) == 0 {
		return
	}
	g.lastFlush = time.Now()
	if !g.arrived.Update(g.lastFlush, rateWindow, rateItems) {
		return
	}
	g.spacing = nil
	for i := range g.spacings {
		if g.arrived.PerSecond >= g.spacings[i].Rate {
			g.spacing = &g.spacings[i]
		}
	}
}
