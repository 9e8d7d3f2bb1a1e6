package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The timing of a heartbeat, as shares of the TTL; the package comment has the reasons. If a beat hangs there
// is time for another before the lease ends: 1/5 + 1/3 < 2/3.
func (n *node) beatEvery() time.Duration { return n.cfg.TTL / 5 }
func (n *node) beatLimit() time.Duration { return n.cfg.TTL / 3 }
func (n *node) leaseTime() time.Duration { return n.cfg.TTL * 2 / 3 }
func (n *node) trustTime() time.Duration { return n.cfg.TTL * 9 / 10 }

// beatLoop sends heartbeats until ctx ends.
func (c *Consul) beatLoop(ctx context.Context) {
	for {
		pause := c.beatEvery()
		if err := c.beat(ctx); err != nil {
			pause /= 2
		}
		if wait.ForOr(ctx, pause, c.beatNow) != nil {
			return
		}
	}
}

// beat is one heartbeat. It renews the session at the servers and then the check at the agent. Both count: an agent
// that is cut off from its servers, or whose token they do not know any more, accepts heartbeats for ever. The check
// comes second, so that it ends, too, if the session cannot be renewed. Without a session a beat opens one.
func (c *Consul) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.beatLimit())
	defer cancel()
	sent := c.clock()
	c.mu.Lock()
	session, over := c.session, "" // why the session is of no use any more
	c.mu.Unlock()

	err := c.agent.publish(ctx)
	if err == nil && session != "" {
		if over, err = c.renewSession(ctx, session); err == nil && over == "" {
			over, err = c.restore(ctx, session)
		}
	}
	if err == nil {
		err = c.agent.passChecks(ctx, c.isReady())
	}
	if err == nil && session == "" {
		// The first beat of the session, at once, starts the lease.
		if err = c.openSession(ctx); err == nil {
			c.recordBeat(sent)
			c.beatNow.Set()
			return nil
		}
	}
	if err != nil {
		c.recordMissedBeat(ctx, err)
		return err
	}
	if over == "" && c.clock().since(c.last) > c.trustTime() {
		over = "too long without a heartbeat" // its end may be under way
	}
	if over != "" {
		c.loseSession(ctx, over)
		c.beatNow.Set()
		return nil
	}
	c.recordBeat(sent)
	c.owned.renew(0, sent.add(c.leaseTime()))
	return nil
}

// restore locks this node's name again if it is not locked any more, and finds out whether Consul takes this node's
// writes again. over says why the session is of no use.
func (c *Consul) restore(ctx context.Context, session string) (over string, err error) {
	c.mu.Lock()
	nameLost, refused := c.nameLost, c.refused != nil
	works := slices.ContainsFunc(c.holds, func(h hold) bool { return h.state != none })
	c.mu.Unlock()
	if !nameLost && !refused {
		return "", nil
	}
	had, err := c.relock(ctx, session)
	switch {
	case isRefused(err) && works:
		c.recordRefusal(err)
		return "", nil
	case isRefused(err): // it may have locks without knowing: a token without rights sees no keys
		return fmt.Sprintf("this node works nothing by it: %v", err), nil
	case err != nil:
		return "", err
	case !had:
		return "another process has this node's name or its worker number", nil
	}
	if nameLost {
		c.cfg.Logger.Warn("this node's name was not locked in consul any more; locked it again", "key", c.nameKey())
	}
	if refused {
		c.cfg.Logger.Info("consul takes this node's writes again")
	}
	c.mu.Lock()
	c.nameLost, c.refused = false, nil
	c.mu.Unlock()
	c.wake.Set()
	c.beatNow.Set()
	return "", nil
}

// recordRefusal records that Consul refuses this node's writes because its token lacks a right. The node then keeps the
// partitions that it has, since it can neither take nor release any, and other nodes do not count on it.
func (c *Consul) recordRefusal(err error) {
	c.mu.Lock()
	news := c.refused == nil
	c.refused = err
	c.mu.Unlock()
	if news {
		c.cfg.Logger.Error("consul refuses this node's writes; it keeps its partitions and takes none", "error", err)
		c.beatNow.Set()
		c.wake.Set()
	}
}

