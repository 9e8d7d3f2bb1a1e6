// Package pause keeps what operators have decided about business types: which ones are paused. The decisions are
// rows of toc_control, the same in each database, and each node reads them every second; the same read shows whether an
// operation runs.
//
// The row that was changed last wins, whichever database has it; of the same millisecond, a pause does. So a database
// that is down takes nothing along, and a change by plain SQL in one database is enough: nodes copy it to the others.
// While no database answers, the last known decisions stand.
package pause

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is the part of store.Store with toc_control.
type Store interface {
	Readable(database int) bool
	Writable(database int) bool
	Decisions(ctx context.Context, database int) (store.Decisions, error)
	SetControl(ctx context.Context, database int, c store.Control) error
}

// Gate puts decisions in force on this node.
type Gate interface {
	// SetPaused replaces the set of paused business types, in ascending order.
	SetPaused(bizTypes []uint64)
}

// Config configures a Control.
type Config struct {
	Store     Store
	Databases int
	Gate      Gate
	Now       func() time.Time
	Logger    *slog.Logger
}

const (
	readEvery = time.Second // so a decision is in force on all nodes within two seconds
	// Set waits so long for reads, and so long after a first write for the others; the next read brings these up to date.
	setWithin = time.Second
)

// Control holds the decisions. It is safe for concurrent use.
type Control struct {
	cfg Config

	mu      logqueue.Mutex
	known   map[uint64]store.Control // the newest row of each business type
	inForce []uint64                 // as the Gate has it
	runs    []bool                   // by database: it had an operation that runs, when last read
}

// New makes a Control without decisions.
func New(cfg Config) *Control {
	return &Control{cfg: cfg, known: make(map[uint64]store.Control), runs: make([]bool, cfg.Databases)}
}

// Load reads all databases once. The caller does so before the engines start. Databases that do not answer are left
// to Run.
func (c *Control) Load(ctx context.Context) {
	var reads sync.WaitGroup
	for d := range c.cfg.Databases {
		reads.Go(func() { c.read(ctx, d) })
	}
	reads.Wait()
}

// Run reads the databases until ctx ends. One that hangs holds up none of the others.
func (c *Control) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for d := range c.cfg.Databases {
		g.Go(func() error {
			for {
				if err := wait.Poll(ctx, readEvery); err != nil {
					return err
				}
				c.read(ctx, d)
			}
		})
	}
	return g.Wait()
}

// read reads one database, puts what it says in force, and writes what it lacks into it.
func (c *Control) read(ctx context.Context, database int) {
	defer c.apply() // also if nothing was read: pauses end by the clock
	if !c.cfg.Store.Readable(database) {
		return
	}
	all, err := c.cfg.Store.Decisions(ctx, database)
	if err != nil {
		if ctx.Err() == nil && c.cfg.Store.Readable(database) { // otherwise the store has logged it
			c.cfg.Logger.Warn("toc_control not read; what was known stays in force", "database", database, "error", err)
		}
		return
	}
	c.mu.Lock()
	c.runs[database] = all.Operation
	c.mu.Unlock()
	for _, row := range c.merge(all.Controls) {
		if !c.cfg.Store.Writable(database) {
			return
		}
		if err := c.cfg.Store.SetControl(ctx, database, row); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("toc_control not brought up to date; trying again", "database", database, "error", err)
			return
		}
	}
}

// merge takes up newer rows, and returns the rows that the database lacks.
func (c *Control) merge(rows []store.Control) (lacks []store.Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	has := make(map[uint64]store.Control, len(rows))
	for _, row := range rows {
		has[row.BizType] = row
		if row.Replaces(c.known[row.BizType]) {
			c.known[row.BizType] = row
		}
	}
	for id, row := range c.known {
		if row.Replaces(has[id]) {
			lacks = append(lacks, row)
		}
	}
	return lacks
}

// apply gives the Gate the set of business types that are paused now, if it has changed.
func (c *Control) apply() {
	c.mu.Lock()
	defer c.mu.Unlock() // the Gate gets the sets in order
	now := c.cfg.Now()
	var paused []uint64
	for _, id := range slices.Sorted(maps.Keys(c.known)) {
		if isPaused(c.known[id], now) {
			paused = append(paused, id)
		}
	}
	if !slices.Equal(paused, c.inForce) {
		c.inForce = paused
		c.cfg.Gate.SetPaused(paused)
		c.mu.Log(c.cfg.Logger, slog.LevelInfo, "paused biz_types have changed", "paused", paused)
	}
}

func isPaused(row store.Control, now time.Time) bool {
	return row.Paused && (row.Until.IsZero() || now.Before(row.Until))
}

// Paused returns the pause of a business type; ok is false if it is not paused.
func (c *Control) Paused(bizType uint64) (pause store.Control, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row := c.known[bizType]
	return row, isPaused(row, c.cfg.Now())
}

// OperationRuns reports whether a database has an operation that runs. One that begins or ends is noticed within two
// seconds; a database that does not answer counts as it was.
func (c *Control) OperationRuns() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.runs, true)
}

// Set writes a decision into all databases that take it, and puts it in force on this node. The other nodes read
// it within two seconds. It returns an error that is task.ErrUnavailable if no database took it, for as long as the Store
// tries: an operator pauses when databases are slow.
func (c *Control) Set(ctx context.Context, decision store.Control) error {
	ctx = context.WithoutCancel(ctx)
	reads, cancelReads := context.WithTimeout(ctx, setWithin)
	c.Load(reads) // another node may just have decided
	cancelReads()

	c.mu.Lock()
	// Later than the decision that it replaces, also if the clock of the node that wrote that one is ahead.
	decision.Changed = c.cfg.Now().UTC().Truncate(time.Millisecond)
	if last := c.known[decision.BizType].Changed; !decision.Changed.After(last) {
		decision.Changed = last.Add(time.Millisecond)
	}
	c.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, c.cfg.Databases)
	var writes sync.WaitGroup
	var first sync.Once
	for d := range c.cfg.Databases {
		writes.Go(func() {
			if errs[d] = errNotWritable; c.cfg.Store.Writable(d) {
				errs[d] = c.cfg.Store.SetControl(ctx, d, decision)
			}
			if errs[d] == nil {
				first.Do(func() { time.AfterFunc(setWithin, cancel) })
			}
		})
	}
	writes.Wait()
	if !slices.Contains(errs, nil) {
		return fmt.Errorf("%w: no database takes the change; database 0: %w", task.ErrUnavailable, errs[0])
	}
	c.merge([]store.Control{decision})
	c.apply()
	return nil
}

var errNotWritable = errors.New("it is out of reach or refuses writes")
