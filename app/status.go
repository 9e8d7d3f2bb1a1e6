package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/httpapi"
	"github.com/timeoutcenter/toc/metrics"
	"github.com/timeoutcenter/toc/taskjson"
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

// working lists the partitions that this node works on: none while it drains.
func (a *App) working() []int {
	if a.draining.Load() {
		return []int{}
	}
	return a.cluster.Ownership().Owned()
}

// status answers what the HTTP API asks about this node.
type status struct{ *App }

// Cluster tells who owns what.
func (s status) Cluster(context.Context) (httpapi.Cluster, error) {
	c := httpapi.Cluster{Node: s.node, Partitions: s.layout.Partitions}
	for _, m := range s.cluster.Members() {
		node := httpapi.Node{Name: m.Name, Address: m.Address, Partitions: m.Partitions}
		if m.Name == s.node {
			node.Partitions = s.working()
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c, nil
}

// BizTypes tells what each business type has to do on this node.
func (s status) BizTypes(context.Context) ([]httpapi.BizType, error) {
	overdue := s.scanner.Overdue()
	list := []httpapi.BizType{}
	for _, b := range s.catalog.Load().All() {
		stats := s.queue.Stats(b.ID)
		list = append(list, httpapi.BizType{
			ID: taskjson.ID(b.ID), Name: b.Name, Mode: string(b.Mode), Processor: b.Processor,
			QueueDepth: stats.Depth, Running: stats.Running, Overdue: overdue[b.ID].Count,
		})
	}
	return list, nil
}

// Ready tells whether this node works: the store answers and who owns what is
// known. A database that is down leaves it ready and is told, and so does a lost
// Consul: submits are accepted all the same.
func (s status) Ready(ctx context.Context) httpapi.Readiness {
	r := httpapi.Readiness{Degraded: []string{}}
	if s.draining.Load() {
		r.Degraded = append(r.Degraded, "draining: this node is about to stop")
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	down := make([]error, s.layout.Databases)
	var wg sync.WaitGroup
	for d := range down {
		wg.Go(func() { down[d] = s.store.Ping(ctx, d) })
	}
	wg.Wait()
	for _, sick := range []string{s.cluster.Lost(), s.timer.Degraded()} {
		if sick != "" {
			r.Degraded = append(r.Degraded, sick)
		}
	}
	for d, err := range down {
		first, _ := s.layout.DatabasePartitions(d)
		switch {
		case err != nil:
			r.Degraded = append(r.Degraded, fmt.Sprintf("database %d does not answer", d))
		case s.cfg.Cluster.Provider == configs.ProviderSingle && !s.cluster.Ownership().Owns(first):
			r.Degraded = append(r.Degraded, fmt.Sprintf("database %d is not owned yet", d))
		default:
			r.Ready = true // at least one works
		}
	}
	return r
}
