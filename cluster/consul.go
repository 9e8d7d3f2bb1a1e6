package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

// Member is a node of the cluster.
type Member struct {
	Name       string
	Address    string // where its HTTP API is reached (host:port, or a URL)
	Partitions []int  // those whose locks it holds, ascending
	Session    string // its session in Consul, by which it holds them; "" if it holds none
	Instance   uint64 // differs at each start of its process
}

// MemberHost is a Host beside others.
type MemberHost interface {
	Host
	// Drain calls idle for each of these partitions, which this node owns no longer, as soon as none of its tasks runs or waits here. It
	// returns after the last one, or when ctx ends. idle may be called from many goroutines.
	Drain(ctx context.Context, partitions []int, idle func(partition int))
	// Unreachable lists the databases that this node cannot reach now. It is called once a second.
	Unreachable() []int
	// Died is called when locks of another node became free without a hand-over: its runs may be incomplete. It must not block.
	Died()
	// SetWorker receives the worker number for job_ids, before Acquire returns and at each change. The heartbeat waits for it. While the
	// lease on the number is lost the number stays: it is the last one that another node would choose.
	SetWorker(n int)
}

// ConsulConfig is the configuration of a Consul.
type ConsulConfig struct {
	Node    string // this node's name; no other live node may have it
	Address string // where other nodes reach its HTTP API (host:port, or a URL); see SetAddress
	Layout  sharding.Layout
	Consul  *api.Config
	// Token returns the ACL token. It is called for each request, so that a token that is replaced needs no restart.
	// After an error the last token stays in use. Nil: the token of Consul.
	Token func() (string, error)
	// Prefix is the name of the service and of the keys' folder. Defaults to "toc".
	Prefix string
	// TTL is the time after its last heartbeat at which a node counts as dead. Defaults to 3 s.
	TTL time.Duration
	// SessionTTL is the time after which Consul ends a session that is not renewed, even if it still takes the node
	// for healthy; Consul may take twice as long. Defaults to 10 s, the least that Consul takes, or to TTL if that is
	// more.
	SessionTTL time.Duration
	// KeepOnLoss keeps this node's partitions while Consul does not answer. Two nodes may then work on one
	// partition; without it no node does.
	KeepOnLoss bool
	// Locker keeps others out of this cluster's databases: single nodes and other clusters. Nil: nothing does.
	Locker Locker
	// DrainFor is the maximum time of a hand-over; then the locks are released anyway. Defaults to 30 s.
	DrainFor time.Duration
	Host     MemberHost
	Logger   *slog.Logger
}

func (c ConsulConfig) withDefaults() ConsulConfig {
	c.Prefix = cmp.Or(c.Prefix, "toc")
	c.TTL = cmp.Or(c.TTL, 3*time.Second)
	c.SessionTTL = cmp.Or(c.SessionTTL, max(minSessionTTL, c.TTL))
	c.DrainFor = cmp.Or(c.DrainFor, 30*time.Second)
	return c
}

// Consul is a node of a cluster that is coordinated by Consul. Its methods may be called concurrently, except
// for the life cycle: SetAddress, Acquire, Run, Release in this order, and Leave during Run.
type Consul struct {
	*node
	databases *databases
	owned     *Ownership
	beats     sync.WaitGroup // the heartbeat
	stopBeats func()

	// For the heartbeat alone.
	agent      agent
	opening    string // a session that is not complete yet
	nameDenied bool   // the log has that another process has this name

	// mu is taken before the locks of databases and owned. One lock covers the session and the holds: a partition is held only
	// by a session that lives, and by what the watches have read.
	mu sync.Mutex
	view
	changed      chan struct{} // closed and renewed when a hold ends
	phase        phase
	session      string        // "": none
	sessionTTL   time.Duration // of the next session; only the heartbeat changes it
	returned     instant
	worker       int // −1: none yet
	last         instant
	lost         bool // the last heartbeat is too old
	lostWhy      error
	nameLost     bool   // this node's name is not locked by its session
	refused      error  // why Consul refuses this node's writes; nil: it does not
	holds        []hold // by partition
	plan         plan
	idleSince    []instant // by partition: since when no living node works it; zero: one does
	shareIdle    bool      // no living node works any partition that is assigned to this node
	withoutSince instant   // since when this node has had none of its share; zero: it has some
}

// node is what the parts of a Consul share, and its requests to Consul. Only waits has state.
type node struct {
	waits
	cfg       ConsulConfig
	clock     func() instant
	instance  uint64 // of this process, unique; never 0
	service   string // its id in Consul
	client    *api.Client
	clientErr error // why there is no client
	web       *http.Client
	token     *tokenTransport // nil: the token does not change
	wake      wait.Signal     // wakes decideAll
	beatNow   wait.Signal     // asks for a heartbeat now
}

