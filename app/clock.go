package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/internal/logqueue"
)

const (
	// maxSkew is the difference from the other clocks above which this machine's clock is reported and
	// corrected.
	maxSkew = time.Second
	// unconfirmed is how long a jump ahead is not accepted if there is no other clock to compare with.
	unconfirmed = 10 * time.Second
	// setBackShown is how long a clock that was set back is reported if there is no other clock to compare with.
	setBackShown = 10 * time.Minute
)

// clock is the wall clock by which tasks fire. They must not fire early because this machine's clock is ahead.
// So a jump ahead is accepted once a database or Redis confirms it, and a clock that is ahead of theirs by more
// than maxSkew is set back by that much. A clock that is behind is reported only: tasks are late then, but
// never early.
type clock struct {
	raw     func() time.Time
	ahead   func() time.Duration              // how far it is set ahead of time.Now, in tests
	drift   func(now time.Time) time.Duration // how far the wall clock has moved against the monotonic one since the start
	logger  *slog.Logger
	steps   atomic.Int64 // how often Now has gone back or ahead
	noticed atomic.Int64 // of these, by hasStepped

	mu        logqueue.Mutex
	accepted  time.Duration // the drift that is accepted
	lead      time.Duration // how far it is ahead of the other clocks, subtracted; 0 within maxSkew
	behind    time.Duration // how far it is behind them; 0 within maxSkew
	jumped    time.Time     // when a jump ahead began to wait for confirmation; zero: there is none
	setBack   time.Duration // how far it was set back, and not ahead again, since another clock was last compared with
	setBackAt time.Time     // monotonic: the last time
}

// newClock makes the clock; ahead, which may be nil, is how far the wall clock is ahead of time.Now.
func newClock(logger *slog.Logger, ahead func() time.Duration) *clock {
	if ahead == nil {
		ahead = func() time.Duration { return 0 }
	}
	start, startedAhead := time.Now(), ahead()
	return &clock{
		ahead: ahead,
		raw:   func() time.Time { return time.Now().Add(ahead()) }, logger: logger,
		drift: func(now time.Time) time.Duration {
			return now.Round(0).Sub(start.Round(0)) - now.Sub(start) + ahead() - startedAhead // Round removes the monotonic reading
		},
	}
}

// Now is the time by which tasks fire.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.raw()
	leap := c.leap(now) // may change lead
	return now.Add(-c.lead - leap)
}

// wall is a past time.Now by the wall clock as it is set now: it may have been set since.
func (c *clock) wall(past time.Time) time.Time {
	now := time.Now()
	return now.Round(0).Add(c.ahead() - now.Sub(past))
}

// leap is how far the wall clock has jumped ahead without confirmation. The caller holds mu.
func (c *clock) leap(now time.Time) time.Duration {
	d := c.drift(now) - c.accepted
	switch {
	case d <= -maxSkew: // set back: tasks cannot be early by this, so it is accepted at once
		c.accepted, c.jumped = c.drift(now), time.Time{}
		c.steps.Add(1)
		c.setBack, c.setBackAt = c.setBack-d, time.Now()
		c.mu.Log(c.logger, slog.LevelWarn, "this machine's clock was set back; tasks start late by that unless it was ahead", "by",
			-d.Round(time.Millisecond))
		c.lead = max(0, c.lead+d) // it was ahead by so much less; else it would be behind until the next comparison
		return 0
	case d < maxSkew:
		c.jumped = time.Time{}
		return 0
	case c.jumped.IsZero():
		c.jumped = now
		c.steps.Add(1)
		c.mu.Log(c.logger, slog.LevelWarn, "this machine's clock has jumped ahead; tasks do not start by it before another clock confirms it",
			"by", d.Round(time.Millisecond))
	case now.Sub(c.jumped) >= unconfirmed:
		c.accepted, c.jumped = c.drift(now), time.Time{}
		c.steps.Add(1)
		c.setBack = max(0, c.setBack-d)
		return 0
	}
	return d
}

// clocks compares this machine's clock with the others.
type clocks struct{ *App }

// checkClock compares this machine's clock with those of the databases and Redis.
func (c clocks) checkClock(context.Context) {
	if c.clock.hasStepped() {
		c.timer.ClockSet() // what it has measured was before
	}
	c.compareClocks()
}

// hasStepped reports whether the clock has gone back or ahead since the last call.
func (c *clock) hasStepped() bool {
	c.Now() // notices a step
	steps := c.steps.Load()
	return c.noticed.Swap(steps) != steps
}

// compareClocks compares this machine's clock with the others' recent readings.
func (c clocks) compareClocks() {
	var ahead, most []time.Duration
	for _, s := range c.databaseSkews() {
		ahead, most = append(ahead, nearest(s.least, s.most)), append(most, s.most)
	}
	var ofRedis []time.Duration
	for _, list := range c.redisSkews() {
		ofRedis = append(ofRedis, list...)
	}
	if len(ofRedis) > 0 {
		r := median(ofRedis)
		ahead, most = append(ahead, r), append(most, r) // from when the answer was there
	}
	c.clock.observe(ahead, most)
}

// skewSpan is how far this machine's clock is ahead of that of a database: the other one was read at some time between the question and
// the answer.
type skewSpan struct {
	database    int
	least, most time.Duration
}

func (c clocks) databaseSkews() (list []skewSpan) {
	for d := range c.layout.Databases {
		if r, ok := c.store.ServerClock(d); ok && time.Since(r.Received) < staleReading {
			list = append(list, skewSpan{d, c.clock.wall(r.Sent).Sub(r.Server), c.clock.wall(r.Received).Sub(r.Server)})
		}
	}
	return list
}

