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
)

// Condition is how a database is, as its last reads, writes and pings showed. There is
// one for each, fed by every statement; whoever wants to know whether a database can
// be used asks it. (A circuit breaker: see Nygard, Release It!)
type Condition struct {
	Down     error         // why it cannot be read; nil: it can
	Refusing error         // why it takes no writes; nil: it does, as far as is known
	Slow     time.Duration // how long it takes for an answer, at the mean; 0: less than half a second
}

// IsReadOnly tells that the server answers and takes no writes, as a demoted primary
// does: other nodes may be connected to the new one.
func (c Condition) IsReadOnly() bool { return errors.Is(c.Refusing, ErrReadOnly) }

// Usable tells whether a database can be read and written.
func (c Condition) Usable() bool { return c.Down == nil && c.Refusing == nil }

// failuresToOpen is how many reads in a row must fail: one may have met a connection
// that somebody had closed.
const failuresToOpen = 2

// slowAnswer is the mean from which on a database is slow, until it is half of that.
const slowAnswer = 500 * time.Millisecond

// pace is how long answers take: an exponentially weighted mean.
type latency struct {
	mean time.Duration
	last time.Time
}

func (p *latency) note(took time.Duration) {
	p.mean += (min(took, 2*slowAnswer) - p.mean) / 4 // one that takes very long is no more than one
	p.last = time.Now()
}

// How long no write must meet a full disk before it has room again: there is always room
// for some of them. Each relapse within fullRelapse makes it longer.
const (
	fullLasts   = 5 * time.Second
	fullLongest = time.Minute
	fullRelapse = 10 * time.Minute
)

// condition keeps the Condition of a database.
type condition struct {
	now     atomic.Pointer[Condition] // nil: all is well
	changes atomic.Int64              // how often it changed
	down    atomic.Int64              // when it was last found Down, in nanoseconds of Unix time

	mu       sync.Mutex
	failures atomic.Int32 // reads in a row
	full     time.Time    // when it last had no room for a write
	fullFor  time.Duration
	// A disk that is slow shows in writes only.
	pings, writes latency
}

// Condition tells how a database is. It asks nobody.
func (s *Store) Condition(database int) Condition { return s.dbs[database].condition.get() }

// isDown tells why a database was out of reach a moment ago. Where nobody has asked it
// since, somebody is to try.
func (s *Store) isDown(database int) error {
	c := &s.dbs[database].condition
	if time.Since(time.Unix(0, c.down.Load())) > 2*(probeEvery+connectTimeout) {
		return nil
	}
	return c.get().Down
}

// Readable tells whether a database can be read, as far as is known.
func (s *Store) Readable(database int) bool { return s.Condition(database).Down == nil }

// Writable tells whether a database takes writes, as far as is known.
func (s *Store) Writable(database int) bool { return s.Condition(database).Usable() }

func (c *condition) get() Condition {
	if now := c.now.Load(); now != nil {
		return *now
	}
	return Condition{}
}

// set changes it. mu is held.
func (c *condition) set(change func(*Condition)) {
	before := c.get()
	now := before
	change(&now)
	if now.Usable() && now.Slow == 0 {
		c.now.Store(nil)
	} else {
		c.now.Store(&now)
	}
	if now.kind() != before.kind() {
		c.changes.Add(1)
	}
}

// kind is what another condition differs in.
func (c Condition) kind() [4]bool {
	return [...]bool{c.Down == nil, c.Refusing == nil, c.IsReadOnly(), c.Slow == 0}
}

// ours is the key of the store's own deadline in a context.
type ownDeadline struct{}

// patience gives a call so much time, unless its caller gives it less.
func withPatience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(d)
	return context.WithDeadline(context.WithValue(ctx, ownDeadline{}, until), until)
}

// isPatient tells whether a call had all the time that the store would give it.
func hadFullTime(ctx context.Context) bool {
	own, is := ctx.Value(ownDeadline{}).(time.Time)
	until, has := ctx.Deadline()
	return is && has && !until.Before(own)
}

// says tells whether an error says something of its database: not if its caller gave
// up, nor if a statement, a table, a row or another transaction is to blame.
func (s *Store) blamesDatabase(ctx context.Context, err error) bool {
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

// noteRead remembers how a read went.
func (s *Store) recordRead(ctx context.Context, database int, err error) {
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

// noteWrite remembers how a write went. That a read-only server took one of ours all the
// same does not make it one to write to.
func (s *Store) recordWrite(ctx context.Context, database int, err error) {
	c := &s.dbs[database].condition
	if now := c.get(); err == nil && (now.Refusing == nil || now.IsReadOnly()) || err != nil && !s.blamesDatabase(ctx, err) {
		return
	}
	if isReadOnly(err) && !errors.Is(err, ErrReadOnly) {
		err = fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	c.recordWrite(err, s.backend.refusal(err) == refusedFull)
}

// write notes why a database refused a write; nil: it took it. isFull: its disk had no room.
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

// notePace remembers how long a successful ping or write took.
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

// isToTry tells whether a write is to be tried: the last one was refused, or the last ones were slow and nobody writes.
func (c *condition) shouldTry() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get().Refusing != nil || c.writes.mean >= slowAnswer/2 && time.Since(c.writes.last) > probeEvery
}

// noted is a pool of connections for reads that notes how they went.
type observedPool struct {
	gorm.ConnPool
	store    *Store
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

// How the databases are watched.
const (
	probeEvery     = time.Second
	probeTimeout   = 3 * time.Second // for an answer: one that takes longer is none
	connectTimeout = 8 * time.Second // a handshake is five answers
)

// Watch asks each database once a second until ctx ends, whose error it answers: those
// that nobody uses, and those that were given up. changed is called with the new
// condition of one that has become another since, even if it is as it was before by now;
// for one database it is not called twice at a time.
func (s *Store) Watch(ctx context.Context, changed func(database int, before, now Condition)) error {
	s.eachDatabase(func(d int) {
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		var before Condition
		var seen int64
		for ctx.Err() == nil {
			s.Probe(ctx, d)
			turn, now := s.dbs[d].condition.changes.Load(), s.Condition(d) // in this order, so that no turn is missed
			if turn != seen && ctx.Err() == nil {
				changed(d, before, now)
				before, seen = now, turn
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return ctx.Err()
}

// Probe asks a database whether it answers and, if it refused a write or was slow with
// them, whether it still is. On MySQL it has a connection of its own: it waits for no statement of the
// store.
func (s *Store) Probe(ctx context.Context, database int) Condition {
	asking, cancel := withPatience(ctx, connectTimeout)
	defer cancel()
	c := &s.dbs[database].condition
	switch took, err := s.backend.ping(asking, database); {
	case errors.Is(err, ErrReadOnly):
		s.recordRead(asking, database, nil)
		s.recordWrite(asking, database, err)
	case err != nil:
		s.recordRead(asking, database, err)
		if errors.Is(err, context.DeadlineExceeded) {
			s.recordRead(asking, database, err) // it had the time of many
		}
	default:
		s.recordRead(asking, database, nil)
		c.recordLatency(&c.pings, took)
		if c.shouldTry() {
			writing, cancel := withPatience(ctx, probeTimeout+endTimeout(s.cfg.Timeout))
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
