package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// fitness is what this node knows of a database.
type fitness struct {
	prepared bool // since it was last unable
	unable   bool // as ConsulConfig.Unable says
}

func (f fitness) fit() bool { return f.prepared && !f.unable }

// prepareAll prepares all databases. One that cannot be reached is left to Run; if
// none can, or one is unfit for use, that is an error.
func (c *Consul) prepareAll(ctx context.Context) error {
	errs := make([]error, len(c.databases))
	var wg sync.WaitGroup
	for d := range errs {
		wg.Go(func() { errs[d] = c.cfg.Prepare(ctx, d) })
	}
	wg.Wait()

	var unreachable error
	missing := 0
	for d, err := range errs {
		var down *store.DatabaseError
		switch {
		case err == nil:
			c.setFitness(d, func(f *fitness) { f.prepared = true })
		case errors.As(err, &down):
			unreachable = err
			missing++
			c.cfg.Logger.Warn("database not reachable; its partitions wait, or are others'", "database", d, "error", err)
		default:
			return err
		}
	}
	c.judge()
	if missing == len(errs) {
		return errors.Join(errors.New("none of the databases can be reached"), unreachable)
	}
	return nil
}

func (c *Consul) setFitness(database int, change func(*fitness)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.databases[database])
}

// probe asks once a second which databases cannot be reached, and prepares those
// that can be again, until ctx ends.
func (c *Consul) probe(ctx context.Context) {
	var mending sync.WaitGroup
	defer mending.Wait()
	busy := make([]chan struct{}, len(c.databases)) // closed when done
	for {
		unable := c.cfg.Unable()
		for d := range c.databases {
			bad := slices.Contains(unable, d)
			mend := false
			c.setFitness(d, func(f *fitness) {
				f.unable = bad
				f.prepared = f.prepared && !bad
				mend = !f.prepared && !bad
			})
			if !mend || busy[d] != nil && !isClosed(busy[d]) {
				continue
			}
			busy[d] = make(chan struct{})
			mending.Go(func() {
				defer close(busy[d])
				c.mend(ctx, d)
			})
		}
		c.judge()
		sleep(ctx, time.Second)
		if ctx.Err() != nil {
			return
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mend prepares a database with growing pauses, up to 30 s, until it is fit for
// use or unable again.
func (c *Consul) mend(ctx context.Context, database int) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, 30*time.Second) {
		err := c.cfg.Prepare(ctx, database)
		if err == nil {
			c.setFitness(database, func(f *fitness) { f.prepared = true })
			c.cfg.Logger.Info("database is fit for use", "database", database)
			c.judge()
			return
		}
		if ctx.Err() == nil {
			c.cfg.Logger.Warn("database not usable", "database", database, "retry_in", pause, "error", err)
		}
		sleep(ctx, pause)
	}
}

// judge tells the cluster when the databases that this node is able to work have
// changed.
func (c *Consul) judge() {
	var unable []int
	c.mu.Lock()
	for d, f := range c.databases {
		if !f.fit() {
			unable = append(unable, d)
		}
	}
	same := slices.Equal(unable, c.unable)
	c.unable = unable
	c.mu.Unlock()
	if !same {
		c.cfg.Logger.Info("databases that this node cannot work", "databases", unable)
		ring(c.pulse)
		ring(c.wake)
	}
}
