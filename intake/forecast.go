package intake

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Bounds of a Forecast.
const (
	MaxSteps    = 1500
	MaxSpan     = 31 * 24 * time.Hour
	maxCrowded  = 10 // seconds that Forecast names as crowded
	leastCrowd  = 10 // tasks in a crowded second
	leastSeen   = 5  // of a sample
	defaultStep = time.Minute
	defaultSpan = 2 * time.Hour
)

// Forecast asks how many tasks are due when.
type Forecast struct {
	BizType string        // name; empty: all
	Step    time.Duration // whole seconds; 0: a minute
	Span    time.Duration // from now on; 0: two hours
	Rows    int           // of more tasks than about so many, some tables stand for all; 0: store.UpcomingRows
}

// DueAt is the number of tasks of a business type that are due within a time from At on.
type DueAt struct {
	At      time.Time
	BizType uint64
	Due     int
}

// Forecasted is the answer.
type Forecasted struct {
	AsOf      time.Time
	Step      time.Duration
	Buckets   []DueAt // those with tasks, in the order of time and business type
	Crowded   []DueAt // the seconds with the most tasks, the most crowded first
	Estimated bool    // there are so many tasks that only a part was counted
}

// Forecast counts the pending tasks of all tables that are due from now on. Few tasks are counted exactly; of many, some
// tables stand for all.
func (s *Service) Forecast(ctx context.Context, q Forecast) (f Forecasted, err error) {
	bizType, err := s.typeFilter(q.BizType)
	if err != nil {
		return f, err
	}
	step, span := cmp.Or(q.Step, defaultStep), cmp.Or(q.Span, defaultSpan)
	switch {
	case step < time.Second || step%time.Second != 0:
		return f, &task.FieldError{Field: "step",
			Message: fmt.Sprintf("%s is not in whole seconds, or less than one; give 1s or more, like 1m", step)}
	case span < step || span > MaxSpan:
		return f, &task.FieldError{Field: "span",
			Message: fmt.Sprintf("%s is out of range; give step (%s) to %dh", span, step, int(MaxSpan.Hours()))}
	case (span+step-1)/step > MaxSteps:
		return f, &task.FieldError{Field: "step",
			Message: fmt.Sprintf("%s gives %d steps in a span of %s; give a longer step, for at most %d", step, (span+step-1)/step, span, MaxSteps)}
	}
	f.AsOf, f.Step = s.cfg.Now().UTC(), step
	shards := make([]int, s.cfg.Layout.Shards())
	for i := range shards {
		shards[i] = i
	}
	list, scale, exact, err := s.cfg.Store.Upcoming(ctx, shards, f.AsOf, f.AsOf.Add(span), cmp.Or(q.Rows, store.UpcomingRows))
	if err != nil {
		return f, err
	}
	if bizType != nil {
		list = slices.DeleteFunc(list, func(u store.Upcoming) bool { return u.BizType != *bizType })
	}
	f.Buckets = countBy(list, step, scale)
	least := leastCrowd
	if scale > 1 {
		least = max(least, int(leastSeen*scale)) // a few of a sample say nothing
	}
	f.Crowded = slices.DeleteFunc(countBy(list, time.Second, scale), func(d DueAt) bool { return d.Due < least })
	slices.SortStableFunc(f.Crowded, func(a, b DueAt) int { return cmp.Compare(b.Due, a.Due) })
	f.Crowded, f.Estimated = f.Crowded[:min(len(f.Crowded), maxCrowded)], !exact
	return f, nil
}

// countBy counts tasks by steps of time, which begin at multiples of step since 1970, and by business type.
func countBy(list []store.Upcoming, step time.Duration, scale float64) []DueAt {
	counts := make(map[DueAt]int)
	for _, u := range list {
		n := step.Milliseconds()
		counts[DueAt{At: time.UnixMilli(u.At.UnixMilli() / n * n).UTC(), BizType: u.BizType}]++
	}
	due := make([]DueAt, 0, len(counts))
	for d, n := range counts {
		d.Due = int(math.Round(float64(n) * scale))
		due = append(due, d)
	}
	slices.SortFunc(due, func(a, b DueAt) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.BizType, b.BizType)) })
	return due
}

// Wire converts a forecast.
func (f Forecasted) Wire(types *task.Types) api.Forecast {
	out := api.Forecast{
		AsOf: api.Time(f.AsOf), StepSeconds: int(f.Step / time.Second), Estimated: f.Estimated,
		Buckets: make([]api.DueBucket, len(f.Buckets)), Crowded: make([]api.DueSecond, len(f.Crowded)),
	}
	for i, d := range f.Buckets {
		out.Buckets[i] = api.DueBucket{At: api.Time(d.At), BizType: types.NameOf(d.BizType), Due: d.Due}
	}
	for i, d := range f.Crowded {
		out.Crowded[i] = api.DueSecond{Second: api.Time(d.At), BizType: types.NameOf(d.BizType), Due: d.Due}
	}
	return out
}
