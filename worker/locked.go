package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
)

// An outcome waits apart and is retried alone if another transaction has locked its row, or if its table is
// missing or broken. So a forgotten COMMIT holds up its own rows only.
const (
	lockedEvery       = time.Second
	lockedTableMax    = 16  // of one table: from this number on none of its tasks start
	lockedDatabaseMax = 256 // of one database: the same
	lockedLogMax      = 10  // log lines about the rows of one batch
)

// lockedRows are the outcomes that wait for a row or a table.
type lockedRows struct {
	layout     sharding.Layout
	mu         logqueue.Mutex
	byDatabase [][]finish
	byTable    []atomic.Int32 // number of waiting outcomes, by shard
	overLimit  []atomic.Bool  // by database: lockedDatabaseMax is reached
	loops      sync.WaitGroup // one for each database with waiting outcomes
}

func newLockedRows(layout sharding.Layout) *lockedRows {
	return &lockedRows{
		layout: layout, byDatabase: make([][]finish, layout.Databases),
		byTable: make([]atomic.Int32, layout.Shards()), overLimit: make([]atomic.Bool, layout.Databases),
	}
}

// countOf returns the counter of a task's table.
func (l *lockedRows) countOf(jobID uint64) *atomic.Int32 {
	shard, _ := l.layout.ShardOf(jobID)
	return &l.byTable[shard]
}

func (l *lockedRows) isOverLimit(jobID uint64, database int) bool {
	return l.countOf(jobID).Load() >= lockedTableMax || l.overLimit[database].Load()
}

// setAside lets outcomes wait for the locks of their rows.
func (f *finisher) setAside(ctx context.Context, database int, list []*finish) {
	if len(list) == 0 {
		return
	}
	l := f.locked
	now := f.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	first := len(l.byDatabase[database]) == 0
	for i, d := range list {
		d.waitsSince = now
		l.byDatabase[database] = append(l.byDatabase[database], *d)
		l.countOf(d.entry.ID()).Add(1)
		switch log := f.cfg.Logger.With("job_id", d.entry.ID(), "biz_type", d.bizType.Name, "database", database); {
		case i >= lockedLogMax:
		case d.tableErr != nil:
			l.mu.Log(log, slog.LevelWarn, "outcome waits: its table cannot be written", "error", d.tableErr)
		default:
			l.mu.Log(log, slog.LevelWarn, "outcome waits: another transaction has locked the row")
		}
	}
	if more := len(list) - lockedLogMax; more > 0 {
		l.mu.Log(f.cfg.Logger, slog.LevelWarn, "more outcomes wait for their rows", "tasks", more, "database", database)
	}
	l.overLimit[database].Store(len(l.byDatabase[database]) >= lockedDatabaseMax)
	if first {
		l.loops.Go(func() { f.retryLocked(ctx, database) })
	}
}

// retryLocked retries the waiting outcomes of a database until there are none.
func (f *finisher) retryLocked(ctx context.Context, database int) {
	l := f.locked
	for {
		_ = wait.For(ctx, lockedEvery)
		l.mu.Lock()
		list := slices.Clone(l.byDatabase[database])
		l.mu.Unlock()
		var left []*finish
		if ctx.Err() == nil {
			tried := make([]*finish, len(list))
			for i, d := range list {
				tried[i] = &d // a copy: record changes it
			}
			left = f.record(ctx, database, tried)
		} else {
			f.cfg.Logger.Error("outcomes not recorded: these tasks will run again", "database", database, "tasks", len(list),
				"error", "their rows are locked, or their tables cannot be written")
		}
		if f.removeSettled(ctx, database, list, left) == 0 {
			return
		}
	}
}

// removeSettled removes the outcomes of list that do not wait any more, and returns how many still do.
func (f *finisher) removeSettled(ctx context.Context, database int, list []finish, left []*finish) (waiting int) {
	l := f.locked
	waits := make(map[uint64]bool, len(left))
	open := make([]finish, len(left))
	for i, d := range left {
		waits[d.entry.ID()], open[i] = true, *d
	}
	back, settled := false, 0
	l.mu.Lock()
	for i := range list {
		id := list[i].entry.ID()
		if waits[id] {
			continue
		}
		if settled++; ctx.Err() == nil && settled <= lockedLogMax {
			l.mu.Log(f.cfg.Logger, slog.LevelInfo, "outcome settled: the row is free again", "job_id", id, "waited",
				f.cfg.Now().Sub(list[i].waitsSince))
		}
		back = l.countOf(id).Add(-1) == lockedTableMax-1 || back
	}
	l.byDatabase[database] = append(open, l.byDatabase[database][len(list):]...)
	waiting = len(l.byDatabase[database])
	back = l.overLimit[database].Swap(waiting >= lockedDatabaseMax) && waiting < lockedDatabaseMax || back
	l.mu.Unlock()
	if ctx.Err() == nil && settled > lockedLogMax {
		f.cfg.Logger.Info("more outcomes settled: their rows are free again", "tasks", settled-lockedLogMax, "database", database)
	}
	if back {
		f.cfg.Dispatch.Tick()
	}
	return waiting
}

// Trouble is a fault that keeps outcomes from being recorded or tasks from starting.
type Trouble struct {
	Kind     TroubleKind
	Database int
	Text     string
}

// TroubleKind is the kind of a Trouble.
type TroubleKind string

// The kinds.
const (
	RowLocked TroubleKind = "row_locked" // outcomes wait for rows that another transaction has locked
	Unwritten TroubleKind = "outcomes"   // outcomes cannot be recorded
	Journal   TroubleKind = "journal"    // starts cannot be recorded (toc_running)
)

// Degraded lists the troubles: databases first, then rows, the longest wait first.
func (r *Runner) Degraded() (list []Trouble) {
	for d := range r.cfg.Layout.Databases {
		if why := r.finisher.failing[d].Load(); why != nil {
			list = append(list, Trouble{Unwritten, d,
				fmt.Sprintf("database %d: outcomes cannot be recorded, so its tasks do not start: %v", d, *why)})
		}
		if why := r.journal.dbs[d].failing.Load(); why != nil {
			list = append(list, Trouble{Journal, d,
				fmt.Sprintf("database %d: toc_running cannot be used, so tasks that may have been started before do not start: %v", d, *why)})
		}
	}
	return append(list, r.finisher.locked.troubles(r.cfg.Now())...)
}

func (l *lockedRows) troubles(now time.Time) (list []Trouble) {
	l.mu.Lock()
	all := slices.Concat(l.byDatabase...)
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b finish) int { return a.waitsSince.Compare(b.waitsSince) })
	const most = 3
	for i := range all {
		d := &all[i]
		database := l.layout.PartitionDatabase(d.entry.Partition)
		if i == most {
			return append(list, Trouble{RowLocked, database, fmt.Sprintf("%d more outcomes wait for their rows", len(all)-most)})
		}
		waited := now.Sub(d.waitsSince).Round(time.Second)
		if d.tableErr == nil {
			list = append(list, Trouble{RowLocked, database, fmt.Sprintf("outcome of job_id %d waits for a row lock for %s", d.entry.ID(), waited)})
		} else {
			list = append(list, Trouble{Unwritten, database,
				fmt.Sprintf("outcome of job_id %d cannot be recorded for %s: %v", d.entry.ID(), waited, d.tableErr)})
		}
	}
	return list
}

// recordLocked reports whether an outcome is among those not written, and records the error of its table.
func recordLocked(held map[uint64]error, d *finish) bool {
	table, is := held[d.entry.ID()]
	if is {
		d.tableErr = table
	}
	return is
}
