package app

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
)

// unworked lists the partitions that no node has worked for longer than a take-over takes, and the partitions whose owner
// does not answer this node. A single node has none: the databases that it does not hold are a separate fault.
func (s status) unworked() (list []api.Unworked) {
	c, ok := s.cluster.(*cluster.Consul)
	if !ok || s.draining.Load() {
		return nil
	}
	for _, i := range c.Idle() {
		u := api.Unworked{Partitions: i.Partitions, Node: i.Node, Address: i.Address, Session: i.Session}
		if i.Node == "" {
			u.Reason = fmt.Sprintf("no node has taken them for %s; look at /readyz and at the log of each node", i.For.Round(time.Second))
		} else {
			u.Reason = fmt.Sprintf("%s holds them and has not been alive for %s; %s", holder(i.Node, i.Address), i.For.Round(time.Second),
				endSession(i.Session))
		}
		list = append(list, u)
	}
	d, _ := c.WithoutShare()
	for _, m := range c.Members() {
		if c.Lost() != "" { // it does not know the members of today
			break
		}
		s := s.forward.View(m.Name).Silent
		// Some answers may be missed, except by a node that has nothing else to do.
		if s == nil || len(m.Partitions) == 0 || time.Since(s.Since) < missedFor && d == 0 {
			continue
		}
		list = append(list, api.Unworked{
			Partitions: m.Partitions, Node: m.Name, Address: m.Address, Session: m.Session,
			Reason: fmt.Sprintf("%s holds them and has not answered this node since %s (%v); if it is dead, they are free when its session ends, within %s of its last heartbeat; %s",
				holder(m.Name, m.Address), s.Since.UTC().Format(time.RFC3339), s.Err, c.SessionEndsWithin(), endSession(m.Session)),
		})
	}
	slices.SortFunc(list, func(a, b api.Unworked) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

func holder(name, address string) string {
	return fmt.Sprintf("node %s (%s)", name, cmp.Or(address, "no address"))
}

// endSession is how an operator ends the session of a dead node.
func endSession(session string) string {
	return fmt.Sprintf("PUT /v1/session/destroy/%s at Consul ends it now", session)
}

// missedFor is the time for which a node may not answer before the partitions that it holds are reported.
const missedFor = 5 * time.Second

// ownsNone is the text of /readyz about a node that owns no partitions although it should; "" if it owns some, should
// own none, or gets them from living nodes in time.
func (s *state) ownsNone() string {
	d, fault := s.app.withoutShare()
	if d > 0 && fault == "" && len(s.unworked) > 0 {
		fault = "others hold them and do not answer"
	}
	if fault == "" {
		return ""
	}
	return fmt.Sprintf("this node owns none of %d partitions for %s: %s; toc cluster shows who holds them, look at /readyz and the log there",
		s.app.layout.Partitions, d.Round(time.Second), fault)
}

// withoutShare is cluster.Consul.WithoutShare; a single node is never without.
func (s status) withoutShare() (d time.Duration, fault string) {
	if c, ok := s.cluster.(*cluster.Consul); ok {
		return c.WithoutShare()
	}
	return 0, ""
}