// redisSkews lists how far this machine's clock is ahead of the clocks of the Redis servers that were read recently, by address.
// A clock that is set between a reading and its use has no effect: both are compared as it is set now.
func (c clocks) redisSkews() map[string][]time.Duration {
	skews := make(map[string][]time.Duration)
	if isEmbedded(c.cfg.Redis) {
		return skews
	}
	for _, r := range c.timer.Readings() {
		if time.Since(r.Read) < staleReading {
			skews[r.Addr] = append(skews[r.Addr], c.clock.wall(r.Read).Sub(r.Server))
		}
	}
	return skews
}

// median sorts a list.
func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// The kinds of clocks, label values of toc_clock_skew_seconds.
const (
	ofDatabase = "database"
	ofRedis    = "redis"
	ofNode     = "node"
)

// skews lists how far this machine's clock is ahead of each other clock that was read recently.
func (c clocks) skews() (list []metrics.Skew) {
	for _, s := range c.databaseSkews() {
		list = append(list, metrics.Skew{Of: ofDatabase, Name: strconv.Itoa(s.database), Ahead: nearest(s.least, s.most)})
	}
	for addr, ahead := range c.redisSkews() {
		list = append(list, metrics.Skew{Of: ofRedis, Name: cmp.Or(addr, c.cfg.Redis.Addrs[0]), Ahead: median(ahead)})
	}
	for _, m := range c.forward.Others() {
		v := c.forward.View(m.Name)
		if theirs := v.Answer.Now.Time(); !v.Answer.Now.IsZero() && time.Since(v.Received) < staleReading {
			least := c.clock.wall(v.Sent).Sub(theirs) - time.Millisecond // an answer has whole milliseconds
			list = append(list, metrics.Skew{Of: ofNode, Name: m.Name, Ahead: nearest(least, c.clock.wall(v.Received).Sub(theirs))})
		}
	}
	return list
}

// describeSkews names the clocks that differ by more than most, the worst first; "" if none does. most 0 names
// none.
func describeSkews(list []metrics.Skew, most time.Duration) string {
	const named = 3
	list = slices.DeleteFunc(slices.Clone(list), func(s metrics.Skew) bool { return most == 0 || s.Ahead.Abs() <= most })
	if len(list) == 0 {
		return ""
	}
	slices.SortFunc(list, func(a, b metrics.Skew) int {
		return cmp.Or(cmp.Compare(b.Ahead.Abs(), a.Ahead.Abs()), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Name, b.Name))
	})
	var parts []string
	for _, s := range list[:min(named, len(list))] {
		way := "ahead of"
		if s.Ahead < 0 {
			way = "behind"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s %s", s.Ahead.Abs().Round(time.Millisecond), way, s.Of, s.Name))
	}
	if more := len(list) - named; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("this machine's clock differs by more than clock.max_skew (%s): it is %s", most, strings.Join(parts, ", "))
}

// staleReading is the age at which a reading of another clock does not count any more.
const staleReading = 5 * time.Second

// nearest is the value from least to most that is nearest to 0.
func nearest(least, most time.Duration) time.Duration { return max(least, min(0, most)) }

// usual is the median of the differences from other clocks, so a single wrong clock has no effect.
func usual(ahead []time.Duration) time.Duration {
	ahead = slices.Sorted(slices.Values(ahead))
	median := ahead[len(ahead)/2]
	if len(ahead)%2 == 0 && median > 0 { // between two that differ, the lesser skew
		median = max(0, min(median, ahead[len(ahead)/2-1]))
	}
	return median
}

// observe takes the differences from other clocks, positive if this one is ahead: those nearest to 0 that are possible, and the greatest
// that are. The first decide whether this clock is wrong. The others correct it: less would start tasks early.
func (c *clock) observe(ahead, most []time.Duration) {
	if len(ahead) == 0 {
		return
	}
	median := usual(ahead)
	c.mu.Lock()
	defer c.mu.Unlock()
	was, lead := c.lead != 0 || c.behind != 0, c.lead
	if !c.jumped.IsZero() {
		c.steps.Add(1)
	}
	c.accepted, c.jumped = c.drift(c.raw()), time.Time{}
	c.lead, c.behind, c.setBack = 0, 0, 0
	switch {
	case median > maxSkew:
		c.lead = usual(most)
	case median < -maxSkew:
		c.behind = -median
	}
	if (c.lead - lead).Abs() >= maxSkew {
		c.steps.Add(1)
	}
	switch is := c.lead != 0 || c.behind != 0; {
	case is && !was:
		c.mu.Log(c.logger, slog.LevelError, c.describe(), "others", len(ahead))
	case was && !is:
		c.mu.Log(c.logger, slog.LevelInfo, "this machine's clock agrees with the others again")
	}
}

// Degraded describes what users should know, "" if all is well.
func (c *clock) Degraded() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.describe()
}

func (c *clock) describe() string {
	switch {
	case c.lead != 0:
		return fmt.Sprintf("this machine's clock is %s ahead of the databases' and Redis's: tasks start by theirs",
			c.lead.Round(time.Millisecond))
	case c.behind != 0:
		return fmt.Sprintf("this machine's clock is %s behind the databases' and Redis's: tasks start late by that",
			c.behind.Round(time.Millisecond))
	case c.setBack >= maxSkew && time.Since(c.setBackAt) < setBackShown:
		return fmt.Sprintf("this machine's clock was set back by %s, and there is no other clock to compare with: tasks start late by that unless it was ahead", c.setBack.Round(time.Millisecond))
	default:
		return ""
	}
}
