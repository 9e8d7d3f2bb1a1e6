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

	ttl   time.Duration // 0: it does not end by itself
	ends  time.Time
	timer *time.Timer
}

type serviceCheck struct{ ID, Namespace string }

// checks are those on which the session depends.
func (s *session) checks() []string {
	list := slices.Clone(s.NodeChecks)
	for _, k := range s.ServiceChecks {
		list = append(list, k.ID)
	}
	return list
}

// sessionList has the sessions in the order of their creation. The caller holds mu.
func (c *Consul) sessionList() []*session {
	return slices.SortedFunc(maps.Values(c.sessions), func(a, b *session) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
}

// maxSessionTTL is the greatest TTL that Consul takes; developer.hashicorp.com/consul/api-docs/session.
const maxSessionTTL = 24 * time.Hour

func (c *Consul) createSession(w http.ResponseWriter, r *http.Request) {
	asked := struct {
		Name, Node, Behavior, TTL, LockDelay string
		NodeChecks                           []string
		ServiceChecks                        []serviceCheck
	}{Behavior: "release", LockDelay: defaultLockDelay.String(), NodeChecks: []string{serfHealth}}
	if !decode(w, r, &asked) {
		return
	}
	s := &session{
		Name: asked.Name, Node: cmp.Or(asked.Node, c.Node), Behavior: asked.Behavior, TTL: asked.TTL,
		NodeChecks: asked.NodeChecks, ServiceChecks: asked.ServiceChecks, timer: time.NewTimer(0),
	}
	s.timer.Stop()
	var err error
	if s.LockDelay, err = time.ParseDuration(asked.LockDelay); err != nil {
		http.Error(w, fmt.Sprintf("Request decode failed: %v", err), http.StatusBadRequest)
		return
	}
	s.LockDelay = min(s.LockDelay, maxLockDelay)
	if s.TTL != "" {
		if s.ttl, err = time.ParseDuration(s.TTL); err != nil {
			fail(w, "Session TTL '%s' invalid: %v", s.TTL, err)
			return
		}
		if s.ttl != 0 && (s.ttl < c.MinSessionTTL || s.ttl > maxSessionTTL) {
			fail(w, "Invalid Session TTL '%d', must be between [%v=%v]", s.ttl, c.MinSessionTTL, maxSessionTTL)
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commit()
	for _, id := range s.checks() {
		switch k := c.checks[id]; {
		case k == nil:
			fail(w, "Missing check '%s' registration", id)
			return
		case k.reported.status == critical:
			fail(w, "Check '%s' is in %s state", id, critical)
			return
		}
	}
	c.serial++
	s.ID = fmt.Sprintf("5e551000-0000-4000-8000-%012x", c.serial)
	s.CreateIndex, s.ModifyIndex, c.sessionIndex = c.index, c.index, c.index
	c.sessions[s.ID] = s
	c.prolong(s)
	answer(w, struct{ ID string }{s.ID})
}

// prolong lets a session end by itself, counted from now. The caller holds mu.
func (c *Consul) prolong(s *session) {
	if s.ttl == 0 {
		return
	}
	s.timer.Stop()
	within := time.Duration(float64(s.ttl) * c.SessionTTLs)
	s.ends = time.Now().Add(within)
	s.timer = time.AfterFunc(within, c.unlessDown(func() {
		if c.sessions[s.ID] == s && !time.Now().Before(s.ends) {
			c.commit()
			c.endSession(s)
		}
	}))
}

// endSession ends a session at the present index and releases what it holds. For the lock-delay nobody can lock it. The
// caller holds mu.
func (c *Consul) endSession(s *session) {
	s.timer.Stop()
	delete(c.sessions, s.ID)
	c.sessionIndex = c.index
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		e := c.keys[key]
		if e.Session != s.ID {
			continue
		}
		if s.Behavior == "delete" {
			c.removeKey(key)
		} else {
			e.Session = ""
			c.store(e)
		}
		if s.LockDelay > 0 {
			c.lockDelays[key] = time.Now().Add(s.LockDelay)
		}
	}
}

func (c *Consul) renewSession(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[r.PathValue("id")]
	if s == nil {
		http.Error(w, fmt.Sprintf("Session id '%s' not found", r.PathValue("id")), http.StatusNotFound)
		return
	}
	c.prolong(s)
	answer(w, []*session{s})
}

func (c *Consul) destroySession(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commit()
	if s := c.sessions[r.PathValue("id")]; s != nil {
		c.endSession(s)
	}
	answer(w, true)
}

func (c *Consul) getSession(w http.ResponseWriter, r *http.Request) {
	c.query(w, r, func() (uint64, []byte) {
		list := []*session{}
		if s := c.sessions[r.PathValue("id")]; s != nil {
			list = append(list, s)
		}
		return c.sessionIndex, marshal(list)
	})
}
