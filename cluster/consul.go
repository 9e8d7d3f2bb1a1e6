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
}

// ConsulConfig is the configuration of a Consul.
type ConsulConfig struct {
	Node    string // this node's name; no other live node may have it
	Address string // where other nodes reach its HTTP API (host:port, or a URL); see SetAddress
	Layout  sharding.Layout
	Consul  *api.Config
	// Prefix is the name of the service and of the keys' folder. Defaults to "toc".
	Prefix string
	// TTL is the time after its last heartbeat at which a node counts as dead. Defaults to 3 s.
	TTL time.Duration
	// KeepOnLoss keeps this node's partitions while Consul does not answer. Two nodes may then work on one
	// partition; without it no node does.
	KeepOnLoss bool
	// Locker keeps others out of this cluster's databases: single nodes and other clusters. Nil: nothing does.
	Locker Locker
	// Prepare makes a database ready for use. It is called again after the database was unreachable.
	Prepare func(ctx context.Context, database int) error
	// Drain calls idle for each of these partitions, which this node owns no longer, as soon as none of its
	// tasks runs or waits here. It returns after the last one, or when ctx ends. idle may be called from many
	// goroutines.
	Drain func(ctx context.Context, partitions []int, idle func(partition int))
	// DrainFor is the maximum time of a hand-over; then the locks are released anyway. Defaults to 30 s.
	DrainFor time.Duration
	// Unreachable lists the databases that this node cannot reach now. It is called once a second.
	Unreachable func() []int
	// Died is called when locks of another node became free without a hand-over: its runs may be incomplete. It
	// must not block.
	Died func()
	// Worker receives the worker number for job_ids, before Acquire returns and at each change. The heartbeat
	// waits for it. While the lease on the number is lost the number stays: it is the last one that another
	// node would choose.
	Worker func(n int)
	Logger *slog.Logger
}

func (c ConsulConfig) withDefaults() ConsulConfig {
	c.Prefix = cmp.Or(c.Prefix, "toc")
	c.TTL = cmp.Or(c.TTL, 3*time.Second)
	c.DrainFor = cmp.Or(c.DrainFor, 30*time.Second)
	return c
}

