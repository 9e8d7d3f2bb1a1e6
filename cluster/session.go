package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/sharding"
)

// minSessionTTL is the least TTL that Consul takes for a session, unless its session_ttl_min says another.
const minSessionTTL = 10 * time.Second

// SessionEndsWithin is the longest time for which Consul keeps a node's session after its last renewal: twice its TTL.
func (c *Consul) SessionEndsWithin() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return 2 * c.sessionTTL
}

// nameTakenError: another process has this node's name, or had it when it died.
type nameTakenError struct {
	node, cluster, session string
	within                 time.Duration
}

func (e *nameTakenError) Error() string {
	return fmt.Sprintf("node.name %q is in use: another process of the cluster %q has it; give each node a name of its own. "+
		"The session of a process that has died ends within %s of its last renewal, or at once by PUT /v1/session/destroy/%s at Consul",
		e.node, e.cluster, e.within, e.session)
}

var errSessionEnding = errors.New("lock the node's name: the session before has not quite ended")

// openSession makes a session that holds this node's name and a worker number. After an error the next call
// continues where it stopped.
func (c *Consul) openSession(ctx context.Context) error {
	if c.opening == "" {
		id, _, err := c.client.Session().Create(&api.SessionEntry{
			Name:          c.service,
			Behavior:      api.SessionBehaviorRelease,
			TTL:           c.sessionTTL.String(),
			LockDelay:     time.Millisecond, // 0 would mean the default, 15 s
			NodeChecks:    []string{"serfHealth"},
			ServiceChecks: []api.ServiceCheck{{ID: c.aliveCheck()}},
		}, writing(ctx))
		if err != nil {
			if least := leastSessionTTL(err); least > c.sessionTTL {
				c.cfg.Logger.Warn("consul's session_ttl_min is longer than this node's session; using it", "session_ttl", least)
				c.mu.Lock()
				c.sessionTTL = least
				c.mu.Unlock()
			}
			return fmt.Errorf("open a session: %w", err)
		}
		c.opening = id
	}
	had, err := c.lockKey(ctx, c.nameKey(), c.service, c.opening)
	if err != nil {
		return c.openFailed(fmt.Errorf("lock the node's name: %w", err))
	}
	if !had {
		return c.whoHasName(ctx)
	}
	worker, err := c.leaseWorker(ctx)
	if err != nil {
		return c.openFailed(fmt.Errorf("lease a worker number: %w", err))
	}

	c.mu.Lock()
	before := c.worker
	c.session, c.worker, c.opening = c.opening, worker, ""
	c.returned = c.clock()
	c.mu.Unlock()
	if worker != before {
		c.cfg.Host.SetWorker(worker)
	}
	c.cfg.Logger.Info("consul session opened", "session", c.session, "worker", worker)
	c.nameDenied = false
	c.wake.Set()
	return nil
}

// openFailed makes the next attempt start afresh if the session has ended.
func (c *Consul) openFailed(err error) error {
	if strings.Contains(err.Error(), "invalid session") {
		c.opening = ""
	}
	return err
}

// sessionTTLRange is in Consul's answer to a session whose TTL it does not take: its least and its greatest.
var sessionTTLRange = regexp.MustCompile(`Invalid Session TTL .* between \[([0-9hms.]+)=`)

// leastSessionTTL returns the least TTL of sessions that Consul names in an error; 0: it names none.
func leastSessionTTL(err error) time.Duration {
	found := sessionTTLRange.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	least, _ := time.ParseDuration(found[1])
	return least
}

// renewSession renews the session and reads it from the servers, consistently: a leader that is about to find out that it
// is none would renew it, too. over says so if it has ended.
func (n *node) renewSession(ctx context.Context, session string) (over string, err error) {
	var entry *api.SessionEntry
	var read error
	var both sync.WaitGroup
	both.Go(func() { entry, _, read = n.client.Session().Info(session, consistent(ctx)) })
	// The client's own call hides the status of an error.
	_, err = n.client.Raw().Write("/v1/session/renew/"+session, nil, nil, writing(ctx))
	both.Wait()
	status, is := errors.AsType[api.StatusError](err)
	switch {
	case is && status.Code == http.StatusNotFound, read == nil && entry == nil:
		return "consul has ended it", nil
	case err != nil:
		return "", fmt.Errorf("renew the session: %w", err)
	case read != nil:
		return "", fmt.Errorf("read the session: %w", read)
	}
	return "", nil
}

// relock locks this node's name and its worker number again, which changes nothing if the session holds them. had
// is false if another process has one of them. It also shows whether Consul takes this node's writes.
func (c *Consul) relock(ctx context.Context, session string) (had bool, err error) {
	had, err = c.lockKey(ctx, c.nameKey(), c.service, session)
	if err == nil && had {
		had, err = c.lockKey(ctx, c.workerKey(c.worker), c.cfg.Node, session)
	}
	if err != nil {
		return false, fmt.Errorf("lock the node's name: %w", err)
	}
	return had, nil
}

func (n *node) lockKey(ctx context.Context, key, value, session string) (bool, error) {
	had, _, err := n.client.KV().Acquire(&api.KVPair{Key: key, Value: []byte(value), Session: session}, writing(ctx))
	return had, err
}

func (n *node) workerDir() string           { return n.cfg.Prefix + "/workers/" }
func (n *node) workerKey(worker int) string { return n.workerDir() + strconv.Itoa(worker) }

func (n *node) nameDir() string { return n.cfg.Prefix + "/nodes/" }
func (n *node) nameKey() string { return n.nameDir() + n.cfg.Node }

