package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
)

// rejoinDelay is how much later than this node another one may return to a Consul that was away: an agent takes
// up to 3 s to report its checks to a restarted server.
const rejoinDelay = 5 * time.Second

// plan is the last assignment, with the nodes that it was made of.
type plan struct {
	nodes  []candidate
	owners []string
}

// decideAll decides after each change until ctx ends, and then waits for the hand-overs.
func (c *Consul) decideAll(ctx context.Context) {
	var handOvers sync.WaitGroup
	defer handOvers.Wait()
	for {
		again := c.decide(ctx, &handOvers)
		if wait.ForOr(ctx, again, c.wake) != nil {
			return
		}
	}
}

// decision is the work to do now.
type decision struct {
	session   string
	toAcquire []int // to be locked
	toRelease []int // held, and assigned to another node
	leftover  []int // locked by our session, but not in our books
	again     time.Duration

	abandoned map[int]bool // of toAcquire: the last holder did not hand it over, or handed it over unsettled
}

// decide acquires free partitions that are assigned to this node, starts to hand over the others, and returns
// when to look again if nothing changes.
func (c *Consul) decide(ctx context.Context, handOvers *sync.WaitGroup) time.Duration {
	d := c.compare()
	if len(d.toRelease) > 0 {
		c.owned.drop(d.toRelease)
		handOvers.Go(func() { c.handOver(ctx, d.toRelease, d.session) })
	}
	if len(d.leftover) > 0 {
		// The answer to a lock or an unlock was lost, and so was the last holder's name.
		if err := c.unlock(ctx, d.leftover, d.session, func(int) bool { return true }); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Debug("stray locks not released", "error", err)
			if isRefused(err) {
				c.recordRefusal(err)
			}
		}
	}
	if len(d.toAcquire) > 0 && !c.acquirePartitions(ctx, d) {
		return min(d.again, 100*time.Millisecond)
	}
	return d.again
}

// compare finds the differences between what this node has and what it should have.
func (c *Consul) compare() decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := decision{session: c.session, again: time.Second, abandoned: make(map[int]bool)}
	// A node that leaves hands over partitions that it kept without a session, or because Consul rejected their release.
	if c.phase == leaving && (c.session == "" || c.refused != nil) {
		for p := range c.holds {
			if c.holds[p].state == held {
				c.holds[p].state = handing
				d.toRelease = append(d.toRelease, p)
			}
		}
	}
	if c.nodes == nil || c.names == nil || c.locks == nil {
		return d
	}
	owners := c.assignment()
	c.recordIdle(owners)
	if c.session == "" || c.refused != nil {
		return d
	}
	var reacquire []int
	for p := range c.holds {
		h := &c.holds[p]
		mine := owners[p] == c.cfg.Node && !c.databases.of(p).foreign
		switch {
		case h.state == none:
			c.compareUnheld(&d, p, mine)
		case h.state == handing:
		case h.session != c.session: // kept through the loss of a session
			reacquire = append(reacquire, p)
		case !mine:
			h.state = handing
			d.toRelease = append(d.toRelease, p)
		}
	}
	d.toAcquire = append(reacquire, d.toAcquire...)
	return d
}

// compareUnheld decides about a partition that this node does not hold by its own record. The caller holds mu.
func (c *Consul) compareUnheld(d *decision, partition int, mine bool) {
	l, db := c.locks[partition], c.databases.of(partition)
	leftover := l.session == c.session // an answer was lost
	switch {
	case leftover && !mine:
		d.leftover = append(d.leftover, partition)
	case !mine || l.session != "" && !leftover:
	case !db.usable(): // no other node can use it either; when it becomes usable we are woken
	default:
		if wait := c.lockableIn(l); wait > 0 {
			d.again = min(d.again, wait)
			return
		}
		d.toAcquire = append(d.toAcquire, partition)
		d.abandoned[partition] = l.instance != 0 && l.instance != c.instance || l.unsettled || leftover || db.abandoned
	}
}

// lockableIn returns how long a free lock must be left alone. It is 0 after a hand-over, or if the holder has
// been silent for a TTL: its lease is over. A session may end in other ways (by hand, with its agent's machine,
// by the agent's leaving). Its holder may not know this yet, and gets a TTL to find out. With KeepOnLoss a
// silent holder may continue to work. If Consul was away for all nodes, the holder gets some time after our own
// return to come back as well. The caller holds mu.
func (c *Consul) lockableIn(l lock) time.Duration {
	if l.session != "" || l.instance == 0 || l.instance == c.instance {
		return 0
	}
	since := l.freed
	for _, n := range c.nodes {
		if n.instance == l.instance && n.expired {
			if !c.cfg.KeepOnLoss {
				return 0
			}
			if c.lost {
				return c.cfg.TTL // then it is a question of our return
			}
			since = c.returned.add(rejoinDelay)
		}
	}
	return c.cfg.TTL - time.Duration(c.clock().mono-since.mono)
}

