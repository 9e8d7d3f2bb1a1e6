package stat_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/bench/stat"
)

func TestOf(t *testing.T) {
	require.Zero(t, stat.Of(nil))
	require.Equal(t, stat.Summary{Repeats: 1, Min: 7, Median: 7, Max: 7}, stat.Of([]float64{7}))
	require.Equal(t, stat.Summary{Repeats: 3, Min: 1, Median: 2, Max: 9}, stat.Of([]float64{9, 1, 2}))
	require.Equal(t, stat.Summary{Repeats: 4, Min: 1, Median: 2.5, Max: 9}, stat.Of([]float64{9, 1, 2, 3}))
	given := []float64{3, 1, 2}
	stat.Of(given)
	require.Equal(t, []float64{3, 1, 2}, given)
}

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for p, want := range map[float64]int{0: 1, 0.01: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		require.Equal(t, want, stat.Percentile(hundred, p), "p %v", p)
	}
	require.Zero(t, stat.Percentile([]int(nil), 0.5))
	require.Equal(t, 4, stat.Percentile([]int{4}, 0.999))
}

// What the words of Percentile promise, for any list.
func TestPercentileIsTheSmallestThatCoversItsPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 200).Draw(t, "list")
		p := float64(rapid.IntRange(0, 1000).Draw(t, "thousandths")) / 1000
		var r stat.Recorder[time.Duration]
		for _, v := range list {
			r.Add(time.Duration(v))
		}
		got := stat.Percentile(r.Sorted(), p)
		covered, below := 0, 0
		for _, v := range list {
			if time.Duration(v) <= got {
				covered++
			}
			if time.Duration(v) < got {
				below++
			}
		}
		need := p * float64(len(list))
		require.Contains(t, r.Sorted(), got)
		require.GreaterOrEqual(t, float64(covered)+1e-6, need)
		if below > 0 {
			require.Less(t, float64(below), need+1e-6)
		}
	})
}

func TestRecorder(t *testing.T) {
	var r stat.Recorder[time.Duration]
	r.Reset(4)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 100 {
				r.Add(time.Duration(c*100 + i))
			}
		})
	}
	wg.Wait()
	require.Equal(t, 800, r.Len())
	for i, d := range r.Sorted() {
		require.Equal(t, time.Duration(i), d)
	}
	r.Reset(0)
	require.Empty(t, r.Sorted())
}
