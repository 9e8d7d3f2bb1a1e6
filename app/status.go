package app

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/intake/why"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/task"
)

// status answers questions of the HTTP API about this node.
type status struct{ *App }

// Cluster returns the nodes and their partitions.
func (s status) Cluster(context.Context) (api.Cluster, error) {
	now := s.state()
	c := api.Cluster{Node: s.node, Partitions: s.layout.Partitions, Nodes: []api.Node{}, Now: api.Time(s.clock.raw())}
	for _, m := range s.cluster.Members() {
		node := api.Node{Name: m.Name, Address: m.Address, Partitions: append([]int{}, m.Partitions...)}
		if m.Name == s.node {
			node.Partitions = append([]int{}, now.partitions...)
		}
		c.Nodes = append(c.Nodes, node)
	}
	c.Unworked, c.Outdated = now.unworked, now.lost
	return c, nil
}

// Ready reports whether this node works: the store answers and accepts writes, and the partitions' owners are
// known. A database that is down, or a lost Consul, is reported and leaves the node ready: it still accepts
// submits. Ready queries nothing; its data are a second old.
func (s status) Ready(context.Context) api.Readiness {
	return s.state().readiness()
}

func (s *state) readiness() api.Readiness {
	list, ready := s.troubles()
	r := api.Readiness{Ready: ready, Degraded: []string{}}
	for _, t := range list {
		reason := t.code
		if t.database >= 0 {
			reason += " of " + cluster.DatabaseName(t.database)
		}
		r.Degraded, r.Reasons = append(r.Degraded, t.text), append(r.Reasons, reason)
	}
	return r
}

// Waiting implements rest.Status.
func (s status) Waiting() string {
	if s.open.Load() {
		return ""
	}
	var names []string
	for _, w := range s.cluster.Waits() {
		names = append(names, w.Name())
	}
	if len(names) == 0 {
		return "its start to end"
	}
	return strings.Join(names, ", ")
}

// BizTypes returns the business types and their load on this node.
func (a *App) BizTypes() []client.BizType { return status{a}.state().bizTypes() }

// BizTypes returns the business types and their load on all nodes. A node that asks gets this node's.
func (s status) BizTypes(ctx context.Context) ([]api.BizType, error) {
	list := s.App.BizTypes()
	s.addOthers(ctx, list)
	return list, nil
}

// LoadOf is one of them.
func (s status) LoadOf(ctx context.Context, b task.BizType) api.BizType {
	list := []api.BizType{s.state().bizType(b)}
	s.addOthers(ctx, list)
	return list[0]
}

// addOthers adds the load of the other nodes.
func (s status) addOthers(ctx context.Context, list []api.BizType) {
	if s.forward == nil || intake.IsForwarded(ctx) {
		return
	}
	index := make(map[api.ID]*api.BizType, len(list))
	for i := range list {
		index[list[i].ID] = &list[i]
	}
	s.forward.Detail(ctx)
	for _, m := range s.forward.Others() {
		v := s.forward.View(m.Name) // a node that does not answer counts as it last did, while it is a member
		age := time.Since(v.Detailed).Truncate(time.Millisecond).Seconds()
		for _, b := range v.Answer.BizTypes {
			if sum := index[b.ID]; sum != nil {
				addLoad(sum, b, age)
			}
		}
	}
}

func addLoad(sum *api.BizType, b api.BizType, age float64) {
	sum.QueueDepth += b.QueueDepth
	sum.Running += b.Running
	sum.Overdue += b.Overdue
	if b.Overdue > 0 {
		sum.OldestOverdue = max(sum.OldestOverdue, b.OldestOverdue+age)
	}
	sum.Retryable += b.Retryable
	if sum.Retrying += b.Retrying; b.OldestRetry > 0 {
		sum.OldestRetry = max(sum.OldestRetry, b.OldestRetry+age)
	}
	if b.OldestPromise > 0 {
		sum.OldestPromise = max(sum.OldestPromise, b.OldestPromise+age)
	}
	sum.LastError = cmp.Or(sum.LastError, b.LastError)
	sum.Throttled = cmp.Or(sum.Throttled, b.Throttled)
}

// AddFacts implements intake.Status. It adds this node's facts about a task to its row.
func (s status) AddFacts(f *why.Facts) {
	id, p := f.Task.JobID, f.Partition.Number
	f.Draining, f.Clock = s.draining.Load(), s.clock.Degraded()
	if owner, ok := s.cluster.Owner(p); ok {
		f.Partition.Owner = owner.Name
	}
	if !f.Partition.Owned {
		f.Partition.Lost = s.cluster.Lost()
	}
	d := s.layout.PartitionDatabase(p)
	now, holds := s.store.Condition(d), s.runner.Holds(id, d)
	f.Database = why.Database{
		Number: d, Down: now.Down, Refusing: now.Refusing, ReadOnly: now.IsReadOnly(), Since: now.Since, Slow: now.Slow,
		Unwritten: holds.Unwritten, Unmarked: holds.Unmarked, TableHolds: holds.TableFull,
	}
	f.Run.WaitsSince, f.Run.TableErr = holds.WaitsSince, holds.TableErr
	f.Queue.Seen = s.queue.Look(id)
	if f.Unread != nil {
		return
	}
	f.Place = s.dispatcher.Where(&f.Task)
	b, known := s.catalog.Load().ByID(f.Task.BizType)
	if !known {
		return
	}
	f.Type = &b
	f.Paused = s.paused(b.ID)
	if !f.Partition.Owned {
		return // what follows is known to the owner
	}
	f.Scan.Next = s.scanner.NextTick()
	f.Scan.Until, f.Scan.Serves = s.scanner.Until(b.ID, p)
	f.Scan.UnreadSince, f.Scan.UnreadErr = s.scanner.UnreadSince(d)
	if slot, ok := s.timer.Slot(b.ID, p); ok {
		f.Slot = why.Slot(slot)
	}
	if f.Place == dispatch.Slot && f.Task.Status == task.Pending && f.Queue.Seen.State == queue.Absent {
		ctx, cancel := context.WithTimeout(context.Background(), findWithin)
		defer cancel()
		var there bool
		if there, f.Found.Lacks, f.Found.At, f.Found.Err = s.timer.Find(ctx, &f.Task); !there && !f.Found.Lacks && f.Found.Err == nil {
			f.Place = dispatch.Store // until a read finds its row
		}
	}
	load, stats := s.runner.Load(b.ID, id), s.queue.Stats(b.ID)
	f.Run.Timeout = load.Timeout
	f.Queue.Size, f.Queue.Capacity = stats.Depth+stats.Running, s.queue.Capacity(b.ID)
	_, f.Queue.Limit = s.limits.Throttled(b.ID)
	f.Queue.Workers, f.Queue.Busy, f.Queue.Oldest = b.Workers, load.Busy, load.Oldest
	if b.Pull {
		f.Queue.Busy = s.runner.InFlight(b.ID)
	}
}

// findWithin is how long Redis is waited for: another node that asks waits for little longer.
const findWithin = time.Second
