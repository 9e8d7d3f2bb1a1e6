package app

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/store"
)

// host is this node as its cluster sees it: it makes databases ready, and hands partitions over.
type host struct {
	*App
	preparing wait.Mutex // one migration of the embedded store at a time
}

// Prepare makes a database ready for use. A store.DatabaseError is a fault that time, or somebody else, may mend: a server
// that is away or refuses the login, a database or tables that are not there.
func (h *host) Prepare(ctx context.Context, database int) error {
	err := h.prepareDatabase(ctx, database)
	if err == nil || h.hasOwnFiles() || migrations.IsRefusal(err) || errors.As(err, new(*store.DatabaseError)) {
		return err
	}
	return &store.DatabaseError{Database: database, Op: "prepare", Err: err}
}

// prepareDatabase checks that a database belongs to the store and has this program's schema and layout. It migrates an
// embedded store; on MySQL it requires `toc migrate`.
func (h *host) prepareDatabase(ctx context.Context, database int) error {
	embedded := h.hasOwnFiles()
	if embedded { // all databases are migrated together, once
		h.preparing.Lock()
		defer h.preparing.Unlock()
	}
	err := h.verify(ctx, database)
	var missing *migrations.NotMigratedError
	if !errors.As(err, &missing) {
		return err
	}
	if missing.Have == 0 {
		if id := h.storeInUse(ctx); id != "" {
			if again := h.verify(ctx, database); !errors.As(again, &missing) { // a migration has ended since
				return again
			}
			return &migrations.EmptyError{Database: missing.Database, StoreID: id}
		}
	}
	if !embedded {
		return err
	}
	if err := migrate(ctx, h.cfg, h.storeConfig(), h.component("migrations"), nil); err != nil {
		return err
	}
	return h.verify(ctx, database)
}

// hasOwnFiles reports whether the store is files of this process alone.
func (h *host) hasOwnFiles() bool {
	return h.cfg.Store.Driver == configs.DriverSQLite && !h.opts.outside.Shared
}

// verify checks that a database is ready, and belongs to the store.
func (h *host) verify(ctx context.Context, index int) error {
	d, err := openDatabase(h.storeConfig(), index, false)
	if err != nil {
		return err
	}
	defer d.DB.Close()
	dialect := migrations.Dialect(h.cfg.Store.Driver)
	if d.File != "" {
		if _, err := os.Stat(d.File); errors.Is(err, fs.ErrNotExist) { // opening it would create it
			return &migrations.NotMigratedError{Database: d.Name}
		}
	}
	if err := ping(ctx, d.DB); err != nil && !migrations.IsUnknownDatabase(err) {
		return &store.DatabaseError{Database: index, Op: "connect", Err: err}
	}
	if err := migrations.Verify(ctx, dialect, h.layout, d); err != nil {
		return err
	}
	id, err := migrations.StoreID(ctx, dialect, d)
	switch {
	case err != nil:
		return err
	case id == "":
		return &migrations.NotMigratedError{Database: d.Name, NoID: true, Have: 1}
	}
	file, err := readIDFile(h.cfg)
	if err == nil && file == "" {
		err = writeIDFile(h.cfg, id)
	}
	if err != nil {
		return err
	}
	h.storeID.CompareAndSwap(nil, id)
	for _, known := range []string{file, h.StoreID()} {
		if known != "" && known != id {
			return &migrations.StrangerError{Database: d.Name, Have: id, Want: known}
		}
	}
	return nil
}

// storeInUse returns the id of the store that an empty database belonged to; "" if the store is new, according
// to the databases that answer.
func (h *host) storeInUse(ctx context.Context) string {
	file, _ := readIDFile(h.cfg)
	if id := cmp.Or(h.StoreID(), file); id != "" {
		return id
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ids := make([]string, h.layout.Databases)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			if d, err := openDatabase(h.storeConfig(), i, false); err == nil {
				ids[i], _ = migrations.StoreID(ctx, migrations.Dialect(h.cfg.Store.Driver), d)
				_ = d.DB.Close()
			}
		})
	}
	wg.Wait()
	return cmp.Or(ids...)
}

// BeginWaiting is called when the start has to wait for servers.
func (h *host) BeginWaiting() {
	if h.giveUp != nil {
		h.giveUp()
		return
	}
	h.announce()
}

// Drain calls idle for each of these partitions once none of its tasks runs or waits here, until ctx ends.
// This node owns them no longer, so no tasks are added.
func (h *host) Drain(ctx context.Context, partitions []int, idle func(partition int)) {
	lost := make(map[int]bool, len(partitions))
	for _, p := range partitions {
		lost[p] = true
	}
	h.queue.DropPartitions(func(p int) bool { return lost[p] })
	h.runner.Hurry()
	var wg sync.WaitGroup
	for _, p := range partitions {
		wg.Go(func() {
			if h.waitPartition(ctx, p) {
				idle(p)
			} else {
				h.runner.Abandon(p)
			}
		})
	}
	wg.Wait()
}

// cutOff is how long a partition waits for running tasks when its database is unreachable: the outcomes cannot
// be recorded, so waiting longer is pointless.
const cutOff = time.Second

// waitPartition reports whether another node can take the partition now.
func (h *host) waitPartition(ctx context.Context, p int) bool {
	down := h.isUnreachable(h.layout.PartitionDatabase(p))
	waitCtx := ctx
	if down {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeout(ctx, cutOff)
		defer cancel()
	}
	empty := h.queue.WaitPartition(waitCtx, p) == nil && h.timer.WaitPartition(waitCtx, p) == nil
	return empty || down && ctx.Err() == nil
}

// Unreachable lists the databases that this node cannot use and another one perhaps can.
func (h *host) Unreachable() (list []int) {
	for d := range h.layout.Databases {
		if h.isUnreachable(d) {
			list = append(list, d)
		}
	}
	return list
}

func (h *host) isUnreachable(database int) bool {
	c := h.store.Condition(database)
	return c.Down != nil || c.IsReadOnly()
}

// Died makes the engine read again what the dead node may have claimed.
func (h *host) Died() { h.timer.Reread() }

// SetWorker sets the worker number of job_ids.
func (h *host) SetWorker(n int) {
	if err := h.ids.SetWorker(n); err != nil {
		h.component("cluster").Error("worker number refused", "error", err) // impossible: the cluster leases from the same range
	}
}
