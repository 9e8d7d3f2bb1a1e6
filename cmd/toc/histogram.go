package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// latencies collects durations from many goroutines.
type latencies struct {
	mu   sync.Mutex
	list []time.Duration
}

func (l *latencies) add(d ...time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d...)
}

// sorted gives what was collected so far, the shortest first.
func (l *latencies) sorted() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.list)
	slices.Sort(list)
	return list
}

// percentile gives the smallest value that p (0 to 1) of a sorted list do not exceed.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(p*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// millis shows a duration as people compare latencies: 0.9 ms, 17 ms, 1,204 ms.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return thousands(int(ms+0.5)) + " ms"
}

// thousands writes 1204 as 1,204.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

var histogramBounds = []time.Duration{
	500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	500 * time.Millisecond, time.Second, 10 * time.Second,
}

// histogram draws a sorted list as bars, one line a range, without the empty
// ranges at both ends.
func histogram(sorted []time.Duration, width int) string {
	counts := make([]int, len(histogramBounds)+1)
	for _, d := range sorted {
		i, _ := slices.BinarySearch(histogramBounds, d)
		counts[i]++
	}
	first, last := 0, len(counts)-1
	for first < last && counts[first] == 0 {
		first++
	}
	for last > first && counts[last] == 0 {
		last--
	}
	most := slices.Max(counts)
	var b strings.Builder
	for i := first; i <= last; i++ {
		label := "more"
		if i < len(histogramBounds) {
			label = "≤ " + histogramBounds[i].String()
		}
		fmt.Fprintf(&b, "  %8s  %-*s %s\n", label, width, bar(counts[i], most, width), thousands(counts[i]))
	}
	return b.String()
}

// bar is at most width characters long. It is not empty if n is not 0.
func bar(n, most, width int) string {
	if n == 0 || most == 0 {
		return ""
	}
	const eighths = "▏▎▍▌▋▊▉█"
	units := max(1, n*width*8/most)
	s := strings.Repeat("█", units/8)
	if r := units % 8; r > 0 {
		s += string([]rune(eighths)[r-1])
	}
	return s
}
