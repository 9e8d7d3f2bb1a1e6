package intake

import (
	"cmp"
	"context"
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

// dueAt is the number of tasks of a business type that are due within a time from at on.
type dueAt struct {
	at      time.Time
	bizType uint64
	due     int
}

// Forecast counts the pending tasks of all tables that are due from now on. Few tasks are counted exactly; of many, some
// tables stand for all.
func (s *lookups) Forecast(ctx context.Context, q api.AskForecast) (f api.Forecast, err error) {
	bizType, err := s.typeFilter(q.BizType)
	if err != nil {
		return f, err
	}
	step, span := cmp.Or(q.Step, defaultStep), cmp.Or(q.Span, defaultSpan)
	switch {
	case step < time.Second || step%time.Second != 0:
		return f, task.Wrong("step", "%s is not in whole seconds, or less than one; give 1s or more, like 1m", step)
	case span < step || span > MaxSpan:
		return f, task.Wrong("span", "%s is out of range; give step (%s) to %dh", span, step, int(MaxSpan.Hours()))
	case (span+step-1)/step > MaxSteps:
		return f, task.Wrong("step", "%s gives %d steps in a span of %s; give a longer step, for at most %d", step, (span+step-1)/step, span, MaxSteps)
	}
	now := s.cfg.Now().UTC()
	shards := make([]int, s.cfg.Layout.Shards())
	for i := range shards {
		shards[i] = i
	}
	var list []store.Upcoming
	var scale float64
	var exact bool
	err = s.lane.read(ctx, func() (err error) {
		list, scale, exact, err = s.cfg.Store.Upcoming(ctx, shards, now, now.Add(span), cmp.Or(q.Rows, store.UpcomingRows))
		return err
	})
	if err != nil {
		return f, err
	}
	if bizType != nil {
		list = slices.DeleteFunc(list, func(u store.Upcoming) bool { return u.BizType != *bizType })
	}
	f = api.Forecast{AsOf: api.Time(now), StepSeconds: int(step / time.Second), Estimated: !exact, Buckets: []api.DueBucket{},
		Crowded: []api.DueSecond{}}
	types := s.Types()
	for _, d := range countBy(list, step, scale) {
		f.Buckets = append(f.Buckets, api.DueBucket{At: api.Time(d.at), BizType: types.NameOf(d.bizType), Due: d.due})
	}
	least := leastCrowd
	if scale > 1 {
		least = max(least, int(leastSeen*scale)) // a few of a sample say nothing
	}
	crowded := slices.DeleteFunc(countBy(list, time.Second, scale), func(d dueAt) bool { return d.due < least })
	slices.SortStableFunc(crowded, func(a, b dueAt) int { return cmp.Compare(b.due, a.due) })
	for _, d := range crowded[:min(len(crowded), maxCrowded)] {
		f.Crowded = append(f.Crowded, api.DueSecond{Second: api.Time(d.at), BizType: types.NameOf(d.bizType), Due: d.due})
	}
	return f, nil
}

// countBy counts tasks by steps of time, which begin at multiples of step since 1970, and by business type.
func countBy(list []store.Upcoming, step time.Duration, scale float64) []dueAt {
	counts := make(map[dueAt]int)
	for _, u := range list {
		n := step.Milliseconds()
		counts[dueAt{at: time.UnixMilli(u.At.UnixMilli() / n * n).UTC(), bizType: u.BizType}]++
	}
	due := make([]dueAt, 0, len(counts))
	for d, n := range counts {
		d.due = int(math.Round(float64(n) * scale))
		due = append(due, d)
	}
	slices.SortFunc(due, func(a, b dueAt) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.bizType, b.bizType)) })
	return due
}
