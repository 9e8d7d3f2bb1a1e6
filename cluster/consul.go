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

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

// Member is a node of the cluster.
type Member struct {
	Name       string
	Address    string // where its HTTP API is reached (host:port, or a URL)
	Partitions []int  // whose locks it holds, ascending
}

// ConsulConfig is what a Consul works with.
type ConsulConfig struct {
	Node    string // this node's name; no other live node may have it
	Address string // where other nodes reach its HTTP API (host:port, or a URL); see SetAddress
	Layout  sharding.Layout
	Consul  *api.Config
	// Prefix is the name of the service and of the keys' folder. Defaults to "toc".
	Prefix string
	// TTL is how long after its last heartbeat a node counts as dead. Defaults to 3 s.
	TTL time.Duration
	// KeepOnLoss keeps this node's partitions while Consul does not answer. Two
	// nodes may then work one partition; without it none does.
	KeepOnLoss bool
	// Locker keeps others than this cluster away from its databases: a single node, and
	// another cluster. Nil: nothing does.
	Locker Locker
	// Prepare makes sure that a database is fit for use. It is asked again after a
	// database was unable.
	Prepare func(ctx context.Context, database int) error
	// Drain tells idle of each of these partitions, which are owned no longer, as soon
	// as nothing of it is in hand. It returns when it has told of all, or when ctx
	// ends. idle may be called from many goroutines.
	Drain func(ctx context.Context, partitions []int, idle func(partition int))
	// DrainFor is the patience with one hand-over; then the locks are released
	// anyway. Defaults to 30 s.
	DrainFor time.Duration
	// Unable lists the databases that this node cannot reach now. It is asked once a second.
	Unreachable func() []int
	// Died is called when another node's locks were freed that it did not hand over:
	// what it was doing may be half done. It must not block.
	Died func()
	// Worker is told the worker number for job_ids, before Acquire returns and
	// whenever it changes. The heartbeat waits for it. While the lease on it is lost it stays: it is the last one
	// that another node would choose.
	Worker func(n int)
	Logger *slog.Logger
}

func (c ConsulConfig) withDefaults() ConsulConfig {
	c.Prefix = cmp.Or(c.Prefix, "toc")
	c.TTL = cmp.Or(c.TTL, 3*time.Second)
	c.DrainFor = cmp.Or(c.DrainFor, 30*time.Second)
	return c
}

// Consul is a node of a cluster that meets in Consul. Its methods may be called
// concurrently, except for the life cycle: SetAddress, Acquire, Run, Release in
// this order, and Leave during Run.
type Consul struct {
	cfg       ConsulConfig
	owned     *Ownership
	clock     func() instant
	instance  uint64 // this process among all; never 0
	service   string // its id in Consul
	client    *api.Client
	clientErr error // why there is no client
	web       *http.Client

	wake      chan struct{} // there may be something to decide
	beatNow   chan struct{} // the heartbeat has something to tell
	stopBeats func()        // ends the heartbeat and waits for it; nil: there is none

	// Of the heartbeat alone.
	published  *registration // what the agent knows of this node; nil: nothing for sure
	opening    string        // a session that has not all it needs yet
	nameDenied bool          // that another process has our name was logged

	claims []store.Lock // by database; each of the goroutine that looks after it

	mu                  sync.Mutex
	clusterID           string        // random, kept in Consul
	changed             chan struct{} // closed and renewed when a hold ends
	phase               phase
	session             string // "": none
	opened              instant
	worker              int // −1: none yet
	last                instant
	lost                bool // last is too long ago
	lostWhy             error
	databases           []databaseState
	unreachable         []int
	nodes               []peer          // by the watch; nil: it has not answered yet
	registrationAltered bool            // this node's registration is not what it wrote
	dead                map[uint64]bool // instances whose death was told
	locks               []lock          // by partition, as the watch knows them; nil: it has not answered yet
	locksAt             uint64          // the index of that answer
	holds               []hold          // by partition
	plan                plan
}

// phase is where a node stands in its life.
type phase int

const (
	joining phase = iota
	working
	leaving
)

// NewConsul makes the node; it does nothing before Acquire.
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
	c.web = conf.HttpClient
	return c
}

// randomID is a name that nothing else has.
func randomID() string { return fmt.Sprintf("%016x", newInstance()) }

func newInstance() uint64 { return 1 + rand.Uint64N(math.MaxUint64) }

// The options of calls of Consul.

func reading(ctx context.Context) *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }
func writing(ctx context.Context) *api.WriteOptions { return (&api.WriteOptions{}).WithContext(ctx) }
func consistent(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
}

// Ownership is what this node owns.
func (c *Consul) Ownership() *Ownership { return c.owned }

// SetAddress says where other nodes reach this node's HTTP API. Call it before
// Acquire.
func (c *Consul) SetAddress(addr string) { c.cfg.Address = addr }

// plainName is what can be part of a service's id, a key and a URL alike.
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

// Acquire makes this node known: layout, service, session, name and worker
// number. It owns nothing yet. A Consul that does not answer is waited for, up to
// ten TTLs; what is wrong with the configuration is refused at once. Databases
// are judged as Single judges them.
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
			// A predecessor that died lives on in Consul for up to a TTL.
			if denied.IsZero() {
				denied = time.Now()
			}
			if time.Since(denied) > c.cfg.TTL+2*time.Second {
				return err
			}
		case !unreachable(err):
			return err
		case time.Since(began) > 10*c.cfg.TTL && attempt >= 5: // a process may be paused
			return fmt.Errorf("join the cluster: consul has not been of use for %s; see cluster.consul.address: %w",
				10*c.cfg.TTL, err)
		}
		if time.Since(began) > time.Second && time.Since(warned) > 10*time.Second {
			warned = time.Now()
			c.cfg.Logger.Warn("waiting for consul", "patience", 10*c.cfg.TTL, "error", err)
		}
		_ = wait.For(ctx, c.cfg.TTL/30)
	}
}

// startBeats starts the heartbeat, which goes on until Release: a session must
// live through what happens before and after Run.
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

// Run watches the cluster, takes the partitions that are this node's to take, and
// hands over those that are not, until ctx ends. What is owned then stays so until
// Release.
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

// Leave hands all partitions over, each group as soon as nothing of it is in
// hand, and takes no new ones; the other nodes know at once. It returns when no
// lock is held any more, or when ctx ends. Run must be running, and go on.
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

// Release gives up what is still held and signs off. It takes no longer than 2 s,
// whatever Consul does; what is not released then ends with the session. Run must
// have ended.
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

// unreachable tells whether an error says that Consul is away or has no leader,
// rather than that it refuses.
func unreachable(err error) bool {
	if status, is := errors.AsType[api.StatusError](err); is {
		return status.Code >= 500 || status.Code == http.StatusTooManyRequests
	}
	return err != nil && !errors.As(err, new(*layoutError)) && !errors.As(err, new(*nameTakenError))
}
