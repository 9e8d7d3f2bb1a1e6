package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// state returns the current values for the metrics.
func (a *App) state() metrics.State {
	overdue, retrying := a.overdue(), a.scanner.Retrying()
	stuck := make(map[string]int)
	for _, s := range a.runner.Stuck() {
		stuck[s.BizType] = s.Runs
	}
	s := metrics.State{Partitions: a.layout.Partitions, PartitionsOwned: len(a.workingPartitions()), UnknownPending: a.unknownPending(overdue)}
	now, unread := a.clock.Now(), a.unreadSince()
	for _, b := range a.catalog.Load().All() {
		stats, late := a.queue.Stats(b.ID), overdue[b.ID]
		t := metrics.TypeState{BizType: b.Name, QueueDepth: stats.Depth, Running: stats.Running + a.runner.InFlight(b.ID), Stuck: stuck[b.Name],
			Overdue: late.Count, Paused: a.queue.IsPaused(b.ID)}
		t.Throttled, _ = a.limits.Throttled(b.ID)
		if b.Mode == task.ModeRedis {
			t.SlotsDiffer = new(a.timer.Differences(b.ID))
		}
		if counts := a.due.Load(); counts != nil {
			if n, ok := (*counts)[b.ID]; ok {
				t.Due = &n
			}
		}
		t.OldestOverdue = secondsSince(now, late.Oldest)
		if !unread.IsZero() {
			t.OldestOverdue = max(t.OldestOverdue, now.Sub(unread).Seconds())
		}
		again := retrying[b.ID]
		t.Retrying, t.OldestPromise = again.Count, max(t.OldestOverdue, secondsSince(now, late.Promised), secondsSince(now, again.Promised))
		s.Types = append(s.Types, t)
	}
	for _, r := range a.readers {
		if s.IntakeLag == nil {
			s.IntakeLag = make(map[string]int64)
		}
		s.IntakeLag[r.Name()] = r.Lag()
	}
	away := make(map[string]bool) // what the start waits for
	for _, w := range a.cluster.Waits() {
		away[w.Name()] = true
	}
	for d := range a.layout.Databases {
		s.DatabaseUp = append(s.DatabaseUp, a.store.Writable(d) && !away[cluster.DatabaseName(d)])
	}
	s.Durable = a.durable()
	if a.timer.InUse() && a.open.Load() { // before, it has not been asked
		s.RedisUp = new(a.timer.Degraded() == "")
	}
	if a.cfg.Cluster.Provider == configs.ProviderConsul {
		s.ConsulUp = new(a.cluster.Lost() == "" && !away[cluster.ConsulName])
	}
	s.LogDropped = a.log.Dropped()
	s.Skews = a.skews()
	list, _ := a.troubles()
	for _, t := range list {
		s.Degraded = append(s.Degraded, t.Trouble)
	}
	return s
}

// secondsSince is how many seconds ago a time was; 0 if it is zero or to come.
func secondsSince(now, t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t).Truncate(time.Millisecond).Seconds())
}

// overdue sums up the pending tasks of this node whose time has passed, by biz_type, as of the last scan. While a database
// cannot be read the tasks count that are in memory, too.
func (a *App) overdue() map[uint64]store.Overdue {
	sums := a.scanner.Overdue()
	if a.unreadSince().IsZero() {
		return sums
	}
	inMemory := make(map[uint64]store.Overdue)
	add := func(bizType uint64, due time.Time) {
		inMemory[bizType] = inMemory[bizType].Add(store.Overdue{Count: 1, Oldest: due, Promised: due})
	}
	a.queue.EachOverdue(add)
	a.timer.EachOverdue(add)
	for bizType, m := range inMemory { // the scan may have counted them
		sum := sums[bizType].Add(m)
		sum.Count = max(sums[bizType].Count, m.Count)
		sums[bizType] = sum
	}
	return sums
}

