// Package stat is the arithmetic of the benchmark: values come in from many
// goroutines, medians and percentiles go out.
package stat

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Summary is one number measured several times.
type Summary struct {
	Repeats          int
	Min, Median, Max float64
}

// Of summarizes repeats; of none it is zero. The median of an even number is the
// mean of the two in the middle. The list is left as it is.
func Of(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{}
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return Summary{Repeats: n, Min: sorted[0], Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Max: sorted[n-1]}
}

// Percentile gives the smallest value of a sorted list that at least the part p
// (0 to 1) of it does not exceed; of an empty list it is zero.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	var zero T
	if len(sorted) == 0 {
		return zero
	}
	const rounding = 1e-9 // 0.99 × 100 is a little more than 99
	i := int(math.Ceil(p*float64(len(sorted))-rounding)) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Recorder collects values. Adding never allocates while it has room.
type Recorder[T cmp.Ordered] struct {
	mu   sync.Mutex
	list []T
}

// Reset forgets what was collected and makes room for n.
func (r *Recorder[T]) Reset(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = make([]T, 0, n)
}

// Add collects some.
func (r *Recorder[T]) Add(v ...T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v...)
}

// Len is how many were collected.
func (r *Recorder[T]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list)
}

// Sorted gives what was collected, the shortest first.
func (r *Recorder[T]) Sorted() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.list)
	slices.Sort(list)
	return list
}