// recordBeat records that a beat that was sent then succeeded.
func (c *Consul) recordBeat(sent instant) {
	c.mu.Lock()
	was, gap := c.lost, c.clock().since(c.last)
	c.last, c.lost, c.lostWhy = sent, false, nil
	if was {
		c.returned = c.clock()
	}
	c.mu.Unlock()
	if was {
		c.cfg.Logger.Info("consul is back", "after", gap.Round(time.Millisecond))
		c.wake.Set()
	}
}

// recordMissedBeat handles a beat that failed.
func (c *Consul) recordMissedBeat(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the heartbeat was stopped
	}
	switch {
	case errors.As(err, new(*nameTakenError)):
		if !c.nameDenied {
			c.nameDenied = true
			c.cfg.Logger.Warn("another process has this node's name, or had it when it died; waiting for its session to end", "error", err)
		}
		c.dropAll()
	case c.keepsOwnership(err):
		c.owned.renew(0, c.clock().add(c.leaseTime()))
	}
	c.mu.Lock()
	gap := c.clock().since(c.last)
	news := !c.lost && c.last != (instant{}) && gap >= c.leaseTime()
	c.lost = c.lost || news
	c.lostWhy = err
	c.mu.Unlock()
	if news {
		c.cfg.Logger.Error("lost consul", "since", gap.Round(time.Millisecond), "partitions_kept", c.keepsOwnership(err), "error", err)
	}
}

// keepsOwnership reports whether the node keeps its partitions after such an error.
func (n *node) keepsOwnership(err error) bool { return n.cfg.KeepOnLoss && unreachable(err) }

// Lost describes what is wrong with this node's connection to Consul; "" if all is well.
func (c *Consul) Lost() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.lost && c.refused == nil && c.age(c.unseenSince) > c.takeOverLimit():
		return "consul does not show this node its own registration: does its token lack node_prefix or service?" + tokenAdvice
	case !c.lost && c.refused != nil:
		return fmt.Sprintf("consul refuses this node's writes: its partitions are kept, and none can be taken or handed over (%v)%s", c.refused,
			tokenAdvice)
	case !c.lost:
		return ""
	}
	what, advice := "consul does not answer", ""
	switch {
	case errors.As(c.lostWhy, new(*nameTakenError)):
		what = "another process has this node's name"
	case !unreachable(c.lostWhy):
		what, advice = "consul refuses this node's heartbeats", tokenAdvice
	case errors.As(c.lostWhy, new(api.StatusError)):
		what = "consul answers with errors"
	}
	fate := "stopped"
	if c.keepsOwnership(c.lostWhy) {
		fate = "kept"
	}
	return fmt.Sprintf("%s since %s: partitions %s: %v%s", what, c.clock().since(c.last).Round(time.Second), fate, c.lostWhy, advice)
}

// tokenAdvice is what to do when Consul refuses a token.
const tokenAdvice = "; give the token the rights of docs/operating.md, or put a new one into cluster.consul.token_file"

// registration is the agent's record of this node. It has two checks: the session depends on "alive", and
// only a node that is "ready" gets partitions and appears in queries for passing instances. So a leaving node
// disappears from that list while it still holds locks.
type registration struct {
	address     string
	unreachable string // databases, by comma
	token       string // with which the agent reports it to the servers
}

// agent keeps this node's registration and its checks at the agent.
type agent struct {
	*node
	databases *databases
	published *registration // nil: unknown
	altered   atomic.Bool   // somebody has changed the registration
}

func (n *node) aliveCheck() string { return n.service + ":alive" }
func (n *node) readyCheck() string { return n.service + ":ready" }

