package app

import (
	"time"

	"github.com/timeoutcenter/toc/metrics"
)

// gauges reads what the lanes hold and what the last scans found overdue.
func (a *App) gauges() []metrics.Gauge {
	overdue := a.scanner.Overdue()
	var list []metrics.Gauge
	for _, b := range a.catalog.Load().All() {
		stats, late := a.queue.Stats(b.ID), overdue[b.ID]
		g := metrics.Gauge{BizType: b.Name, QueueDepth: stats.Depth, Running: stats.Running, Overdue: late.Count}
		if late.Count > 0 {
			g.OldestOverdue = time.Since(late.Oldest).Seconds()
		}
		list = append(list, g)
	}
	return list
}
