package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// databaseState is this node's view of a database.
type databaseState struct {
	prepared    bool // and claimed, since it was last unreachable
	unreachable bool // see MemberHost.Unreachable

	abandoned bool // it was claimed from a holder that had not released it
	foreign   bool // another holder has it, so this node owns nothing of it
}

func (f databaseState) usable() bool { return f.prepared && !f.unreachable }

// databases are the databases as this node can use them, and the claims by which this cluster holds them.
type databases struct {
	*node
	claims    []store.Lock // by database; each for its own goroutine alone
	clusterID atomic.Value // string: random, kept in Consul

	mu          sync.Mutex
	states      []databaseState
	unreachable []int
}

// of returns the state of a partition's database.
func (dbs *databases) of(partition int) databaseState {
	dbs.mu.Lock()
	defer dbs.mu.Unlock()
	return dbs.states[dbs.cfg.Layout.PartitionDatabase(partition)]
}

// unusable lists the databases that this node cannot use.
func (dbs *databases) unusable() []int {
	dbs.mu.Lock()
	defer dbs.mu.Unlock()
	return slices.Clone(dbs.unreachable)
}

// prepareAll prepares and claims all databases that can be used. It waits until there is one, and Run retries the others. It
// is an error if one is not this store's or held by another.
func (dbs *databases) prepareAll(ctx context.Context) error {
	err := dbs.takeAll(ctx, len(dbs.states), false, func(d int) error { return dbs.prepare(ctx, d) })
	dbs.publishReachable()
	if err == nil {
		for _, w := range dbs.Waits() {
			dbs.cfg.Logger.Warn("database not usable; its partitions wait, or are others'", "database", w.Database, "error", w.Err)
		}
	}
	return err
}

// prepare makes a database ready for use and claims it for this cluster.
func (dbs *databases) prepare(ctx context.Context, database int) error {
	if err := dbs.cfg.Host.Prepare(ctx, database); err != nil {
		return err
	}
	abandoned := false
	if dbs.cfg.Locker != nil {
		id, _ := dbs.clusterID.Load().(string)
		claim, err := dbs.cfg.Locker.Lock(ctx, database, store.Holder{Kind: store.HolderCluster, ID: id, Name: dbs.cfg.Prefix})
		if err != nil {
			return err
		}
		dbs.claims[database] = claim
		abandoned = claim.TakenUncleanly()
	}
	dbs.setDatabaseState(database, func(f *databaseState) { f.prepared, f.foreign, f.abandoned = true, false, f.abandoned || abandoned })
	return nil
}

func (dbs *databases) setDatabaseState(database int, change func(*databaseState)) {
	dbs.mu.Lock()
	defer dbs.mu.Unlock()
	change(&dbs.states[database])
}

// superviseDatabase checks once a second until ctx ends whether this node reaches a database, and renews the cluster's claim
// on it. One that was unreachable is prepared again, with growing pauses of up to 3 s.
func (dbs *databases) superviseDatabase(ctx context.Context, database int) {
	claimed, lastLogged := time.Now(), time.Time{}
	for pause := time.Second; ctx.Err() == nil; _ = wait.For(ctx, pause) {
		unreachable := slices.Contains(dbs.cfg.Host.Unreachable(), database)
		prepared := false
		dbs.setDatabaseState(database, func(f *databaseState) {
			f.unreachable, f.prepared = unreachable, f.prepared && !unreachable
			prepared = f.prepared
		})
		dbs.publishReachable()
		switch {
		case unreachable:
			pause = time.Second
		case prepared:
			pause = time.Second
			err := dbs.renewClaim(ctx, database)
			if err == nil {
				claimed = time.Now()
			} else if foreign := errors.Is(err, store.ErrLockLost); foreign || time.Since(claimed) > store.Lease && ctx.Err() == nil {
				dbs.setDatabaseState(database, func(f *databaseState) { f.prepared, f.foreign = false, foreign })
				dbs.record(database, err)
				dbs.publishReachable()
				dbs.cfg.Logger.Error("the cluster's claim on a database is lost", "database", database, "partitions_stop", foreign, "error", err)
			}
		default:
			err := dbs.prepare(ctx, database)
			dbs.record(database, err)
			if err == nil {
				pause, claimed, lastLogged = time.Second, time.Now(), time.Time{}
				dbs.cfg.Logger.Info("database usable", "database", database)
				dbs.publishReachable()
				continue
			}
			if errors.As(err, new(*store.OccupiedError)) {
				dbs.setDatabaseState(database, func(f *databaseState) { f.foreign = true })
				dbs.publishReachable()
			}
			pause = min(2*pause, maxPause)
			if ctx.Err() == nil && time.Since(lastLogged) >= logEvery {
				lastLogged = time.Now()
				dbs.cfg.Logger.Warn("database not usable", "database", database, "retry_in", pause, "error", err)
			}
		}
	}
}

// renewClaim renews the cluster's claim on a database.
func (dbs *databases) renewClaim(ctx context.Context, database int) error {
	if dbs.claims[database] == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Lease/2)
	defer cancel()
	return dbs.claims[database].Check(ctx)
}

// publishReachable publishes a change in the set of databases that this node can use.
func (dbs *databases) publishReachable() {
	var unreachable []int
	dbs.mu.Lock()
	foreign := false
	for d, f := range dbs.states {
		if !f.usable() {
			unreachable = append(unreachable, d)
		}
		foreign = foreign || f.foreign
	}
	same := slices.Equal(unreachable, dbs.unreachable)
	dbs.unreachable = unreachable
	dbs.mu.Unlock()
	if foreign {
		dbs.wake.Set() // it may only have been unreachable before
	}
	if !same {
		dbs.cfg.Logger.Info("unreachable databases", "databases", unreachable)
		dbs.beatNow.Set()
		dbs.wake.Set()
	}
}