// isReady reports whether this node may get partitions.
func (c *Consul) isReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == working && c.refused == nil
}

// passChecks sets the two checks at the agent: that this node lives, and whether it may get partitions. Each beat sets both,
// because somebody else may have changed or removed a check.
func (a *agent) passChecks(ctx context.Context, isReady bool) error {
	agent := a.client.Agent()
	set := func(check, status string) error { return agent.UpdateTTLOpts(check, "", status, reading(ctx)) }
	ready := api.HealthCritical
	if isReady {
		ready = api.HealthPassing
	}
	var alive error
	var both sync.WaitGroup
	both.Go(func() { alive = set(a.aliveCheck(), api.HealthPassing) })
	err := set(a.readyCheck(), ready)
	both.Wait()
	if isUnknown(alive, noCheck) || isUnknown(err, noCheck) {
		a.cfg.Logger.Warn("the consul agent has forgotten this node; registering again")
		a.published = nil
		if isUnknown(alive, noCheck) {
			alive = nil // a new check passes
		}
		if err = a.publish(ctx); err == nil {
			err = set(a.readyCheck(), ready)
		}
	}
	if err = errors.Join(alive, err); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// Consul 1.8 reports an unknown check or service by an internal error, a check in two ways: the second where it asks for
// tokens. Later versions answer 404.
var (
	noCheck   = []string{"does not have associated TTL", "Unknown check"}
	noService = []string{"Unknown service"}
)

func isUnknown(err error, texts []string) bool {
	status, is := errors.AsType[api.StatusError](err)
	return is && (status.Code == http.StatusNotFound ||
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(status.Body, text) }))
}

// publish sends the agent what has changed. The agent reports a registration with the token that it came with, so a new
// token is a change as well.
func (a *agent) publish(ctx context.Context) error {
	token := ""
	if a.token != nil {
		var err error
		if token, err = a.token.current(); err != nil {
			return err
		}
	}
	want := registration{a.cfg.Address, joinInts(a.databases.unusable()), token}
	if a.altered.Swap(false) {
		a.cfg.Logger.Warn("somebody has changed this node's registration in consul; registering again")
		a.published = nil
	}
	if a.published != nil && *a.published == want {
		return nil
	}
	if a.published != nil && a.published.token != want.token {
		a.cfg.Logger.Info("the consul token has changed; registering again")
	}
	if err := a.register(ctx, want); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	a.published = &want
	return nil
}

func (a *agent) register(ctx context.Context, r registration) error {
	s := &api.AgentServiceRegistration{
		ID:   a.service,
		Name: a.cfg.Prefix,
		Meta: map[string]string{
			metaNode: a.cfg.Node, metaInstance: strconv.FormatUint(a.instance, 16), metaAddress: r.address, metaUnreachable: r.unreachable,
		},
		Checks: api.AgentServiceChecks{
			{
				CheckID: a.aliveCheck(), Name: "alive", TTL: a.cfg.TTL.String(), Status: api.HealthPassing,
				DeregisterCriticalServiceAfter: "1m",
			},
			{CheckID: a.readyCheck(), Name: "ready", TTL: (10 * 365 * 24 * time.Hour).String(), Status: api.HealthCritical},
		},
	}
	// An address with a host and a port is also published in Consul's own fields.
	if host, port, err := net.SplitHostPort(r.address); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			s.Address, s.Port = host, n
		}
	}
	return a.client.Agent().ServiceRegisterOpts(s, api.ServiceRegisterOpts{}.WithContext(ctx))
}

func (a *agent) deregister(ctx context.Context) error {
	err := a.client.Agent().ServiceDeregisterOpts(a.service, reading(ctx))
	if err != nil && !isUnknown(err, noService) {
		return fmt.Errorf("deregister: %w", err)
	}
	a.published = nil
	return nil
}

func joinInts(list []int) string {
	text := make([]string, len(list))
	for i, n := range slices.Sorted(slices.Values(list)) {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}
