package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/internal/wait"
)

// Condition is the state of a database, according to its last reads, writes and pings. Each database has one,
// which every statement updates, and all callers that need a usable database check it. (A circuit breaker: see
// Nygard, Release It!)
type Condition struct {
	Down     error         // why it cannot be read; nil: it can
	Refusing error         // why it accepts no writes; nil: it does, as far as is known
	Slow     time.Duration // mean time of an answer; 0: less than half a second
	Since    time.Time     // since when it is not Usable; zero: it is
}

// IsReadOnly reports whether the server answers and accepts no writes, like a demoted primary: other nodes may
// be connected to the new one.
func (c Condition) IsReadOnly() bool { return errors.Is(c.Refusing, ErrReadOnly) }

// Usable reports whether a database can be read and written.
func (c Condition) Usable() bool { return c.Down == nil && c.Refusing == nil }

// failuresToOpen is how many reads must fail in a row: a single one may have met a closed connection.
const failuresToOpen = 2

// slowAnswer is the mean above which a database is slow, until the mean is half of that.
const slowAnswer = 500 * time.Millisecond

// latency is an exponentially weighted mean of the time of answers.
type latency struct {
	mean time.Duration
	last time.Time
}

func (p *latency) note(took time.Duration) {
	p.mean += (min(took, 2*slowAnswer) - p.mean) / 4 // cap an extreme value
	p.last = time.Now()
}

// A disk counts as full for this time after its last refusal: a full disk always has room for some writes. Each
// relapse within fullRelapse makes the time longer.
const (
	fullLasts   = 5 * time.Second
	fullLongest = time.Minute
	fullRelapse = 10 * time.Minute
)

// condition holds the Condition of a database.
type condition struct {
	now     atomic.Pointer[Condition] // nil: all is well
	changes atomic.Int64              // how often it changed
	// When it was last found Down, and when a ping found it read-only, unless one has found it otherwise since; in nanoseconds of
	// Unix time.
	down, readOnly atomic.Int64

	// Its last batch got no answer: it shares no transaction until one is answered.
	unanswered atomic.Bool

	mu       sync.Mutex
	failures atomic.Int32 // failed reads in a row
	full     time.Time    // when its disk was last full
	fullFor  time.Duration
	// Apart, since a slow disk affects writes only.
	pings, writes latency

	asking       sync.Mutex // held while the server is asked
	blocked      bool       // a global read lock of the server keeps everybody from writing
	blockedUntil time.Time  // blocked counts until then
}

// Condition returns the state of a database. It asks no server.
func (s *databases) Condition(database int) Condition { return s.dbs[database].condition.get() }

// isDown returns why a database was unreachable a moment ago. If no call has tried it since, it returns nil, so
// that the caller tries.
func (s *databases) isDown(database int) error {
	c := &s.dbs[database].condition
	if !isRecent(&c.down) {
		return nil
	}
	return c.get().Down
}

// isRecent reports whether Watch, if it runs, must have found the same since then.
func isRecent(at *atomic.Int64) bool {
	return time.Since(time.Unix(0, at.Load())) <= 2*(probeEvery+connectTimeout)
}

// refusesChanges returns ErrReadOnly if a database was read-only at the last ping. A user with enough rights could write all the same; but
// then the server is a replica, or somebody wants nothing to be written.
func (s *databases) refusesChanges(database int) error {
	if isRecent(&s.dbs[database].condition.readOnly) {
		return ErrReadOnly
	}
	return nil
}

// Readable reports whether a database can be read, as far as is known.
func (s *databases) Readable(database int) bool { return s.Condition(database).Down == nil }

// Writable reports whether a database accepts writes, as far as is known.
func (s *databases) Writable(database int) bool { return s.Condition(database).Usable() }

// isAnswering reports whether a database can share a transaction with others.
func (c *condition) isAnswering() bool { return !c.unanswered.Load() && c.get().Usable() }

func (c *condition) get() Condition {
	if now := c.now.Load(); now != nil {
		return *now
	}
	return Condition{}
}

// set changes the Condition. The caller holds mu.
func (c *condition) set(change func(*Condition)) {
	before := c.get()
	now := before
	change(&now)
	switch {
	case now.Usable():
		now.Since = time.Time{}
	case before.Usable():
		now.Since = time.Now()
	}
	if now.Usable() && now.Slow == 0 {
		c.now.Store(nil)
	} else {
		c.now.Store(&now)
	}
	if now.kind() != before.kind() {
		c.changes.Add(1)
	}
}

// kind is the part of a Condition whose change counts as a change.
func (c Condition) kind() [4]bool {
	return [...]bool{c.Down == nil, c.Refusing == nil, c.IsReadOnly(), c.Slow == 0}
}

// ownDeadline is the context key of the store's own deadline.
type ownDeadline struct{}

// withTimeout limits the time of a call, unless its caller has a shorter limit.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(d)
	return context.WithDeadline(context.WithValue(ctx, ownDeadline{}, until), until)
}

// hadFullTime reports whether a call had all the time that the store allows.
func hadFullTime(ctx context.Context) bool {
	own, is := ctx.Value(ownDeadline{}).(time.Time)
	until, has := ctx.Deadline()
	return is && has && !until.Before(own)
}

// blamesDatabase reports whether an error is evidence against its database. It is not if the caller gave up, or
// if a statement, a table, a row or another transaction is to blame.
func (s *databases) blamesDatabase(ctx context.Context, err error) bool {
	late := errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	if late && !hadFullTime(ctx) || errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrNoRows) {
		return false
	}
	switch s.backend.refusal(err) {
	case 0, otherRefusal, refusedFull, refusedReadOnly:
		return true
	}
	return false
}

