// Package scanner is the scan engine. It finds due rows in the tables that this node owns and puts them into
// the queue.
//
// Ticks of a cron schedule start a pass. A pass reads every owned partition: the overdue tasks, and the tasks
// that are due before the next tick is through (the lookahead). So each task waits in memory for its own
// millisecond. Between ticks the scanner resumes reading wherever tasks did not fit into the queue.
//
// Each database has its own loop. A slow or failing database delays only its own partitions, and is tried again
// at the next tick.
//
// The package does not run tasks and does not use the processors.
package scanner

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is the part of store.Store that the scanner reads.
type Store interface {
	Readable(database int) bool
	DuePages(partition int, q store.Due) *store.DuePages
	NextDue(ctx context.Context, partition int) (at time.Time, none bool, err error)
	Overdue(ctx context.Context, partition int, now time.Time) (map[uint64]store.Overdue, error)
	Retrying(ctx context.Context, partition int, now, until time.Time) (map[uint64]store.Retrying, error)
	Clock(ctx context.Context, database int) (time.Time, error)
	Purge(ctx context.Context, partition int, before time.Time) (store.Purged, error)
	PurgeEarly(ctx context.Context, partition int, before time.Time) (store.Purged, error)
	PurgeDead(ctx context.Context, partition int, before time.Time) (store.Purged, error)
	PurgeAudit(ctx context.Context, database int, before time.Time) (int, error)
}

// Ownership reports which partitions this node owns; see cluster.Ownership.
type Ownership interface {
	Owns(partition int) bool
	Watch() <-chan struct{}
}

// Timer is the redis engine; see redistimer.Timer.
type Timer interface {
	Serves(bizType uint64, partition int) bool
	// Watch returns a channel that receives when the Timer stops serving some tasks.
	Watch() <-chan struct{}
	// InFallback reports whether Redis is out of reach for some of its tasks.
	InFallback() bool
	// NextDue receives, at each pass, when the earliest pending task of a partition is due; none: there is none.
	NextDue(partition int, at time.Time, none bool)
	// PurgeDead removes from the Timer's own lists what died before a time.
	PurgeDead(ctx context.Context, partition int, before time.Time)
}

// Observer records passes and purges, for the metrics.
type Observer interface {
	// Scanned is called after each pass over a database.
	Scanned(database int, took time.Duration, err error)
	// Purged is called after each batch of deletions, and PurgeLag after each round: lag is for how long the oldest of this node's rows
	// of a database should be gone; 0: none is left that should.
	Purged(p store.Purged)
	PurgeLag(database int, lag time.Duration)
}

// Config configures a Scanner.
type Config struct {
	Store     Store
	Queue     *queue.Queue
	Ownership Ownership
	Catalog   *task.Catalog
	Layout    sharding.Layout
	Observer  Observer

	// Timer is the engine of redis-mode types; nil if there is none. The scanner does not read what the Timer serves.
	Timer Timer

	// Retries returns until when tasks that have failed on this node may run again. Nil: none fail.
	Retries func() time.Time

	Schedule       cron.Schedule // of the ticks
	Lookahead      time.Duration // how far ahead of its time a row is read; about one tick
	Batch          int           // rows per page, about
	Retention      time.Duration // of processed and cancelled rows; 0 keeps them for ever
	DeadRetention  time.Duration // of dead rows; 0 keeps them for ever
	AuditRetention time.Duration // of entries of the audit; 0 keeps them for ever
	Parallel       int           // concurrent statements over all databases. Defaults to 4
	Costly         time.Duration // a partition whose read takes longer is not read from the start at each tick. Defaults to 100 ms

	Now    func() time.Time
	Logger *slog.Logger
}

// Scanner is the scan engine of a node.
type Scanner struct {
	cfg        Config
	dbs        []*database
	statements *semaphore.Weighted
}

// database is the state of the loop of one database.
type database struct {
	index         int
	wake          wait.Signal
	lastDuration  atomic.Int64 // of the last pass, in nanoseconds
	overdue       *overdue
	empty         map[int]bool // partitions in which the last pass found nothing due
	nextPartition int          // where the next pass begins, relative to the first partition
	costly        map[int]costlyPartition
	readAll       atomic.Bool // the next pass reads every partition from the start, at any cost
	types         *task.Types // of the last pass
	unknownTypes  []uint64    // types that are not configured and have overdue rows, as of the last count with these types
}

// New makes a Scanner.
func New(cfg Config) *Scanner {
	if cfg.Parallel == 0 {
		cfg.Parallel = 4
	}
	if cfg.Costly == 0 {
		cfg.Costly = 100 * time.Millisecond
	}
	s := &Scanner{cfg: cfg, statements: semaphore.NewWeighted(int64(cfg.Parallel))}
	for d := range cfg.Layout.Databases {
		s.dbs = append(s.dbs, &database{
			index: d, wake: wait.NewSignal(), overdue: &overdue{retrying: map[int]map[uint64]store.Retrying{}}, empty: map[int]bool{},
			costly: map[int]costlyPartition{},
		})
	}
	return s
}

// Run scans until ctx ends: at once, at every tick, and whenever this node's partitions change.
func (s *Scanner) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.runSchedule(ctx) })
	for _, db := range s.dbs {
		g.Go(func() error { return s.loop(ctx, db) })
	}
	for range parallelRefills {
		g.Go(func() error { return s.refill(ctx) })
	}
	for d := range s.dbs {
		if p := s.newPurger(d); len(p.kinds) > 0 {
			g.Go(func() error { return p.run(ctx) })
		}
	}
	g.Go(func() error { return s.followChanges(ctx) })
	return g.Wait()
}

