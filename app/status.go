package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/worker"
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
		reason := t.reason
		if t.database >= 0 {
			reason += " of " + cluster.DatabaseName(t.database)
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
	reason   string
	database int // −1: it concerns none alone
	text     string
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
func (s *state) troubles() (list []trouble, ready bool) {
	add := func(reason string, database int, format string, args ...any) {
		list = append(list, trouble{reason, database, fmt.Sprintf(format, args...)})
	}
	const none = -1
	a := s.app
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
	if text := s.lost; text != "" {
		add(reasonConsul, none, "%s", text)
	}
	if !a.open.Load() {
		for _, w := range s.waits {
			add(reasonWaiting, w.Database, "waiting for %s", w)
		}
		if len(list) == 0 {
			add(reasonWaiting, none, "starting")
		}
		return list, false
	}
	missing := make(map[int]error)
	for _, w := range s.waits {
		missing[w.Database] = fmt.Errorf("since %s: %w", w.Since.UTC().Format(time.RFC3339), w.Err)
	}
	for _, u := range s.unworked {
		add(reasonNoShare, none, "%s", describeUnworked(u))
	}
	if text := s.ownsNone(); text != "" {
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
	if text := describeSkews(s.skews, a.cfg.Clock.MaxSkew); text != "" {
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
	for _, t := range s.stuck {
		add(reasonStuck, none, "%s", ignoredTimeout(t))
	}
	unknown := s.unknown()
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		add(reasonUnknownType, none, "%d overdue tasks have biz_type %d, which is not configured: they stay pending", unknown[id], id)
	}
	for d := range a.layout.Databases {
		if faults := a.notDurable[d].Load(); faults != nil && len(*faults) > 0 {
			add(reasonNotDurable, d, "database %d is not durable: %s", d, strings.Join(*faults, "; "))
		}
	}
	for d := range s.databases {
		switch now := &s.databases[d]; {
		case now.Down != nil:
			add(reasonDown, d, "database %d is out of reach: %v", d, now.Down)
		case now.IsReadOnly():
			add(reasonReadOnly, d, "database %d is read-only", d)
		case now.Refusing != nil:
			add(reasonRefusing, d, "database %d refuses writes: %v", d, now.Refusing)
		case !now.held:
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
			if since, err := a.scanner.UnreadSince(d); err != nil && now.owned { // else another node reports it
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
