package worker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
)

const (
	heldTableMax    = 16  // outcomes of one table: from this number on none of its tasks start
	heldDatabaseMax = 256 // of one database: the same
	heldLogMax      = 10  // while more are held, their rows are not logged; /readyz has the number
)

// heldOutcomes are the outcomes whose rows another transaction has locked, or whose tables are missing or broken. The store
// records them later, so a forgotten COMMIT holds up its own rows only.
type heldOutcomes struct {
	layout     sharding.Layout
	byTable    []atomic.Int32 // number of held outcomes, by shard
	byDatabase []atomic.Int32
	dropped    atomic.Int32   // outcomes that were not recorded when the program ended
	open       sync.WaitGroup // one for each held outcome

	mu    logqueue.Mutex
	byJob map[uint64]*finish
}

func newHeldOutcomes(layout sharding.Layout) *heldOutcomes {
	return &heldOutcomes{
		layout: layout, byJob: make(map[uint64]*finish),
		byTable: make([]atomic.Int32, layout.Shards()), byDatabase: make([]atomic.Int32, layout.Databases),
	}
}

// counts returns the counters of a task's table and database.
func (h *heldOutcomes) counts(jobID uint64) (table, database *atomic.Int32) {
	shard, _ := h.layout.ShardOf(jobID)
	return &h.byTable[shard], &h.byDatabase[h.layout.Database(shard)]
}

func (h *heldOutcomes) isOverLimit(jobID uint64) bool {
	table, database := h.counts(jobID)
	return table.Load() >= heldTableMax || database.Load() >= heldDatabaseMax
}

// hold lets the store record an outcome by m when its row is free. If the row has changed by then, the outcome is settled
// like that of any edited row.
func (f *finisher) hold(ctx context.Context, database int, d *finish, m store.Move, tableErr error, fences []Fence) {
	if d.heldSince.IsZero() {
		d = f.addHeld(database, d, tableErr)
	}
	f.cfg.Store.ApplyLater(ctx, database, m, func(applied bool, err error) {
		switch {
		case err != nil:
			f.drop(d)
		case applied:
			f.completeAmended(d, fences)
		default:
			go f.record(ctx, database, []*finish{d}) // open counts it
		}
	})
}

// addHeld returns a copy of an outcome: the outcomes of other tasks are in one array with it.
func (f *finisher) addHeld(database int, d *finish, tableErr error) *finish {
	one := *d
	one.heldSince, one.tableErr = f.cfg.Now(), tableErr
	h, id := f.held, d.entry.ID()
	h.open.Add(1)
	table, all := h.counts(id)
	table.Add(1)
	all.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byJob[id] = &one
	switch log := f.cfg.Logger.With("job_id", id, "biz_type", d.bizType.Name, "database", database); {
	case len(h.byJob) > heldLogMax:
	case tableErr != nil:
		h.mu.Log(log, slog.LevelWarn, "outcome waits: its table cannot be written", "error", tableErr)
	default:
		h.mu.Log(log, slog.LevelWarn, "outcome waits: another transaction has locked the row")
	}
	return &one
}

// release ends the wait of a held outcome: it is settled.
func (f *finisher) release(d *finish) {
	h := f.held
	table, database := h.counts(d.entry.ID())
	tableIsFree, databaseIsFree := table.Add(-1) == heldTableMax-1, database.Add(-1) == heldDatabaseMax-1
	h.mu.Lock()
	if len(h.byJob) <= heldLogMax {
		h.mu.Log(f.cfg.Logger, slog.LevelInfo, "outcome settled: the row is free again", "job_id", d.entry.ID(), "waited",
			f.cfg.Now().Sub(d.heldSince))
	}
	delete(h.byJob, d.entry.ID())
	h.mu.Unlock()
	if tableIsFree || databaseIsFree {
		f.cfg.Dispatch.Tick() // tasks were left in the store
	}
}

// drop gives up an outcome at the end of the program.
func (f *finisher) drop(d *finish) {
	if !d.heldSince.IsZero() {
		f.held.dropped.Add(1)
		f.held.open.Done()
	}
}
