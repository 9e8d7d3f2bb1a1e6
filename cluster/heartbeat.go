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
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The timing of a heartbeat, as shares of the TTL; the package comment has the reasons. If a beat hangs there
// is time for another before the lease ends: 1/5 + 1/3 < 2/3.
func (c *Consul) beatEvery() time.Duration { return c.cfg.TTL / 5 }
func (c *Consul) beatLimit() time.Duration { return c.cfg.TTL / 3 }
func (c *Consul) leaseTime() time.Duration { return c.cfg.TTL * 2 / 3 }
func (c *Consul) trustTime() time.Duration { return c.cfg.TTL * 9 / 10 }

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

// beat is one heartbeat. It tells the agent that this node lives, and asks the servers whether the session
// does. Both count: an agent that is cut off from its servers accepts heartbeats for ever. Without a session it
// opens one.
func (c *Consul) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.beatLimit())
	defer cancel()
	sent := c.clock()
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()

	err := c.signal(ctx)
	if err == nil && session == "" {
		// The first beat of the session, at once, starts the lease.
		if err = c.openSession(ctx); err == nil {
			c.recordBeat(sent)
			ring(c.beatNow)
			return nil
		}
	}
	if err != nil {
		c.recordMissedBeat(ctx, err)
		return err
	}
	entry, _, err := c.client.Session().Info(session, consistent(ctx))
	if err != nil {
		err = fmt.Errorf("read the session: %w", err)
		c.recordMissedBeat(ctx, err)
		return err
	}
	switch {
	case entry == nil:
		c.loseSession(ctx, "consul has ended it")
		ring(c.beatNow)
	case c.clock().since(c.last) > c.trustTime():
		// The end of the session may be under way.
		c.loseSession(ctx, "too long without a heartbeat")
		ring(c.beatNow)
	default:
		c.recordBeat(sent)
		c.owned.renew(0, sent.add(c.leaseTime()))
	}
	return nil
}

// recordBeat records that a beat that was sent then succeeded.
func (c *Consul) recordBeat(sent instant) {
	c.mu.Lock()
	was, gap := c.lost, c.clock().since(c.last)
	c.last, c.lost, c.lostWhy = sent, false, nil
	c.mu.Unlock()
	if was {
		c.cfg.Logger.Info("consul is back", "after", gap.Round(time.Millisecond))
		ring(c.wake)
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
func (c *Consul) keepsOwnership(err error) bool { return c.cfg.KeepOnLoss && unreachable(err) }

// Lost describes what is wrong with this node's connection to Consul; "" if all is well.
func (c *Consul) Lost() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost {
		return ""
	}
	what := "consul does not answer"
	switch {
	case errors.As(c.lostWhy, new(*nameTakenError)):
		what = "another process has this node's name"
	case !unreachable(c.lostWhy):
		what = "consul refuses this node's heartbeats"
	case errors.As(c.lostWhy, new(api.StatusError)):
		what = "consul answers with errors"
	}
	fate := "stopped"
	if c.keepsOwnership(c.lostWhy) {
		fate = "kept"
	}
	return fmt.Sprintf("%s since %s: partitions %s: %v", what, c.clock().since(c.last).Round(time.Second), fate, c.lostWhy)
}

// registration is what the agent knows of this node. It has two checks: the session depends on "alive", and
// only a node that is "ready" gets partitions and appears in queries for passing instances. So a leaving node
// disappears from that list while it still holds locks.
type registration struct {
	address     string
	unreachable string // databases, by comma
	ready       string // the state of that check
}

func (c *Consul) aliveCheck() string { return c.service + ":alive" }
func (c *Consul) readyCheck() string { return c.service + ":ready" }

// signal tells the agent that this node lives, and publishes changes.
func (c *Consul) signal(ctx context.Context) error {
	if err := c.publish(ctx); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	err := c.client.Agent().UpdateTTLOpts(c.aliveCheck(), "", api.HealthPassing, reading(ctx))
	if isUnknown(err, noCheck) {
		c.cfg.Logger.Warn("the consul agent has forgotten this node; registering again")
		c.published = nil
		if err := c.publish(ctx); err != nil {
			return fmt.Errorf("register: %w", err)
		}
		return nil // the check starts passing
	}
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// Consul 1.8 reports an unknown check or service by an internal error. Later versions answer 404.
const (
	noCheck   = "does not have associated TTL"
	noService = "Unknown service"
)

func isUnknown(err error, text string) bool {
	status, is := errors.AsType[api.StatusError](err)
	return is && (status.Code == http.StatusNotFound || strings.Contains(status.Body, text))
}

// publish sends the agent what has changed.
func (c *Consul) publish(ctx context.Context) error {
	c.mu.Lock()
	want := registration{c.cfg.Address, joinInts(c.unreachable), api.HealthCritical}
	if c.phase == working {
		want.ready = api.HealthPassing
	}
	altered := c.registrationAltered
	c.registrationAltered = false
	c.mu.Unlock()
	if altered {
		c.cfg.Logger.Warn("somebody has changed this node's registration in consul; registering again")
		c.published = nil
	}
	if c.published != nil && *c.published == want {
		return nil
	}
	if c.published == nil || c.published.address != want.address || c.published.unreachable != want.unreachable {
		if err := c.register(ctx, want); err != nil {
			return err
		}
	}
	// Registering again does not change the checks.
	if err := c.client.Agent().UpdateTTLOpts(c.readyCheck(), "", want.ready, reading(ctx)); err != nil {
		if isUnknown(err, noCheck) {
			c.published = nil
		}
		return err
	}
	c.published = &want
	return nil
}

func (c *Consul) register(ctx context.Context, r registration) error {
	s := &api.AgentServiceRegistration{
		ID:   c.service,
		Name: c.cfg.Prefix,
		Meta: map[string]string{
			metaNode: c.cfg.Node, metaInstance: strconv.FormatUint(c.instance, 16), metaAddress: r.address, metaUnreachable: r.unreachable,
		},
		Checks: api.AgentServiceChecks{
			{
				CheckID: c.aliveCheck(), Name: "alive", TTL: c.cfg.TTL.String(), Status: api.HealthPassing,
				DeregisterCriticalServiceAfter: "1m",
			},
			{CheckID: c.readyCheck(), Name: "ready", TTL: (10 * 365 * 24 * time.Hour).String(), Status: r.ready},
		},
	}
	// An address with a host and a port is also published in Consul's own fields.
	if host, port, err := net.SplitHostPort(r.address); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			s.Address, s.Port = host, n
		}
	}
	return c.client.Agent().ServiceRegisterOpts(s, api.ServiceRegisterOpts{}.WithContext(ctx))
}

func (c *Consul) deregister(ctx context.Context) error {
	err := c.client.Agent().ServiceDeregisterOpts(c.service, reading(ctx))
	if err != nil && !isUnknown(err, noService) {
		return fmt.Errorf("deregister: %w", err)
	}
	c.published = nil
	return nil
}

func joinInts(list []int) string {
	text := make([]string, len(list))
	for i, n := range slices.Sorted(slices.Values(list)) {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}
