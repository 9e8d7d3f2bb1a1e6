package metrics

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// recentMinutes is how many minutes Recent keeps; one more is under way.
const recentMinutes = 60

// recentBounds are the bounds of lateness in Recent, in seconds: six a decade, from half a millisecond to an hour.
var recentBounds = func() (list []float64) {
	list = []float64{.0005}
	for decade := .001; decade < 3600; decade *= 10 {
		for _, n := range []float64{1, 1.5, 2, 3, 5, 7} {
			if bound := math.Round(decade*n*1e4) / 1e4; bound < 3600 {
				list = append(list, bound)
			}
		}
	}
	return append(list, 3600)
}()

// Recent counts the work of the last hour by the minute, of all business types together.
type Recent struct {
	submitted, runs, failed atomic.Int64
	late                    []atomic.Int64 // by recentBounds; the last one is what is above them

	mu      sync.Mutex
	minutes []Minute // the earliest first
}

// Minute is what happened in a minute.
type Minute struct {
	At                      time.Time // when it begins
	Submitted, Runs, Failed int
	Late                    map[float64]int // runs that started, by the least bound above their lateness in seconds; +Inf: none
}

func newRecent() *Recent { return &Recent{late: make([]atomic.Int64, len(recentBounds)+1)} }

func (r *Recent) started(late time.Duration) {
	i, exact := slices.BinarySearch(recentBounds, late.Seconds())
	if exact {
		i++
	}
	r.late[i].Add(1)
}

// Tick moves what was counted since the last Tick into the minute of now. Call it every few seconds.
func (r *Recent) Tick(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now.UTC().Truncate(time.Minute)
	if n := len(r.minutes); n == 0 || r.minutes[n-1].At.Before(at) {
		r.minutes = append(r.minutes, Minute{At: at, Late: map[float64]int{}})
	}
	m := &r.minutes[len(r.minutes)-1]
	m.Submitted += int(r.submitted.Swap(0))
	m.Runs += int(r.runs.Swap(0))
	m.Failed += int(r.failed.Swap(0))
	for i := range r.late {
		if n := r.late[i].Swap(0); n > 0 {
			bound := math.Inf(1)
			if i < len(recentBounds) {
				bound = recentBounds[i]
			}
			m.Late[bound] += int(n)
		}
	}
	oldest := at.Add(-recentMinutes * time.Minute)
	r.minutes = slices.DeleteFunc(r.minutes, func(m Minute) bool { return m.At.Before(oldest) })
}

// Minutes returns the minutes of the last hour in which Tick was called, the earliest first.
func (r *Recent) Minutes() []Minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.minutes)
	for i := range list {
		late := make(map[float64]int, len(list[i].Late))
		for bound, n := range list[i].Late {
			late[bound] = n
		}
		list[i].Late = late
	}
	return list
}