const (
	// fallbackPause is the pause between passes while other nodes may put tasks into slots that this node does
	// not read. A pass may take a tenth of it.
	fallbackPause = time.Second
	// switchedFor is how long that is after business types left mode redis: other nodes read the configuration
	// later.
	switchedFor = 10 * time.Second
)

// followChanges starts passes when this node's partitions change and when it must do the work of the Timer.
func (s *Scanner) followChanges(ctx context.Context) error {
	changes := s.cfg.Ownership.Watch()
	var fallbacks <-chan struct{}
	inFallback := func() bool { return false }
	if s.cfg.Timer != nil {
		fallbacks, inFallback = s.cfg.Timer.Watch(), s.cfg.Timer.InFallback
	}
	var until, next time.Time // monotonic
	s.Tick()
	for {
		pause, roused := wait.Slowed(ctx, fallbackPause)
		select {
		case <-changes:
			s.dropLostPartitions()
			s.Tick()
		case <-fallbacks:
			until = time.Now().Add(switchedFor)
			s.Tick()
		case <-roused:
		case <-time.After(pause):
			if now := time.Now(); !now.Before(next) && (now.Before(until) || inFallback()) {
				next = now.Add(10 * s.slowest())
				s.request(false)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// slowest returns how long the last pass of the slowest database took.
func (s *Scanner) slowest() (took time.Duration) {
	for _, db := range s.dbs {
		took = max(took, time.Duration(db.lastDuration.Load()))
	}
	return took
}

// runSchedule requests passes by the schedule until ctx ends. It checks the wall clock each second and starts a
// pass at once when the clock was set back. So a step of the clock never stops the scans. (The runner of cron
// would wait until the clock has caught up.)
func (s *Scanner) runSchedule(ctx context.Context) error {
	last := s.cfg.Now()
	next := s.cfg.Schedule.Next(last.UTC())
	for {
		pause, roused := wait.Slowed(ctx, time.Second)
		if roused == nil && !next.IsZero() { // zero: the schedule has no next time
			pause = min(pause, max(0, next.Sub(last)))
		}
		if err := wait.ForOr(ctx, pause, roused); err != nil {
			return err
		}
		now := s.cfg.Now()
		due := !next.IsZero() && !now.Before(next)
		if setBack := now.Round(0).Before(last.Round(0)); due || setBack {
			s.request(setBack)
			next = s.cfg.Schedule.Next(now.UTC())
		}
		last = now
	}
}

// NextTick is the next time of the schedule; zero: there is none.
func (s *Scanner) NextTick() time.Time { return s.cfg.Schedule.Next(s.cfg.Now().UTC()) }

// Tick requests a whole pass over every database, at any cost, because something has changed. A database
// whose pass is under way makes exactly one more right after it.
func (s *Scanner) Tick() { s.request(true) }

// TickDatabase is Tick for one database.
func (s *Scanner) TickDatabase(database int) { s.dbs[database].request(true) }

func (s *Scanner) request(whole bool) {
	for _, db := range s.dbs {
		db.request(whole)
	}
}

func (db *database) request(whole bool) {
	if whole {
		db.readAll.Store(true)
	}
	db.wake.Set()
}

// dropLostPartitions removes the tasks of partitions that this node does not own from memory.
func (s *Scanner) dropLostPartitions() {
	s.cfg.Queue.DropPartitions(func(p int) bool { return !s.cfg.Ownership.Owns(p) })
}

// loop makes the passes over one database.
func (s *Scanner) loop(ctx context.Context, db *database) error {
	for {
		select {
		case <-db.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		start, began := s.cfg.Now(), time.Now()
		read, err := s.pass(ctx, db)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		took := time.Since(began) // monotonic: the clock may be set meanwhile
		db.lastDuration.Store(int64(took))
		switch {
		case err != nil:
			s.cfg.Observer.Scanned(db.index, took, err)
			if s.cfg.Store.Readable(db.index) { // otherwise the store has logged it
				s.cfg.Logger.Warn("database not scanned whole; trying again at the next tick", "database", db.index, "error", err)
			}
			db.overdue.recordFailure(start, err)
		// This node owns none of its partitions, or none yet: the pass says nothing about the database.
		case read == 0 && s.cfg.Store.Readable(db.index):
		case read == 0:
			db.overdue.recordFailure(start, errNotReadable)
		default:
			s.cfg.Observer.Scanned(db.index, took, nil)
			if db.overdue.recordSuccess() {
				s.cfg.Logger.Info("database is scanned again", "database", db.index)
			}
		}
	}
}

// Until implements dispatch.Engine. A task that is due by then may be due before the next tick reads it.
func (s *Scanner) Until(bizType uint64, partition int) (until time.Time, serves bool) {
	if !s.serves(bizType, partition) {
		return time.Time{}, false
	}
	return s.until(), true
}

// serves reports whether the scanner serves a business type in a partition. Tasks of a paused type stay in the
// store.
func (s *Scanner) serves(bizType uint64, partition int) bool {
	b, known := s.cfg.Catalog.Load().ByID(bizType)
	return known && !s.cfg.Queue.IsPaused(bizType) &&
		(b.Mode == task.ModeScan || s.cfg.Timer == nil || !s.cfg.Timer.Serves(bizType, partition))
}

// minSlack is the least slack on top of the lookahead.
const minSlack = 500 * time.Millisecond

// until is the time up to which rows are read now: the lookahead, and slack for the time that a pass needs to
// reach its last partition.
func (s *Scanner) until() time.Time {
	slack := max(minSlack, 2*s.slowest())
	return s.cfg.Now().Add(s.cfg.Lookahead + min(slack, max(minSlack, s.cfg.Lookahead)))
}
