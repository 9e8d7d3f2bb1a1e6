package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

// Locker gives out the exclusive lock of a database; see store.Store.Lock.
type Locker interface {
	Lock(ctx context.Context, database int, holder string) (store.Lock, error)
}

// SingleConfig is what a Single works with.
type SingleConfig struct {
	Node string // this node's name, told to whoever is refused
	// Address is where this node's HTTP API is reached (host:port); see SetAddress.
	Address string
	Layout  sharding.Layout
	Locker  Locker
	// Prepare makes sure that a database is fit for use, before it is locked.
	Prepare func(ctx context.Context, database int) error
	// CheckEvery is how often a held lock is checked. Defaults to 2 s.
	CheckEvery time.Duration
	Logger     *slog.Logger
}

// Single is the cluster of one node.
type Single struct {
	cfg     SingleConfig
	address atomic.Pointer[string]
	owned   *Ownership
	locks   []store.Lock // by database; nil: not held
}

// NewSingle makes the cluster; it owns nothing before Acquire.
func NewSingle(cfg SingleConfig) *Single {
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 2 * time.Second
	}
	s := &Single{
		cfg:   cfg,
		owned: NewOwnership(cfg.Layout.Partitions),
		locks: make([]store.Lock, cfg.Layout.Databases),
	}
	s.SetAddress(cfg.Address)
	return s
}

// Ownership is what this node owns.
func (s *Single) Ownership() *Ownership { return s.owned }

// Worker is this node's worker number for job_ids.
func (s *Single) Worker() int { return 0 }

// SetAddress says where this node's HTTP API is reached.
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

// Lost is always empty: what is wrong with a database, the store tells itself.
func (s *Single) Lost() string { return "" }

// Leave does nothing: there is nobody to hand partitions over to.
func (s *Single) Leave(context.Context) error { return nil }

// Acquire takes the locks of all databases that can be reached. A database that
// cannot is left to Run; if none can, or one is held by another process or unfit
// for use, Acquire fails and holds nothing.
func (s *Single) Acquire(ctx context.Context) error {
	errs := make([]error, len(s.locks))
	var wg sync.WaitGroup
	for d := range s.locks {
		wg.Go(func() { errs[d] = s.acquire(ctx, d) })
	}
	wg.Wait()

	var refused, unreachable []error
	for d, err := range errs {
		var down *store.DatabaseError
		switch {
		case err == nil:
		case errors.As(err, &down):
			unreachable = append(unreachable, err)
			s.cfg.Logger.Warn("database not reachable; its partitions wait", "database", d, "error", err)
		default:
			refused = append(refused, err)
		}
	}
	if len(refused) == 0 && len(unreachable) < len(errs) {
		return nil
	}
	s.Release()
	if len(refused) > 0 {
		return refused[0] // the others say the same of other databases
	}
	return errors.Join(errors.New("none of the databases can be reached"), unreachable[0])
}

func (s *Single) acquire(ctx context.Context, database int) error {
	if err := s.cfg.Prepare(ctx, database); err != nil {
		return err
	}
	lock, err := s.cfg.Locker.Lock(ctx, database, s.cfg.Node)
	if err != nil {
		return err
	}
	s.locks[database] = lock
	first, end := s.cfg.Layout.DatabasePartitions(database)
	s.owned.set(first, end, true)
	return nil
}

// Run checks the locks and takes those again that were lost, until ctx ends.
// Each database is looked after by itself.
func (s *Single) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for d := range s.locks {
		wg.Go(func() { s.keep(ctx, d) })
	}
	wg.Wait()
	return nil
}

// keep looks after the lock of one database. A lost one gives up the database's
// partitions first; then it is asked for with growing pauses, up to 30 s.
func (s *Single) keep(ctx context.Context, database int) {
	pause := s.cfg.CheckEvery
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if s.locks[database] != nil {
			s.check(ctx, database)
			pause = s.cfg.CheckEvery
			if s.locks[database] == nil {
				pause = time.Second
			}
			continue
		}
		switch err := s.acquire(ctx, database); {
		case err == nil:
			s.cfg.Logger.Info("database is back; its partitions go on", "database", database)
			pause = s.cfg.CheckEvery
		case ctx.Err() == nil:
			pause = min(max(time.Second, 2*pause), 30*time.Second)
			s.cfg.Logger.Warn("database still not usable", "database", database, "retry_in", pause, "error", err)
		}
	}
}

func (s *Single) check(ctx context.Context, database int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := s.locks[database].Check(ctx)
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	first, end := s.cfg.Layout.DatabasePartitions(database)
	s.owned.set(first, end, false)
	s.cfg.Logger.Error("lost a database; its partitions stop", "database", database, "error", err)
	_ = s.locks[database].Release() // it is gone already
	s.locks[database] = nil
}

// Release gives all partitions up and all locks back. Run must have ended.
func (s *Single) Release() {
	for d, lock := range s.locks {
		if lock == nil {
			continue
		}
		first, end := s.cfg.Layout.DatabasePartitions(d)
		s.owned.set(first, end, false)
		if err := lock.Release(); err != nil {
			s.cfg.Logger.Warn("lock not released cleanly; the server frees it", "database", d, "error", err)
		}
		s.locks[d] = nil
	}
}