// phase is a step in the life of a node.
type phase int

const (
	joining phase = iota
	working
	leaving
)

// NewConsul makes the node. It does nothing before Acquire.
func NewConsul(cfg ConsulConfig) *Consul {
	cfg = cfg.withDefaults()
	n := &node{waits: waits{logger: cfg.Logger, host: cfg.Host, list: make(map[int]Wait)}, cfg: cfg, clock: now, instance: newInstance(),
		wake: wait.NewSignal(), beatNow: wait.NewSignal()}
	dbs := &databases{node: n, states: make([]databaseState, cfg.Layout.Databases), claims: make([]store.Lock, cfg.Layout.Databases)}
	c := &Consul{node: n, agent: agent{node: n, databases: dbs}, databases: dbs, view: view{node: n, dead: make(map[uint64]bool)},
		owned:     newOwnership(cfg.Layout.Partitions, 1, func(int) int { return 0 }),
		stopBeats: func() {}, changed: make(chan struct{}), worker: -1, sessionTTL: cfg.SessionTTL,
		holds: make([]hold, cfg.Layout.Partitions), idleSince: make([]instant, cfg.Layout.Partitions)}
	c.owned.expire(0)
	c.service = fmt.Sprintf("%s-%s-%016x", cfg.Prefix, cfg.Node, c.instance)
	conf := *cmp.Or(cfg.Consul, &api.Config{})
	c.client, c.clientErr = api.NewClient(&conf)
	if c.web = conf.HttpClient; c.web != nil {
		if t, ok := c.web.Transport.(*http.Transport); ok {
			c.web.Transport = httppool.New(t)
		}
	}
	if cfg.Token != nil && c.clientErr == nil {
		c.token = &tokenTransport{base: cmp.Or[http.RoundTripper](c.web.Transport, http.DefaultTransport), read: cfg.Token, logger: cfg.Logger}
		c.web.Transport = c.token
	}
	return c
}

// randomID returns a unique name.
func randomID() string { return fmt.Sprintf("%016x", newInstance()) }

func newInstance() uint64 { return 1 + rand.Uint64N(math.MaxUint64) }

// The options of calls of Consul.

func reading(ctx context.Context) *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }
func writing(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }
func consistent(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
}

// Ownership is the set of this node's partitions.
func (c *Consul) Ownership() *Ownership { return c.owned }

// SetAddress sets where other nodes reach this node's HTTP API. Call it before Acquire.
func (c *Consul) SetAddress(addr string) { c.cfg.Address = addr }

// plainName matches names that may be part of a service's id, a key and a URL.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func (n *node) validate() error {
	switch {
	case n.clientErr != nil:
		return fmt.Errorf("cluster.consul: %w", n.clientErr)
	case !plainName.MatchString(n.cfg.Node):
		return fmt.Errorf("node.name: %q may have letters, digits, '.', '_' and '-' only", n.cfg.Node)
	case !plainName.MatchString(n.cfg.Prefix):
		return fmt.Errorf("cluster.consul.prefix: %q may have letters, digits, '.', '_' and '-' only", n.cfg.Prefix)
	case n.cfg.TTL < time.Second:
		return fmt.Errorf("cluster.consul.ttl: %s is less than 1s", n.cfg.TTL)
	case n.cfg.SessionTTL < n.cfg.TTL:
		return fmt.Errorf("a session of %s would end before a node of cluster.consul.ttl %s counts as dead", n.cfg.SessionTTL, n.cfg.TTL)
	}
	return n.cfg.Layout.Validate()
}

// Acquire registers this node: layout, service, session, name and worker number. The node owns nothing yet.
// Acquire waits for a Consul that does not answer or refuses this node, and refuses a wrong configuration at once. It treats
// databases as Single does.
func (c *Consul) Acquire(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	err := c.joinLooking(ctx)
	if err == nil {
		// The heartbeat continues until Release: the session must also live before and after Run.
		var beating context.Context
		beating, c.stopBeats = context.WithCancel(context.WithoutCancel(ctx))
		c.beats.Go(func() { c.beatLoop(beating) })
		err = c.databases.prepareAll(ctx)
	}
	if err != nil {
		c.Release()
		return err
	}
	c.over()
	return nil
}

