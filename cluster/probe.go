package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// databaseState is this node's view of a database.
type databaseState struct {
	prepared    bool // and claimed, since it was last unreachable
	unreachable bool // see ConsulConfig.Unreachable

	abandoned bool // it was claimed from a holder that had not released it
	foreign   bool // another holder has it, so this node owns nothing of it
}

func (f databaseState) usable() bool { return f.prepared && !f.unreachable }

// prepareAll prepares and claims all databases that can be used. It waits until there is one, and Run retries the others. It
// is an error if one is not this store's or held by another.
func (c *Consul) prepareAll(ctx context.Context) error {
	err := c.takeAll(ctx, len(c.databases), false, func(d int) error { return c.prepare(ctx, d) })
	c.publishReachable()
	if err == nil {
		for _, w := range c.Waits() {
			c.cfg.Logger.Warn("database not usable; its partitions wait, or are others'", "database", w.Database, "error", w.Err)
		}
	}
	return err
}

// prepare makes a database ready for use and claims it for this cluster.
func (c *Consul) prepare(ctx context.Context, database int) error {
	if err := c.cfg.Prepare(ctx, database); err != nil {
		return err
	}
	abandoned := false
	if c.cfg.Locker != nil {
		c.mu.Lock()
		id := c.clusterID
		c.mu.Unlock()
		claim, err := c.cfg.Locker.Lock(ctx, database, store.Holder{Kind: store.HolderCluster, ID: id, Name: c.cfg.Prefix})
		if err != nil {
			return err
		}
		c.claims[database] = claim
		abandoned = claim.TakenUncleanly()
	}
	c.setDatabaseState(database, func(f *databaseState) { f.prepared, f.foreign, f.abandoned = true, false, f.abandoned || abandoned })
	return nil
}

func (c *Consul) setDatabaseState(database int, change func(*databaseState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.databases[database])
}

// superviseDatabase checks once a second until ctx ends whether this node reaches a database, and renews the cluster's claim
// on it. One that was unreachable is prepared again, with growing pauses of up to 3 s.
func (c *Consul) superviseDatabase(ctx context.Context, database int) {
	claimed, lastLogged := time.Now(), time.Time{}
	for pause := time.Second; ctx.Err() == nil; _ = wait.For(ctx, pause) {
		unreachable := slices.Contains(c.cfg.Unreachable(), database)
		prepared := false
		c.setDatabaseState(database, func(f *databaseState) {
			f.unreachable, f.prepared = unreachable, f.prepared && !unreachable
			prepared = f.prepared
		})
		c.publishReachable()
		switch {
		case unreachable:
			pause = time.Second
		case prepared:
			pause = time.Second
			err := c.renewClaim(ctx, database)
			if err == nil {
				claimed = time.Now()
			} else if foreign := errors.Is(err, store.ErrLockLost); foreign || time.Since(claimed) > store.Lease && ctx.Err() == nil {
				c.setDatabaseState(database, func(f *databaseState) { f.prepared, f.foreign = false, foreign })
				c.record(database, err)
				c.publishReachable()
				c.cfg.Logger.Error("the cluster's claim on a database is lost", "database", database, "partitions_stop", foreign, "error", err)
			}
		default:
			err := c.prepare(ctx, database)
			c.record(database, err)
			if err == nil {
				pause, claimed, lastLogged = time.Second, time.Now(), time.Time{}
				c.cfg.Logger.Info("database usable", "database", database)
				c.publishReachable()
				continue
			}
			if errors.As(err, new(*store.OccupiedError)) {
				c.setDatabaseState(database, func(f *databaseState) { f.foreign = true })
				c.publishReachable()
			}
			pause = min(2*pause, maxPause)
			if ctx.Err() == nil && time.Since(lastLogged) >= logEvery {
				lastLogged = time.Now()
				c.cfg.Logger.Warn("database not usable", "database", database, "retry_in", pause, "error", err)
			}
		}
	}
}

// renewClaim renews the cluster's claim on a database.
func (c *Consul) renewClaim(ctx context.Context, database int) error {
	if c.claims[database] == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Lease/2)
	defer cancel()
	return c.claims[database].Check(ctx)
}

// publishReachable publishes a change in the set of databases that this node can use.
func (c *Consul) publishReachable() {
	var unreachable []int
	c.mu.Lock()
	foreign := false
	for d, f := range c.databases {
		if !f.usable() {
			unreachable = append(unreachable, d)
		}
		foreign = foreign || f.foreign
	}
	same := slices.Equal(unreachable, c.unreachable)
	c.unreachable = unreachable
	c.mu.Unlock()
	if foreign {
		c.wake.Set() // it may only have been unreachable before
	}
	if !same {
		c.cfg.Logger.Info("unreachable databases", "databases", unreachable)
		c.beatNow.Set()
		c.wake.Set()
	}
}