// Consul is a node of a cluster that is coordinated by Consul. Its methods may be called concurrently, except
// for the life cycle: SetAddress, Acquire, Run, Release in this order, and Leave during Run.
type Consul struct {
	cfg       ConsulConfig
	owned     *Ownership
	clock     func() instant
	instance  uint64 // of this process, unique; never 0
	service   string // its id in Consul
	client    *api.Client
	clientErr error // why there is no client
	web       *http.Client

	wake      chan struct{} // wakes decideAll
	beatNow   chan struct{} // asks for a heartbeat now
	stopBeats func()        // ends the heartbeat and waits for it; nil: it does not run

	// For the heartbeat alone.
	published  *registration // what the agent knows of this node; nil: unknown
	opening    string        // a session that is not complete yet
	nameDenied bool          // the log has that another process has this name

	claims []store.Lock // by database; each for its own goroutine alone

	mu                  sync.Mutex
	clusterID           string        // random, kept in Consul
	changed             chan struct{} // closed and renewed when a hold ends
	phase               phase
	session             string // "": none
	opened              instant
	worker              int // −1: none yet
	last                instant
	lost                bool // the last heartbeat is too old
	lostWhy             error
	databases           []databaseState
	unreachable         []int
	nodes               []peer          // from the watch; nil: no answer yet
	registrationAltered bool            // this node's registration is not what it wrote
	dead                map[uint64]bool // instances whose death was reported
	locks               []lock          // by partition, from the watch; nil: no answer yet
	locksAt             uint64          // the index of that answer
	holds               []hold          // by partition
	plan                plan
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
	c := &Consul{
		cfg:       cfg,
		owned:     NewOwnership(cfg.Layout.Partitions),
		clock:     now,
		instance:  newInstance(),
		wake:      make(chan struct{}, 1),
		beatNow:   make(chan struct{}, 1),
		changed:   make(chan struct{}),
		worker:    -1,
		databases: make([]databaseState, cfg.Layout.Databases),
		claims:    make([]store.Lock, cfg.Layout.Databases),
		holds:     make([]hold, cfg.Layout.Partitions),
	}
	c.owned.expire(0)
	c.service = fmt.Sprintf("%s-%s-%016x", cfg.Prefix, cfg.Node, c.instance)
	if cfg.Consul == nil {
		cfg.Consul = &api.Config{}
	}
	conf := *cfg.Consul
	c.client, c.clientErr = api.NewClient(&conf)
	if c.web = conf.HttpClient; c.web != nil {
		if t, ok := c.web.Transport.(*http.Transport); ok {
			c.web.Transport = httppool.New(t)
		}
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

func (c *Consul) validate() error {
	switch {
	case c.clientErr != nil:
		return fmt.Errorf("cluster.consul: %w", c.clientErr)
	case !plainName.MatchString(c.cfg.Node):
		return fmt.Errorf("node.name: %q may have letters, digits, '.', '_' and '-' only", c.cfg.Node)
	case !plainName.MatchString(c.cfg.Prefix):
		return fmt.Errorf("cluster.consul.prefix: %q may have letters, digits, '.', '_' and '-' only", c.cfg.Prefix)
	case c.cfg.TTL < time.Second:
		return fmt.Errorf("cluster.consul.ttl: %s is less than 1s", c.cfg.TTL)
	}
	return c.cfg.Layout.Validate()
}

// Acquire registers this node: layout, service, session, name and worker number. The node owns nothing yet.
// Acquire waits up to ten TTLs for a Consul that does not answer, and refuses a wrong configuration at once. It
// treats databases as Single does.
func (c *Consul) Acquire(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	err := c.join(ctx)
	if err == nil {
		c.startBeats(ctx)
		err = c.prepareAll(ctx)
	}
	if err != nil {
		c.Release()
	}
	return err
}

func (c *Consul) join(ctx context.Context) error {
	began := time.Now()
	var denied, warned time.Time
	for attempt := 1; ; attempt++ {
		var err error
		for _, step := range []func(context.Context) error{c.checkLayout, c.ensureID, c.beat} {
			if err = step(ctx); err != nil {
				break
			}
		}
		switch {
		case err == nil:
			c.sweepNames(ctx)
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("join the cluster: %w", ctx.Err())
		case errors.As(err, new(*nameTakenError)):
			// A predecessor that died stays in Consul for up to a TTL.
			if denied.IsZero() {
				denied = time.Now()
			}
			if time.Since(denied) > c.cfg.TTL+2*time.Second {
				return err
			}
		case !unreachable(err):
			return err
		case time.Since(began) > 10*c.cfg.TTL && attempt >= 5: // the process may have been paused
			return fmt.Errorf("join the cluster: consul has not been of use for %s; see cluster.consul.address: %w",
				10*c.cfg.TTL, err)
		}
		if time.Since(began) > time.Second && time.Since(warned) > 10*time.Second {
			warned = time.Now()
			c.cfg.Logger.Warn("waiting for consul", "timeout", 10*c.cfg.TTL, "error", err)
		}
		_ = wait.For(ctx, c.cfg.TTL/30)
	}
}

// startBeats starts the heartbeat, which continues until Release: the session must also live before and after
// Run.
func (c *Consul) startBeats(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.beatLoop(ctx)
	}()
	c.stopBeats = func() {
		cancel()
		<-done
	}
}

// Run watches the cluster, takes the partitions that are assigned to this node, and hands over the others,
// until ctx ends. The node keeps its partitions until Release.
func (c *Consul) Run(ctx context.Context) error {
	c.setPhase(working)
	var wg sync.WaitGroup
	wg.Go(func() { c.probe(ctx) })
	wg.Go(func() { c.watch(ctx, "nodes", c.askNodes) })
	wg.Go(func() { c.watch(ctx, "locks", c.askLocks) })
	wg.Go(func() { c.watch(ctx, "id", c.askID) })
	wg.Go(func() { c.decideAll(ctx) })
	wg.Wait()
	c.setPhase(leaving)
	return nil
}

func (c *Consul) setPhase(p phase) {
	c.mu.Lock()
	c.phase = p
	c.mu.Unlock()
	ring(c.beatNow)
	ring(c.wake)
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

// Release releases what is still held and signs off. It takes at most 2 s, whatever Consul does; the rest ends
// with the session. Run must have ended.
func (c *Consul) Release() {
	if c.stopBeats != nil {
		c.stopBeats()
		c.stopBeats = nil
	}
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

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// unreachable reports whether an error means that Consul is away or has no leader, and not that it refuses.
func unreachable(err error) bool {
	if status, is := errors.AsType[api.StatusError](err); is {
		return status.Code >= 500 || status.Code == http.StatusTooManyRequests
	}
	return err != nil && !errors.As(err, new(*layoutError)) && !errors.As(err, new(*nameTakenError))
}