// joinLooking joins the cluster. While it waits for Consul, it looks at the databases.
func (c *Consul) joinLooking(ctx context.Context) error {
	joining, unfit := context.WithCancelCause(ctx)
	defer unfit(nil)
	looking, stop := context.WithCancel(ctx)
	var look sync.WaitGroup
	defer look.Wait()
	defer stop()
	err := c.join(joining, func() {
		look.Go(func() {
			if err := c.look(looking, c.cfg.Layout.Databases, func(d int) error { return c.cfg.Host.Prepare(looking, d) }); err != nil {
				unfit(err)
			}
		})
	})
	if cause := context.Cause(joining); err != nil && ctx.Err() == nil && cause != nil {
		return cause
	}
	return err
}

// join registers this node. It calls waiting once if Consul does not answer at once.
func (c *Consul) join(ctx context.Context, waiting func()) error {
	var denied time.Time
	pauses := wait.Backoff{First: c.cfg.TTL / 30, Most: maxPause}
	for {
		var err error
		for _, step := range []func(context.Context) error{c.checkLayout, c.databases.ensureID, c.beat} {
			if err = step(ctx); err != nil {
				break
			}
		}
		if err != nil && ctx.Err() != nil {
			return c.ended(ctx)
		}
		if isRefused(err) {
			err = fmt.Errorf("%w%s", err, tokenAdvice)
		}
		c.record(ofConsul, err)
		switch {
		case err == nil:
			c.sweepNames(ctx)
			return nil
		case errors.As(err, new(*layoutError)):
			return err
		case errors.As(err, new(*nameTakenError)):
			// A predecessor that died stays in Consul until its session ends.
			pauses.Reset()
			if denied.IsZero() {
				denied = time.Now()
			}
			if time.Since(denied) > c.SessionEndsWithin()+2*time.Second {
				return err
			}
		default:
			if waiting != nil {
				waiting()
				waiting = nil
			}
			c.report()
		}
		_ = pauses.Wait(ctx)
	}
}

// Run watches the cluster, takes the partitions that are assigned to this node, and hands over the others,
// until ctx ends. The node keeps its partitions until Release.
func (c *Consul) Run(ctx context.Context) error {
	c.setPhase(working)
	var wg sync.WaitGroup
	wg.Go(func() { eachDatabase(c.cfg.Layout.Databases, func(d int) { c.databases.superviseDatabase(ctx, d) }) })
	wg.Go(func() { c.watch(ctx, "nodes", c.askNodes) })
	wg.Go(func() { c.watch(ctx, "names", c.askNames) })
	wg.Go(func() { c.watch(ctx, "locks", c.askLocks) })
	wg.Go(func() { c.watch(ctx, "id", c.databases.askID) })
	wg.Go(func() { c.decideAll(ctx) })
	wg.Wait()
	c.setPhase(leaving)
	return nil
}

func (c *Consul) setPhase(p phase) {
	c.mu.Lock()
	c.phase = p
	c.mu.Unlock()
	c.beatNow.Set()
	c.wake.Set()
}

// Leave hands all partitions over and takes no new ones. The other nodes see this at once. Each group is
// released as soon as its work has ended. Leave returns when no lock is held any more, or when ctx ends. Run
// must be running until then.
func (c *Consul) Leave(ctx context.Context) error {
	c.setPhase(leaving)
	for {
		c.mu.Lock()
		changed, held := c.changed, 0
		for _, h := range c.holds {
			if h.state != none {
				held++
			}
		}
		c.mu.Unlock()
		if held == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("leave the cluster: %d partitions not handed over: %w", held, ctx.Err())
		}
	}
}

// Release releases the locks that are still held and signs off. It takes at most 2 s, even if Consul does not answer; the
// rest ends with the session. Run must have ended.
func (c *Consul) Release() {
	c.stopBeats()
	c.beats.Wait()
	if c.client == nil {
		return
	}
	defer c.web.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := c.signOff(ctx); err != nil {
		c.cfg.Logger.Warn("not signed off cleanly; consul finds out by itself", "error", err)
	}
}

// unreachable reports whether an error means that Consul is away or has no leader, and not that it refuses.
func unreachable(err error) bool {
	if status, is := errors.AsType[api.StatusError](err); is {
		return status.Code >= 500 || status.Code == http.StatusTooManyRequests
	}
	return err != nil && !errors.As(err, new(*layoutError)) && !errors.As(err, new(*nameTakenError)) &&
		!errors.As(err, new(*refusedError)) && !errors.As(err, new(*tokenError))
}

// refusedError: the ACL token of this node lacks a right.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "consul refuses it: " + e.reason }

// isRefused reports whether an error means that the ACL token lacks a right, or is none.
func isRefused(err error) bool {
	status, is := errors.AsType[api.StatusError](err)
	return is && status.Code == http.StatusForbidden || errors.As(err, new(*refusedError))
}
