package app

import (
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// state is this node at a moment. The gauges, /readyz, /v1/biz-types, /v1/cluster and the pulse are views of it.
type state struct {
	app        status
	now        time.Time
	lost       string         // why the owners of partitions are unknown; empty: they are known
	waits      []cluster.Wait // the servers that this node cannot use yet
	partitions []int          // that this node works on: none while it drains
	unworked   []api.Unworked // partitions of all nodes
	databases  []database
	unread     time.Time // since when a database cannot be read completely; zero: all can
	skews      []metrics.Skew
	stuck      []worker.Stuck
	retrying   map[uint64]store.Retrying // by biz_type, as of the last scan

	// Two parts are computed when a view asks for them: the one looks at each slot, and while a database cannot be read, the
	// other one looks at each task in memory.
	redis   func() string                   // why Redis does not serve all slots; empty: it does
	overdue func() map[uint64]store.Overdue // the pending tasks of this node whose time has passed, by biz_type
}

// database is a database as this node finds it.
type database struct {
	store.Condition
	number int
	owned  bool          // this node has partitions of it
	held   bool          // it may be worked: a single node must own it
	wait   *cluster.Wait // why this node cannot use it yet; nil: it can
}

// state returns the state of this node. It queries no server: what it reads is a second old.
func (n status) state() *state {
	s := &state{app: n, now: n.clock.Now(), lost: n.cluster.Lost(), waits: n.cluster.Waits(), partitions: []int{}, unworked: n.unworked(),
		skews: clocks(n).skews(), stuck: n.runner.Stuck(), retrying: n.scanner.Retrying(), redis: sync.OnceValue(n.timer.Degraded)}
	if !n.draining.Load() {
		s.partitions = n.cluster.Ownership().Owned()
	}
	s.databases = n.databases()
	for i := range s.waits {
		if d := s.waits[i].Database; d >= 0 {
			s.databases[d].wait = &s.waits[i]
		}
	}
	s.unread = s.unreadSince()
	s.overdue = sync.OnceValue(s.sumOverdue)
	return s
}

func (s status) databases() []database {
	list := make([]database, s.layout.Databases)
	for _, p := range s.cluster.Ownership().Owned() {
		list[s.layout.PartitionDatabase(p)].owned = true
	}
	for d := range list {
		list[d].number, list[d].Condition = d, s.store.Condition(d)
		list[d].held = list[d].owned || s.cfg.Cluster.Provider != configs.ProviderSingle
	}
	return list
}

// unreadSince returns the time since when a database cannot be read completely. It counts databases of this
// node and those without an owner. Another node reports the databases with its own partitions itself.
func (s *state) unreadSince() (since time.Time) {
	theirs := make(map[int]bool)
	for _, m := range s.app.cluster.Members() {
		for _, p := range m.Partitions {
			d := s.app.layout.PartitionDatabase(p)
			theirs[d] = theirs[d] || m.Name != s.app.node
		}
	}
	for i := range s.databases {
		d := &s.databases[i]
		at, _ := s.app.scanner.UnreadSince(i)
		if at.IsZero() && d.Down != nil { // no scan has failed yet
			at = s.now.Add(-time.Since(d.Since))
		}
		if !at.IsZero() && (d.owned || !theirs[i]) && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}

// sumOverdue sums up the pending tasks of this node whose time has passed. While a database cannot be read the tasks count
// that are in memory, too.
func (s *state) sumOverdue() map[uint64]store.Overdue {
	sums := s.app.scanner.Overdue()
	if s.unread.IsZero() {
		return sums
	}
	inMemory := make(map[uint64]store.Overdue)
	add := func(bizType uint64, due time.Time) {
		inMemory[bizType] = inMemory[bizType].Add(store.Overdue{Count: 1, Oldest: due, Promised: due})
	}
	s.app.queue.EachOverdue(add)
	s.app.timer.EachOverdue(add)
	for bizType, m := range inMemory { // the scan may have counted them
		sum := sums[bizType].Add(m)
		sum.Count = max(sums[bizType].Count, m.Count)
		sums[bizType] = sum
	}
	return sums
}

// unknown counts the overdue tasks of business types that are not configured.
func (s *state) unknown() map[uint64]int {
	unknown := make(map[uint64]int)
	types := s.app.catalog.Load()
	for id, late := range s.overdue() {
		if _, known := types.ByID(id); !known {
			unknown[id] = late.Count
		}
	}
	return unknown
}

// bizTypes returns the business types and their load on this node.
func (s *state) bizTypes() []api.BizType {
	list := []api.BizType{}
	for _, b := range s.app.catalog.Load().All() {
		list = append(list, s.bizType(b))
	}
	return list
}

func (s *state) bizType(b task.BizType) api.BizType {
	stats, late, again := s.app.queue.Stats(b.ID), s.overdue()[b.ID], s.retrying[b.ID]
	shown := api.BizType{
		ID: api.ID(b.ID), Name: b.Name, Mode: string(b.Mode), Processor: b.Processor,
		QueueDepth: stats.Depth, Running: stats.Running + s.app.runner.InFlight(b.ID), Overdue: late.Count, Paused: s.app.paused(b.ID),
		OldestOverdue: s.secondsSince(late.Oldest), Retrying: again.Count, Retryable: again.Later,
		OldestRetry:   s.secondsSince(again.Promised),
		OldestPromise: max(s.secondsSince(late.Promised), s.secondsSince(again.Promised)),
		LastError:     s.app.runner.LastError(b.ID), RateLimit: b.RateLimit, MaxRunning: b.MaxRunning, CatchUp: b.CatchUp,
	}
	_, by := s.app.limits.Throttled(b.ID)
	shown.Throttled = string(by)
	return shown
}

// secondsSince is how many seconds ago a time was; 0 if it is zero or to come.
func (s *state) secondsSince(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, s.now.Sub(t).Truncate(time.Millisecond).Seconds())
}

// redisUp reports whether Redis answers for all slots of this node; nil: no business type needs it, or it was not asked yet.
func (s *state) redisUp() *bool {
	if !s.app.timer.InUse() || !s.app.open.Load() {
		return nil
	}
	return new(s.redis() == "")
}

// consulUp reports whether heartbeats reach Consul; nil: there is none.
func (s *state) consulUp() *bool {
	if s.app.cfg.Cluster.Provider != configs.ProviderConsul {
		return nil
	}
	up := s.lost == ""
	for _, w := range s.waits {
		up = up && w.Name() != cluster.ConsulName
	}
	return &up
}