// recordRead records the result of a read.
func (s *databases) recordRead(ctx context.Context, database int, err error) {
	c := &s.dbs[database].condition
	if err == nil && c.failures.Load() == 0 || err != nil && !s.blamesDatabase(ctx, err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.failures.Store(0)
		c.set(func(now *Condition) { now.Down = nil })
	} else if c.failures.Add(1) >= failuresToOpen {
		c.down.Store(time.Now().UnixNano())
		c.set(func(now *Condition) { now.Down = err })
	}
}

// recordWrite records the result of a write. A read-only server that accepts one write all the same still
// counts as read-only.
func (s *databases) recordWrite(ctx context.Context, database int, err error) {
	c := &s.dbs[database].condition
	if now := c.get(); err == nil && (now.Refusing == nil || now.IsReadOnly()) || err != nil && !s.blamesDatabase(ctx, err) {
		return
	}
	c.recordWrite(nameRefusal(err), s.backend.refusal(err) == refusedFull)
}

// nameRefusal adds the likely cause to the error of a write. A server with a binary log lets writes wait while its
// disk is full; it does not refuse them.
func nameRefusal(err error) error {
	unanswered, is := errors.AsType[*unansweredError](err)
	switch {
	case isReadOnly(err) && !errors.Is(err, ErrReadOnly):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case is && !unanswered.over:
		return fmt.Errorf("%w; writes wait like this while the server's disk is full, or while its replica does not answer", err)
	}
	return err
}

// recordWrite records why a database refused a write; nil: it accepted it. isFull: its disk was full.
func (c *condition) recordWrite(why error, isFull bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isFull {
		if c.get().Refusing == nil {
			relapsed := time.Since(c.full) < fullRelapse
			if c.fullFor = min(4*c.fullFor, fullLongest); !relapsed {
				c.fullFor = fullLasts
			}
		}
		c.full = time.Now()
	}
	if why != nil || time.Since(c.full) >= c.fullFor {
		c.set(func(now *Condition) { now.Refusing = why })
	}
}

// recordLatency records the time of a successful ping or write.
func (c *condition) recordLatency(p *latency, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.note(took)
	switch mean := max(c.pings.mean, c.writes.mean); {
	case mean >= slowAnswer:
		c.set(func(now *Condition) { now.Slow = mean })
	case mean < slowAnswer/2 && c.get().Slow != 0:
		c.set(func(now *Condition) { now.Slow = 0 })
	}
}

// shouldTry reports whether a write should be tried: the last one was refused, or the last ones were slow and
// no call writes.
func (c *condition) shouldTry() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get().Refusing != nil || c.writes.mean >= slowAnswer/2 && time.Since(c.writes.last) > probeEvery
}

// observedPool is a connection pool for reads that records their results.
type observedPool struct {
	gorm.ConnPool
	store    *databases
	database int
}

func (p *observedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := p.ConnPool.QueryContext(ctx, query, args...)
	p.store.recordRead(ctx, p.database, err)
	return rows, err
}

func (p *observedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	row := p.ConnPool.QueryRowContext(ctx, query, args...)
	p.store.recordRead(ctx, p.database, row.Err())
	return row
}

// The times of Watch and Probe.
const (
	probeEvery     = time.Second
	probeTimeout   = 3 * time.Second // for an answer; a later one counts as none
	connectTimeout = 8 * time.Second // a handshake takes five answers
)

// Watch pings each database once a second until ctx ends, also databases that are not in use, or down.
// It calls changed with the new condition after each change, even if the condition is the old one again by
// then. For one database it makes one call at a time.
func (s *databases) Watch(ctx context.Context, changed func(database int, before, now Condition)) error {
	_ = s.eachDatabase("watch", func(d int) error {
		var before Condition
		var seen int64
		for ctx.Err() == nil {
			s.Probe(ctx, d)
			turn, now := s.dbs[d].condition.changes.Load(), s.Condition(d) // in this order, so that no change is missed
			if turn != seen && ctx.Err() == nil {
				changed(d, before, now)
				before, seen = now, turn
			}
			_ = wait.Poll(ctx, probeEvery)
		}
		return nil
	})
	return ctx.Err()
}

// Probe checks that a database answers. If it refused a write or was slow with writes, Probe checks whether it
// still is. On MySQL it has its own connection, so it waits for no statement of the store.
func (s *databases) Probe(ctx context.Context, database int) Condition {
	asking, cancel := withTimeout(ctx, connectTimeout)
	defer cancel()
	c := &s.dbs[database].condition
	switch took, err := s.backend.ping(asking, database); {
	case errors.Is(err, ErrReadOnly):
		c.readOnly.Store(time.Now().UnixNano())
		s.recordRead(asking, database, nil)
		s.recordWrite(asking, database, err)
	case err != nil:
		s.recordRead(asking, database, err)
		if errors.Is(err, context.DeadlineExceeded) {
			s.recordRead(asking, database, err) // it had the time of many
		}
	default:
		c.readOnly.Store(0)
		s.recordRead(asking, database, nil)
		c.recordLatency(&c.pings, took)
		if c.shouldTry() {
			writing, cancel := withTimeout(ctx, probeTimeout+endTimeout(s.cfg.Timeout))
			defer cancel()
			if _, err := s.transact(writing, database, []statement{{
				sql: "REPLACE INTO toc_meta (name, value) VALUES (?, ?)", args: []any{"write_tried", s.cfg.Now().UTC().Format(time.RFC3339)},
			}}); err == nil {
				c.recordWrite(nil, false)
			}
		}
	}
	return s.Condition(database)
}
