package groupcommit_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/groupcommit"
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
		// The race detector would catch two flushes at once; so does this.
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
	g.Add(4) // both places are taken: 3 and 4 share the next batch
	close(release)
	require.Equal(t, 3, <-entered)
	g.Wait()
}

func TestGatheredBatchesAreBigUntilACrowdWaits(t *testing.T) {
	entered, release := make(chan int), make(chan struct{})
	g := groupcommit.New(10, 3, func(b []int) {
		entered <- len(b)
		<-release
	}).Gather(1, 4)
	g.Add(1)
	require.Equal(t, 1, <-entered)
	g.Add(2)
	g.Add(3)
	g.Add(4)
	select {
	case n := <-entered:
		t.Fatalf("%d items did not wait for the flush under way", n)
	case <-time.After(20 * time.Millisecond):
	}
	g.Add(5) // the crowd
	require.Equal(t, 4, <-entered)
	close(release)
	g.Wait()
}