// assignment assigns the partitions to the nodes that are ready and not in maintenance mode. This node counts
// itself while it works: an answer without it is older than its registration. The caller holds mu.
func (c *Consul) assignment() []string {
	works := c.phase == working && c.refused == nil
	for _, n := range c.nodes {
		works = works && !(n.instance == c.instance && n.inMaintenance)
	}
	var nodes []candidate
	for _, n := range c.livePeers() {
		if n.ready && !n.inMaintenance && n.name != c.cfg.Node {
			nodes = append(nodes, candidate{n.name, n.unreachable})
		}
	}
	if works {
		nodes = append(nodes, candidate{c.cfg.Node, c.databases.unusable()})
	}
	same := slices.EqualFunc(nodes, c.plan.nodes, func(a, b candidate) bool {
		return a.name == b.name && slices.Equal(a.unreachable, b.unreachable)
	})
	if !same || c.plan.owners == nil {
		c.plan = plan{nodes, assign(nodes, c.cfg.Layout)}
	}
	return c.plan.owners
}

// acquirePartitions locks partitions and owns them. It returns false if some may be free later.
func (c *Consul) acquirePartitions(ctx context.Context, d decision) bool {
	got, why, err := c.lockAll(ctx, d.toAcquire, d.session)
	var mine, gone, late []int
	c.mu.Lock()
	if c.session == d.session {
		for p, index := range got {
			if c.phase != working && c.holds[p].state == none { // Leave may have returned
				late = append(late, p)
				continue
			}
			c.holds[p] = hold{held, d.session, index}
			mine = append(mine, p)
		}
		for p, reason := range why {
			// Kept through the loss of a session, but another node was faster.
			if c.holds[p].state == held && strings.Contains(reason, "already held") {
				c.holds[p] = hold{}
				gone = append(gone, p)
			}
		}
		// Under mu, so that a session that is lost now drops them again.
		c.owned.take(mine, func(p int) bool { return d.abandoned[p] })
		c.owned.drop(gone)
	}
	c.mu.Unlock()
	if len(mine) > 0 {
		c.cfg.Logger.Info("partitions taken", "partitions", len(mine))
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		c.cfg.Logger.Warn("partitions lost: other nodes have taken them", "partitions", gone)
	}
	if len(late) > 0 {
		err = errors.Join(err, c.unlock(ctx, late, d.session, func(p int) bool { return d.abandoned[p] }))
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Debug("partitions not taken", "error", err)
	}
	if isRefused(err) {
		c.recordRefusal(err)
	}
	return err == nil && len(why) == 0
}

// handOver releases the locks of partitions that this node owns no longer, each as soon as its work has ended.
func (c *Consul) handOver(ctx context.Context, partitions []int, session string) {
	began := time.Now()
	releases := groupcommit.New(maxTxn, 1, func(batch []int) { c.release(ctx, batch, session) })
	var mu sync.Mutex
	busy := make(map[int]bool, len(partitions)) // nil: the time for the hand-over has ended
	for _, p := range partitions {
		busy[p] = true
	}
	limited, cancel := context.WithTimeout(ctx, c.cfg.DrainFor)
	c.cfg.Host.Drain(limited, partitions, func(p int) {
		mu.Lock()
		defer mu.Unlock()
		if busy[p] { // once: after a second call the node may own it again
			delete(busy, p)
			releases.Add(p)
		}
	})
	cancel()
	mu.Lock()
	left := slices.Sorted(maps.Keys(busy))
	busy = nil
	mu.Unlock()
	if len(left) > 0 && ctx.Err() == nil {
		c.cfg.Logger.Warn("partitions handed over with work in hand: it took too long", "partitions", left, "timeout", c.cfg.DrainFor)
		c.owned.unsettle(left)
		releases.Add(left...)
	}
	releases.Wait()
	if ctx.Err() == nil {
		c.cfg.Logger.Info("partitions handed over", "partitions", len(partitions), "took", time.Since(began).Round(time.Millisecond))
	}
}

// release releases the locks of partitions whose work has ended.
func (c *Consul) release(ctx context.Context, partitions []int, session string) {
	for ctx.Err() == nil && c.sessionLives(session) {
		err := c.unlock(ctx, partitions, session, c.owned.isUnsettled)
		if err == nil {
			break
		}
		if isRefused(err) {
			c.recordRefusal(err)
			if c.takeBack(partitions, session) {
				return
			}
			break // the end of the session releases them
		}
		_ = wait.For(ctx, c.cfg.TTL/30)
	}
	if ctx.Err() != nil {
		return // Release does it
	}
	c.mu.Lock()
	for _, p := range partitions {
		c.holds[p] = hold{}
	}
	c.notify()
	c.mu.Unlock()
	c.wake.Set()
}

// takeBack makes this node own partitions again whose release Consul has rejected: no other node can work them. It reports
// false if this node is leaving, or has lost the session.
func (c *Consul) takeBack(partitions []int, session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != working || c.session != session {
		return false
	}
	for _, p := range partitions {
		c.holds[p].state = held
	}
	c.owned.take(partitions, nil)
	return true
}

// sessionLives reports whether locks of a session may still have to be released.
func (c *Consul) sessionLives(session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return session != "" && session == c.session && c.clock().since(c.last) < c.cfg.TTL
}

// notify wakes Leave after holds have ended. The caller holds mu.
func (c *Consul) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}