// dropName deletes the key of this node's name if the session holds it: names that are made up for each process
// would fill Consul.
func (n *node) dropName(ctx context.Context, session string) error {
	_, _, _, err := n.client.Txn().Txn(api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVCheckSession, Key: n.nameKey(), Session: session}},
		{KV: &api.KVTxnOp{Verb: api.KVDelete, Key: n.nameKey()}},
	}, reading(ctx))
	if err != nil {
		return fmt.Errorf("give the node's name back: %w", err)
	}
	return nil
}

// sweepNames deletes names without a living process. Nothing depends on it.
func (n *node) sweepNames(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.TTL)
	defer cancel()
	pairs, _, err := n.client.KV().List(n.nameDir(), reading(ctx))
	for _, pair := range pairs {
		if pair.Session == "" && err == nil { // a lock meanwhile changes the index
			_, _, err = n.client.KV().DeleteCAS(pair, writing(ctx))
		}
	}
	if err != nil {
		n.cfg.Logger.Debug("names of dead nodes not swept", "error", err)
	}
}

// whoHasName explains why this node's name could not be locked.
func (c *Consul) whoHasName(ctx context.Context) error {
	pair, _, err := c.client.KV().Get(c.nameKey(), reading(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("lock the node's name: %w", err)
	case pair == nil || pair.Session == "":
		return errSessionEnding
	case string(pair.Value) == c.service:
		// The old session could not be ended when it was given up. While our check passes it would live for
		// ever.
		if pair.Session != c.opening {
			err = c.destroy(ctx, pair.Session)
		}
		return errors.Join(errSessionEnding, err)
	}
	return &nameTakenError{c.cfg.Node, c.cfg.Prefix, pair.Session, c.SessionEndsWithin()}
}

// leaseWorker locks a worker number: the one that this process had, else an unused one, else the one that has
// been free for longest. This keeps job_ids unique even if the previous holder has not noticed yet that it lost
// the number.
func (c *Consul) leaseWorker(ctx context.Context) (int, error) {
	dir := c.workerDir()
	pairs, _, err := c.client.KV().List(dir, consistent(ctx))
	if err != nil {
		return 0, err
	}
	for _, n := range workerOrder(pairs, dir, c.worker, c.opening) {
		had, err := c.lockKey(ctx, c.workerKey(n), c.cfg.Node, c.opening)
		if err != nil || had {
			return n, err
		}
	}
	return 0, fmt.Errorf("all %d are taken", sharding.MaxWorker+1)
}

// workerOrder lists the free worker numbers, best first. own is the preferred one; negative: none. A number
// that the session already holds, because an answer was lost, comes first.
func workerOrder(pairs api.KVPairs, dir string, own int, session string) []int {
	known := make(map[int]*api.KVPair, len(pairs))
	for _, p := range pairs {
		if n, err := strconv.Atoi(strings.TrimPrefix(p.Key, dir)); err == nil {
			known[n] = p
			if p.Session == session {
				own = n
			}
		}
	}
	var fresh, used []int
	for n := range sharding.MaxWorker + 1 {
		switch p := known[n]; {
		case n == own:
		case p == nil:
			fresh = append(fresh, n)
		case p.Session == "":
			used = append(used, n)
		}
	}
	slices.SortFunc(used, func(a, b int) int { return cmp.Compare(known[a].ModifyIndex, known[b].ModifyIndex) })
	order := append(fresh, used...)
	if own >= 0 {
		order = slices.Insert(order, 0, own)
	}
	return order
}

// loseSession gives up the session and all that depends on it. With KeepOnLoss the node keeps its partitions,
// and the next session locks them again.
func (c *Consul) loseSession(ctx context.Context, why string) {
	c.mu.Lock()
	session := c.session
	c.session, c.nameLost, c.refused = "", false, nil
	c.mu.Unlock()
	c.cfg.Logger.Warn("consul session lost", "session", session, "reason", why, "partitions_kept", c.cfg.KeepOnLoss)
	if c.cfg.KeepOnLoss {
		c.owned.renew(0, c.clock().add(c.leaseTime()))
	} else {
		c.dropAll()
	}
	// In most cases the session has already ended. Locks that this call releases look as if their holder had
	// died, so the others wait until it has certainly stopped.
	if err := c.destroy(ctx, session); err != nil {
		c.cfg.Logger.Warn("consul session not ended; consul ends it by itself", "session", session, "error", err)
	}
}

// dropAll ends the lease and the ownership of all partitions.
func (c *Consul) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned.expire(0)
	var all []int
	for p := range c.holds {
		if c.holds[p].state == held {
			c.holds[p] = hold{}
			all = append(all, p)
		}
	}
	c.owned.drop(all)
	c.notify()
}

func (n *node) destroy(ctx context.Context, session string) error {
	if session == "" {
		return nil
	}
	if _, err := n.client.Session().Destroy(session, writing(ctx)); err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// signOff releases all locks, ends the session and removes the node from the service.
func (c *Consul) signOff(ctx context.Context) error {
	c.dropAll()
	c.mu.Lock()
	session := cmp.Or(c.session, c.opening)
	c.session, c.opening = "", ""
	locked := c.locked(func(l lock) bool { return session != "" && l.session == session })
	for p := range c.holds {
		if c.holds[p].state != none && c.holds[p].session == session {
			locked = append(locked, p)
		}
		c.holds[p] = hold{}
	}
	c.mu.Unlock()
	var errs []error
	if session != "" {
		// Released one by one they count as handed over; with the session they would look as if their holder
		// had died.
		slices.Sort(locked)
		errs = append(errs, c.unlock(ctx, slices.Compact(locked), session, c.owned.isUnsettled), c.dropName(ctx, session),
			c.destroy(ctx, session))
	}
	if c.agent.published != nil {
		errs = append(errs, c.agent.deregister(ctx))
	}
	return errors.Join(errs...)
}