// unreadSince returns the time since when a database cannot be read completely. It counts databases of this
// node and those without an owner; zero: there is none. Another node reports the databases with its own
// partitions itself.
func (a *App) unreadSince() (since time.Time) {
	mine, theirs := a.owned(), make(map[int]bool)
	for _, m := range a.cluster.Members() {
		for _, p := range m.Partitions {
			theirs[a.layout.PartitionDatabase(p)] = theirs[a.layout.PartitionDatabase(p)] || m.Name != a.node
		}
	}
	for d := range a.layout.Databases {
		at, _ := a.scanner.UnreadSince(d)
		if c := a.store.Condition(d); at.IsZero() && c.Down != nil { // no scan has failed yet
			at = a.clock.Now().Add(-time.Since(c.Since))
		}
		if !at.IsZero() && (mine[d] || !theirs[d]) && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}

// owned returns the databases with partitions of this node.
func (a *App) owned() map[int]bool {
	databases := make(map[int]bool)
	for _, p := range a.cluster.Ownership().Owned() {
		databases[a.layout.PartitionDatabase(p)] = true
	}
	return databases
}

// unknownPending counts the overdue tasks of business types that are not configured.
func (a *App) unknownPending(overdue map[uint64]store.Overdue) map[uint64]int {
	unknown := make(map[uint64]int)
	types := a.catalog.Load()
	for id, late := range overdue {
		if _, known := types.ByID(id); !known {
			unknown[id] = late.Count
		}
	}
	return unknown
}

// workingPartitions lists the partitions that this node works on: none while it drains.
func (a *App) workingPartitions() []int {
	if a.draining.Load() {
		return []int{}
	}
	return a.cluster.Ownership().Owned()
}

// status answers questions of the HTTP API about this node.
type status struct{ *App }

// Cluster returns the nodes and their partitions.
func (s status) Cluster(context.Context) (api.Cluster, error) {
	c := api.Cluster{Node: s.node, Partitions: s.layout.Partitions, Nodes: []api.Node{}, Now: api.Time(s.clock.raw())}
	for _, m := range s.cluster.Members() {
		node := api.Node{Name: m.Name, Address: m.Address, Partitions: append([]int{}, m.Partitions...)}
		if m.Name == s.node {
			node.Partitions = append([]int{}, s.workingPartitions()...)
		}
		c.Nodes = append(c.Nodes, node)
	}
	c.Unworked, c.Outdated = s.unworked(), s.cluster.Lost()
	return c, nil
}

// Ready reports whether this node works: the store answers and accepts writes, and the partitions' owners are
// known. A database that is down, or a lost Consul, is reported and leaves the node ready: it still accepts
// submits. Ready queries nothing; its data are a second old.
func (s status) Ready(context.Context) api.Readiness {
	list, ready := s.troubles()
	r := api.Readiness{Ready: ready, Degraded: []string{}}
	for _, t := range list {
		reason := t.Reason
		if t.Database >= 0 {
			reason += " of " + cluster.DatabaseName(t.Database)
		}
		r.Degraded, r.Reasons = append(r.Degraded, t.text), append(r.Reasons, reason)
	}
	return r
}

// The reasons of toc_degraded.
const (
	reasonDraining    = "draining"
	reasonWaiting     = "waiting"
	reasonConfig      = "configuration"
	reasonConsul      = "consul"
	reasonRedis       = "redis"
	reasonEvicts      = "redis_evicts"
	reasonRedisFull   = "redis_full"
	reasonClock       = "clock"
	reasonClockSkew   = "clock_skew"
	reasonDescriptors = "descriptors"
	reasonStuck       = "runs_stuck"
	reasonUnknownType = "unknown_type"
	reasonDown        = "database_down"
	reasonReadOnly    = "database_read_only"
	reasonRefusing    = "database_refuses_writes"
	reasonSlow        = "database_slow"
	reasonNotDurable  = "durability"
	reasonNotOwned    = "database_not_owned"
	reasonUnread      = "database_unread"
	reasonKafka       = "kafka"
	reasonIntake      = "intake"
	reasonTLS         = "tls"
	reasonNoShare     = "no_partitions"
	// and the worker.TroubleKinds
)

// trouble is a fault that users should know: /readyz shows it, toc_degraded counts it.
type trouble struct {
	metrics.Trouble
	text string
}

// waitingFor names the servers that the start waits for; "" when the center takes requests.
func (a *App) waitingFor() string {
	if a.open.Load() {
		return ""
	}
	var names []string
	for _, w := range a.cluster.Waits() {
		names = append(names, w.Name())
	}
	if len(names) == 0 {
		return "its start to end"
	}
	return strings.Join(names, ", ")
}

// troubles lists all faults. ready reports whether at least one database works.
func (a *App) troubles() (list []trouble, ready bool) {
	add := func(reason string, database int, format string, args ...any) {
		list = append(list, trouble{metrics.Trouble{Reason: reason, Database: database}, fmt.Sprintf(format, args...)})
	}
	const none = -1
	if a.draining.Load() {
		add(reasonDraining, none, "draining: this node is about to stop")
		return list, false
	}
	if why := a.refused.Load(); why != nil {
		add(reasonConfig, none, "the configuration file is refused; the one before stays in force: %s", *why)
	}
	if err := a.tls.check(); err != nil {
		add(reasonTLS, none, "certificates cannot be used, those read before stay in force: %v", err)
	}
	if text := a.cluster.Lost(); text != "" {
		add(reasonConsul, none, "%s", text)
	}
	waits := a.cluster.Waits()
	if !a.open.Load() {
		for _, w := range waits {
			add(reasonWaiting, w.Database, "waiting for %s", w)
		}
		if len(list) == 0 {
			add(reasonWaiting, none, "starting")
		}
		return list, false
	}
	missing := make(map[int]error)
	for _, w := range waits {
		missing[w.Database] = fmt.Errorf("since %s: %w", w.Since.UTC().Format(time.RFC3339), w.Err)
	}
	for _, u := range a.unworked() {
		add(reasonNoShare, none, "%s", describeUnworked(u))
	}
	if text := a.ownsNone(); text != "" {
		add(reasonNoShare, none, "%s", text)
	}
	if text := a.timer.Degraded(); text != "" {
		add(reasonRedis, none, "%s", text)
	}
	evicts, full := a.timer.Memory()
	if evicts != "" {
		add(reasonEvicts, none, "redis may evict slots: its maxmemory-policy is %s, not noeviction", evicts)
	}
	if full != "" {
		add(reasonRedisFull, none, "redis is full: it uses %s", full)
	}
	if text := a.clock.Degraded(); text != "" {
		add(reasonClock, none, "%s", text)
	}
	if text := describeSkews(a.skews(), a.cfg.Clock.MaxSkew); text != "" {
		add(reasonClockSkew, none, "%s", text)
	}
	if a.descriptorsGone.Load() {
		add(reasonDescriptors, none, "no file descriptor is left: nothing can be connected to; raise the limit of open files")
	}
	for _, r := range a.readers {
		if err := r.Away(); err != nil {
			add(reasonKafka, none, "intake %s reads nothing: no broker of its Kafka cluster answers: %v", r.Name(), err)
		} else if err := r.Unread(); err != nil {
			add(reasonKafka, none, "intake %s cannot read records: %v", r.Name(), err)
		}
		if text := r.Waits(); text != "" {
			add(reasonIntake, none, "intake %s: %s", r.Name(), text)
		}
	}
	for _, t := range a.runner.Degraded() {
		add(string(t.Kind), t.Database, "%s", t.Text)
	}
	for _, s := range a.runner.Stuck() {
		add(reasonStuck, none, "%s", ignoredTimeout(s))
	}
	unknown := a.unknownPending(a.overdue())
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		add(reasonUnknownType, none, "%d overdue tasks have biz_type %d, which is not configured: they stay pending", unknown[id], id)
	}
	for d := range a.layout.Databases {
		if faults := a.notDurable[d].Load(); faults != nil && len(*faults) > 0 {
			add(reasonNotDurable, d, "database %d is not durable: %s", d, strings.Join(*faults, "; "))
		}
	}
	owned := a.owned()
	for d := range a.layout.Databases {
		switch now := a.store.Condition(d); {
		case now.Down != nil:
			add(reasonDown, d, "database %d is out of reach: %v", d, now.Down)
		case now.IsReadOnly():
			add(reasonReadOnly, d, "database %d is read-only", d)
		case now.Refusing != nil:
			add(reasonRefusing, d, "database %d refuses writes: %v", d, now.Refusing)
		case a.cfg.Cluster.Provider == configs.ProviderSingle && !owned[d]:
			text := fmt.Sprintf("database %d is not owned yet", d)
			if missing[d] != nil {
				text = fmt.Sprintf("database %d is not owned, %v", d, missing[d])
			}
			add(reasonNotOwned, d, "%s", text)
		default:
			ready = true
			if missing[d] != nil {
				add(reasonNotOwned, d, "this node cannot work database %d, %v", d, missing[d])
			}
			if now.Slow != 0 {
				add(reasonSlow, d, "database %d is slow: an answer takes %s", d, now.Slow.Round(time.Millisecond))
			}
			if since, err := a.scanner.UnreadSince(d); err != nil && owned[d] { // else another node reports it
				add(reasonUnread, d, "database %d: some of its due tasks cannot be read, since %s: %v", d, since.UTC().Format(time.RFC3339), err)
			}
		}
	}
	return list, ready
}

// ignoredTimeout is the text of /readyz about runs that do not end.
func ignoredTimeout(s worker.Stuck) string {
	if s.Runs > 1 {
		return fmt.Sprintf("%d runs of %s have ignored their time-out for %s", s.Runs, s.BizType, s.For.Round(time.Second))
	}
	return fmt.Sprintf("1 run of %s has ignored its time-out for %s", s.BizType, s.For.Round(time.Second))
}
