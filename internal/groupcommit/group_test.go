package groupcommit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/groupcommit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatArrivesDuringAFlushIsTheNextBatch(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var batches [][]int
	g := groupcommit.New(4, 1, func(b []int) {
		batches = append(batches, append([]int(nil), b...))
		if len(batches) == 1 {
			close(started)
			<-release
		}
	})
	g.Add(1)
	<-started
	g.Add(2, 3)
	g.Add(4)
	g.Add(5, 6, 7)
	close(release)
	g.Wait()
	require.Equal(t, [][]int{{1}, {2, 3, 4, 5}, {6, 7}}, batches)
}

func TestNothingIsLostOrTwiceUnderLoad(t *testing.T) {
	const callers, each = 16, 2000
	seen := make(map[int]int)
	running := false
	g := groupcommit.New(100, 1, func(b []int) {
		// The race detector would find two flushes at once, too.
		if running {
			panic("two flushes at once")
		}
		running = true
		if len(b) > 100 {
			panic("batch over the maximum")
		}
		for _, v := range b {
			seen[v]++
		}
		running = false
	})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				g.Add(c*each + i)
			}
		})
	}
	wg.Wait()
	g.Wait()
	require.Len(t, seen, callers*each)
	for v, n := range seen {
		require.Equal(t, 1, n, "item %d", v)
	}
}

func TestFlushesRunAtTheSameTimeUpToTheBound(t *testing.T) {
	entered, release := make(chan int), make(chan struct{})
	g := groupcommit.New(10, 2, func(b []int) {
		entered <- b[0]
		<-release
	})
	g.Add(1)
	require.Equal(t, 1, <-entered)
	g.Add(2)
	require.Equal(t, 2, <-entered)
	g.Add(3)
	g.Add(4) // both flushes are running: 3 and 4 share the next batch
	close(release)
	require.Equal(t, 3, <-entered)
	g.Wait()
}

func TestBatchesAreBigUntilABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var batches []int
		g := groupcommit.New(10, 3, func(b []int) {
			batches = append(batches, len(b))
			<-release
		}).WithConcurrency(1, 4)
		g.Add(1)
		synctest.Wait()
		g.Add(2)
		g.Add(3)
		g.Add(4)
		synctest.Wait()
		require.Equal(t, []int{1}, batches, "three items wait for the flush under way")
		g.Add(5) // reaches the burst size
		synctest.Wait()
		require.Equal(t, []int{1, 4}, batches)
		close(release)
		g.Wait()
	})
}

// spacing is as in busy.
var spacing = groupcommit.Spacing[int]{Rate: 300, Gap: 200 * time.Millisecond,
	Enough: func(pending []int) bool { return len(pending) >= 500 }}

// busy returns a group that received 1,000 items a second for a second, and the batches that it has flushed
// since.
func busy(t *testing.T, flush time.Duration) (g *groupcommit.Group[int], batches *[]int) {
	batches = new([]int)
	g = groupcommit.New(1000, 1, func(b []int) {
		*batches = append(*batches, len(b))
		time.Sleep(flush)
	}).WithSpacings(spacing)
	for range 1000 {
		g.Add(1)
		time.Sleep(time.Millisecond)
	}
	g.Wait()
	*batches = (*batches)[:0]
	return g, batches
}

func TestNothingIsDelayedAtALowRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flushed int
		g := groupcommit.New(1000, 1, func(b []int) { flushed += len(b) }).WithSpacings(spacing)
		for i := range 1000 {
			g.Add(1)
			synctest.Wait()
			require.Equal(t, i+1, flushed)
			time.Sleep(4 * time.Millisecond) // 250 a second
		}
		g.Wait()
	})
}

func TestABusyGroupFlushesByIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, batches := busy(t, 3*time.Millisecond)
		for range 1000 {
			g.Add(1)
			time.Sleep(time.Millisecond)
		}
		g.Wait()
		require.InDelta(t, 6, len(*batches), 1, "%v", *batches)
		require.Equal(t, 1000, sum(*batches))
	})
}

func TestTheHighestRateThatIsReachedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gaps := func(every time.Duration) int {
			var flushes atomic.Int32
			g := groupcommit.New(1000, 1, func([]int) { flushes.Add(1) }).WithSpacings(
				groupcommit.Spacing[int]{Rate: 25, Gap: 50 * time.Millisecond}, groupcommit.Spacing[int]{Rate: 500, Gap: time.Second})
			for began := time.Now(); time.Since(began) < 12*time.Second; time.Sleep(every) {
				if time.Since(began) == 2*time.Second {
					flushes.Store(0)
				}
				g.Add(1)
			}
			g.Wait()
			return int(flushes.Load())
		}
		require.InDelta(t, 100, gaps(100*time.Millisecond), 2, "each item alone")
		require.InDelta(t, 200, gaps(10*time.Millisecond), 5, "each 50 ms")
		require.InDelta(t, 11, gaps(time.Millisecond), 2, "each second")
	})
}

func TestABusyGroupBecomesIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, batches := busy(t, 3*time.Millisecond)
		for i := range 5 {
			time.Sleep(time.Second)
			before := time.Now()
			g.Add(1)
			g.Wait()
			if i > 1 { // the first flushes measure the rate
				require.Equal(t, 3*time.Millisecond, time.Since(before), "the flush alone")
			}
		}
		require.Equal(t, []int{1, 1, 1, 1, 1}, *batches)
	})
}

// after returns how long the flush of items that are added after a flush takes to begin.
func after(t *testing.T, then func(g *groupcommit.Group[int])) (took time.Duration) {
	g, batches := busy(t, 0)
	g.Add(1)
	g.Wait() // the gap is measured from here
	before := time.Now()
	then(g)
	g.Wait()
	require.Len(t, *batches, 2)
	return time.Since(before)
}

func TestAFlushDoesNotWaitForTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 50*time.Millisecond, after(t, func(g *groupcommit.Group[int]) { g.Add(1, 2, 3) }), "no more items come")
		require.Zero(t, after(t, func(g *groupcommit.Group[int]) { g.Add(make([]int, 500)...) }), "they are enough")
		require.Equal(t, 10*time.Millisecond, after(t, func(g *groupcommit.Group[int]) {
			g.Add(1)
			time.Sleep(10 * time.Millisecond)
			g.Hurry()
		}))
		require.Equal(t, 18*time.Millisecond, after(t, func(g *groupcommit.Group[int]) {
			g.Add(1)
			for range 18 {
				time.Sleep(time.Millisecond)
				g.Add(make([]int, 30)...) // the group asks at 251 and at 511 items
			}
		}), "they become enough")
	})
}

// Before, only the next flush was hurried, and what did not fit into it waited.
func TestAllThatWaitIsHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, batches := busy(t, 10*time.Millisecond)
		g.Add(1)
		g.Wait()
		before := time.Now()
		g.Add(make([]int, 1000)...) // fill a flush
		synctest.Wait()
		g.Add(make([]int, 1200)...) // more than a flush takes
		g.Hurry()
		g.Wait()
		require.Equal(t, 30*time.Millisecond, time.Since(before), "the flushes alone")
		require.Equal(t, []int{1, 1000, 1000, 200}, *batches)
	})
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}
