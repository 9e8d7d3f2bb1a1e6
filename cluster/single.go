package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

// Locker locks databases; see store.Store.Lock.
type Locker interface {
	Lock(ctx context.Context, database int, holder store.Holder) (store.Lock, error)
}

// Host is the node that works the partitions.
type Host interface {
	// Prepare makes a database ready for use, before it is locked. It is called again after the database was unreachable.
	Prepare(ctx context.Context, database int) error
	// BeginWaiting is called once if Acquire begins to wait for Consul or for databases.
	BeginWaiting()
}

// SingleConfig is the configuration of a Single.
type SingleConfig struct {
	Node   string // this node's name, which a refused process shows
	Layout sharding.Layout
	Locker Locker
	Host   Host
	// Local says that the databases are files of this machine: Acquire does not wait for files that cannot be opened.
	Local bool
	// CheckEvery is the time between two checks of a lock. Defaults to 1 s.
	CheckEvery time.Duration
	Logger     *slog.Logger
}

// Single is a cluster of one node. Each database is independent: its partitions depend on a lease that each
// good check of its lock renews.
type Single struct {
	waits
	cfg     SingleConfig
	id      string // of this process, unique
	address atomic.Pointer[string]
	owned   *Ownership
	locks   []store.Lock // by database; nil: not held
}

// NewSingle makes the cluster. It owns nothing before Acquire.
func NewSingle(cfg SingleConfig) *Single {
	cfg.CheckEvery = cmp.Or(cfg.CheckEvery, time.Second)
	s := &Single{
		waits: waits{logger: cfg.Logger, host: cfg.Host, list: make(map[int]Wait)},
		cfg:   cfg,
		id:    randomID(),
		owned: newOwnership(cfg.Layout.Partitions, cfg.Layout.Databases, cfg.Layout.PartitionDatabase),
		locks: make([]store.Lock, cfg.Layout.Databases),
	}
	for d := range s.locks {
		s.owned.expire(d)
	}
	s.SetAddress("")
	return s
}

// Ownership is the set of this node's partitions.
func (s *Single) Ownership() *Ownership { return s.owned }

// SetAddress sets where this node's HTTP API is reached.
func (s *Single) SetAddress(addr string) { s.address.Store(&addr) }

// Members is this node.
func (s *Single) Members() []Member { return []Member{s.member()} }

func (s *Single) member() Member {
	return Member{Name: s.cfg.Node, Address: *s.address.Load(), Partitions: s.owned.Owned()}
}

// Owner is this node if it owns the partition.
func (s *Single) Owner(partition int) (Member, bool) {
	if !s.owned.Owns(partition) {
		return Member{}, false
	}
	return s.member(), true
}

// Lost is always empty: the store reports faults of databases itself.
func (s *Single) Lost() string { return "" }

// Leave does nothing: there is no other node.
func (s *Single) Leave(context.Context) error { return nil }

// Acquire locks all databases that can be used. It waits until there is one, and Run retries the others. It fails and holds
// nothing if one is held by another process or is not this store's, and when ctx ends (WaitError).
func (s *Single) Acquire(ctx context.Context) error {
	if err := s.takeAll(ctx, len(s.locks), s.cfg.Local, func(d int) error { return s.acquire(ctx, d) }); err != nil {
		s.Release()
		return err
	}
	s.over()
	for _, w := range s.Waits() {
		s.cfg.Logger.Warn("database not usable; its partitions wait", "database", w.Database, "error", w.Err)
	}
	return nil
}

// eachDatabase runs f for every database at once and waits for all.
func eachDatabase(databases int, f func(database int)) {
	var wg sync.WaitGroup
	for d := range databases {
		wg.Go(func() { f(d) })
	}
	wg.Wait()
}

func (s *Single) acquire(ctx context.Context, database int) error {
	if err := s.cfg.Host.Prepare(ctx, database); err != nil {
		return err
	}
	lock, err := s.cfg.Locker.Lock(ctx, database, store.Holder{Kind: store.HolderSingle, ID: s.id, Name: s.cfg.Node})
	if err != nil {
		return err
	}
	s.locks[database] = lock
	if err := s.renew(ctx, database); err != nil {
		s.locks[database] = nil
		return &store.DatabaseError{Database: database, Op: "check the lock", Err: err}
	}
	s.owned.take(s.partitions(database), func(int) bool { return lock.TakenUncleanly() })
	return nil
}

// renew checks a lock. If it is held, that extends the lease.
func (s *Single) renew(ctx context.Context, database int) error {
	next, _ := wait.Slowed(ctx, s.cfg.CheckEvery)
	ctx, cancel := context.WithTimeout(ctx, store.Lease/2)
	defer cancel()
	sent := s.owned.clock()
	err := s.locks[database].Check(ctx)
	if err == nil {
		s.owned.renew(database, sent.add(store.Lease+next-s.cfg.CheckEvery))
	}
	return err
}

func (s *Single) partitions(database int) (list []int) {
	first, end := s.cfg.Layout.DatabasePartitions(database)
	for p := first; p < end; p++ {
		list = append(list, p)
	}
	return list
}

// Run checks the locks and takes lost ones again, until ctx ends. It supervises each database independently.
func (s *Single) Run(ctx context.Context) error {
	eachDatabase(len(s.locks), func(d int) { s.superviseDatabase(ctx, d) })
	return nil
}

const (
	checkAgain = 200 * time.Millisecond // after a check that failed
	logEvery   = 30 * time.Second       // how often such an attempt is logged
)

// superviseDatabase keeps the lock of one database. If the lock is lost, the node first drops the partitions
// and then retries with growing pauses.
func (s *Single) superviseDatabase(ctx context.Context, database int) {
	var told time.Time
	for pause := s.cfg.CheckEvery; ; {
		_ = wait.Poll(ctx, pause)
		if ctx.Err() != nil {
			return
		}
		if s.locks[database] != nil {
			pause = s.check(ctx, database)
			continue
		}
		err := s.acquire(ctx, database)
		s.record(database, err)
		switch {
		case err == nil:
			s.cfg.Logger.Info("database is back; its partitions go on", "database", database)
			pause, told = s.cfg.CheckEvery, time.Time{}
		case ctx.Err() == nil:
			pause = min(max(time.Second, 2*pause), maxPause)
			if time.Since(told) >= logEvery {
				told = time.Now()
				s.cfg.Logger.Warn("database still not usable", "database", database, "retry_in", pause, "error", err)
			}
		}
	}
}

// check checks a lock and returns when to check again. The lock is lost when the database says so, or when it
// has not answered for a lease.
func (s *Single) check(ctx context.Context, database int) (again time.Duration) {
	err := s.renew(ctx, database)
	switch {
	case err == nil:
		return s.cfg.CheckEvery
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrLockLost) || !s.owned.isLive(database):
		s.owned.drop(s.partitions(database))
		s.owned.expire(database)
		s.locks[database] = nil
		s.record(database, err)
		s.cfg.Logger.Error("lost a database; its partitions stop", "database", database, "error", err)
	}
	return checkAgain
}

// Release drops all partitions and releases all locks. Run must have ended.
func (s *Single) Release() {
	for d, lock := range s.locks {
		if lock == nil {
			continue
		}
		s.owned.drop(s.partitions(d))
		s.owned.expire(d)
		if err := lock.Release(!slices.ContainsFunc(s.partitions(d), s.owned.isUnsettled)); err != nil {
			s.cfg.Logger.Warn("lock not released cleanly; it is free when its lease is over", "database", d, "error", err)
		}
		s.locks[d] = nil
	}
}
