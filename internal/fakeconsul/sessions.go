package fakeconsul

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

type session struct {
	ID            string
	Name          string
	Node          string
	LockDelay     time.Duration
	Behavior      string
	TTL           string
	NodeChecks    []string
	ServiceChecks []serviceCheck
	CreateIndex   uint64
	ModifyIndex   uint64

	ttl   time.Duration // 0: it never expires
	timer *timer
}

type serviceCheck struct{ ID, Namespace string }

func (s *session) dependsOn(check string) bool {
	return slices.ContainsFunc(s.ServiceChecks, func(k serviceCheck) bool { return k.ID == check })
}

// sessionList has the sessions in the order of their creation. The caller holds mu.
func (c *Consul) sessionList() []*session {
	return slices.SortedFunc(maps.Values(c.sessions), func(a, b *session) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
}

// The bounds of sessions; developer.hashicorp.com/consul/api-docs/session.
const (
	maxSessionTTL    = 24 * time.Hour
	defaultLockDelay = 15 * time.Second
	maxLockDelay     = time.Minute
)

func (c *Consul) createSession(q call) (any, error) {
	asked := struct {
		Name, Behavior, TTL, LockDelay string
		NodeChecks                     []string
		ServiceChecks                  []serviceCheck
	}{Behavior: "release", LockDelay: defaultLockDelay.String(), NodeChecks: []string{serfHealth}}
	if err := q.decode(&asked); err != nil {
		return nil, err
	}
	s := &session{Name: asked.Name, Node: node, Behavior: asked.Behavior, TTL: asked.TTL, NodeChecks: asked.NodeChecks, ServiceChecks: asked.ServiceChecks}
	var err error
	if s.LockDelay, err = time.ParseDuration(asked.LockDelay); err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("Request decode failed: %v", err)}
	}
	if s.ttl, err = time.ParseDuration(cmp.Or(s.TTL, "0")); err != nil {
		return nil, internal("Session TTL '%s' invalid: %v", s.TTL, err)
	}
	if s.ttl != 0 && (s.ttl < c.MinSessionTTL || s.ttl > maxSessionTTL) {
		return nil, internal("Invalid Session TTL '%d', must be between [%v=%v]", s.ttl, c.MinSessionTTL, maxSessionTTL)
	}
	c.commit()
	for _, on := range s.ServiceChecks {
		switch k := c.checks[on.ID]; {
		case k == nil:
			return nil, internal("Missing check '%s' registration", on.ID)
		case k.reported.Status == critical:
			return nil, internal("Check '%s' is in %s state", on.ID, critical)
		}
	}
	c.made++
	s.ID = fmt.Sprintf("5e551000-0000-4000-8000-%012x", c.made)
	s.CreateIndex, s.ModifyIndex, c.sessionIndex = c.index, c.index, c.index
	c.sessions[s.ID] = s
	c.prolong(s)
	return struct{ ID string }{s.ID}, nil
}

// prolong lets the TTL of a session begin now. The caller holds mu.
func (c *Consul) prolong(s *session) {
	s.timer.Stop()
	if s.ttl > 0 {
		s.timer = c.after(time.Duration(float64(s.ttl)*c.SessionTTLs), func() {
			c.commit()
			c.endSession(s)
		})
	}
}

// endSession ends a session at the present index. What it held is released or deleted, and cannot be locked during the
// lock-delay. The caller holds mu.
func (c *Consul) endSession(s *session) {
	s.timer.Stop()
	delete(c.sessions, s.ID)
	c.sessionIndex = c.index
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		e := c.keys[key]
		if e.Session != s.ID {
			continue
		}
		if e.Session = ""; s.Behavior == "delete" {
			c.removeKey(key)
		} else {
			c.store(e)
		}
		c.lockDelays[key] = time.Now().Add(min(s.LockDelay, maxLockDelay))
	}
}

// endSessionsOf ends the sessions that depend on a check. The caller holds mu.
func (c *Consul) endSessionsOf(check string) {
	for _, s := range c.sessionList() {
		if s.dependsOn(check) {
			c.endSession(s)
		}
	}
}

func (c *Consul) renewSession(q call) (any, error) {
	s := c.sessions[q.what]
	if s == nil {
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("Session id '%s' not found", q.what)}
	}
	c.prolong(s)
	return []*session{s}, nil
}

func (c *Consul) destroySession(q call) (any, error) {
	c.commit()
	if s := c.sessions[q.what]; s != nil {
		c.endSession(s)
	}
	return true, nil
}

func (c *Consul) getSession(q call) (uint64, any) {
	list := []*session{}
	if s := c.sessions[q.what]; s != nil {
		list = append(list, s)
	}
	return c.sessionIndex, list
}
