package app

import (
	"context"
	"strings"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
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
