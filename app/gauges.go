package app

import (
	"math"
	"strconv"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/task"
)

// gauges sets the metrics that are read at a scrape.
func (n status) gauges(set metrics.Set) {
	s := n.state()
	set(metrics.Partitions, float64(n.layout.Partitions))
	set(metrics.PartitionsOwned, float64(len(s.partitions)))
	stuck := make(map[string]int)
	for _, t := range s.stuck {
		stuck[t.BizType] = t.Runs
	}
	for _, b := range n.catalog.Load().All() {
		set(metrics.RunsStuck, float64(stuck[b.Name]), b.Name)
		s.gaugesOfType(b, set)
	}
	for id, rows := range s.unknown() {
		set(metrics.UnknownType, float64(rows), strconv.FormatUint(id, 10))
	}
	for d := range s.databases {
		set(metrics.DatabaseUp, metrics.Bool(s.databases[d].Usable() && s.databases[d].wait == nil), strconv.Itoa(d))
	}
	if up := s.redisUp(); up != nil {
		set(metrics.RedisUp, metrics.Bool(*up))
	}
	if up := s.consulUp(); up != nil {
		set(metrics.ConsulUp, metrics.Bool(*up))
	}
	for _, r := range n.readers {
		set(metrics.IntakeLag, float64(r.Lag()), r.Name())
	}
	for _, k := range s.skews {
		set(metrics.ClockSkew, k.Ahead.Seconds(), k.Of, k.Name)
	}
	set(metrics.LogDropped, float64(n.log.Dropped()))
	for _, f := range n.faults {
		if f.gauges != nil {
			f.gauges(s, set)
		}
	}
	list, _ := s.troubles()
	count := make(map[[2]string]int)
	for _, t := range list {
		database := ""
		if t.database >= 0 {
			database = strconv.Itoa(t.database)
		}
		count[[2]string{t.code, database}]++
	}
	for labels, n := range count {
		set(metrics.Degraded, float64(n), labels[:]...)
	}
}

func (s *state) gaugesOfType(b task.BizType, set metrics.Set) {
	row, oldest := s.bizType(b), 0.0
	if !s.unread.IsZero() { // tasks that were not read may be older
		oldest = s.now.Sub(s.unread).Seconds()
	}
	oldest = max(oldest, row.OldestOverdue)
	set(metrics.QueueDepth, float64(row.QueueDepth), b.Name)
	set(metrics.Running, float64(row.Running), b.Name)
	set(metrics.PendingOverdue, float64(row.Overdue), b.Name)
	set(metrics.OldestOverdue, oldest, b.Name)
	set(metrics.Retrying, float64(row.Retrying), b.Name)
	set(metrics.OldestPromise, max(oldest, row.OldestPromise), b.Name)
	set(metrics.Paused, metrics.Bool(row.Paused != nil), b.Name)
	if b.Mode == task.ModeRedis {
		differ := s.app.timer.Differences(b.ID)
		set(metrics.SlotsDiffer, float64(differ.Missing), b.Name, "missing")
		set(metrics.SlotsDiffer, float64(differ.Ghost), b.Name, "ghost")
	}
	if counts := s.app.due.sum.Load(); counts != nil {
		if n, ok := (*counts)[b.ID]; ok {
			for i, within := range metrics.DueWithin {
				set(metrics.Due, math.Round(n[i]), b.Name, within.Label)
			}
		}
	}
	refused, _ := s.app.limits.Throttled(b.ID)
	for by, n := range refused {
		set(metrics.Throttled, float64(n), b.Name, string(by))
	}
}
