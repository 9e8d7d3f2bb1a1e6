package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// What makes a database count as out of this node's reach, and as back.
const (
	pingEvery   = time.Second
	pingTimeout = time.Second
	pingsToFail = 2
)

// health knows which databases this node cannot reach, so that other nodes get
// their partitions.
type health struct {
	store    *store.Store
	failures []atomic.Int32 // by database: pings in a row
}

func newHealth(s *store.Store, databases int) *health {
	return &health{store: s, failures: make([]atomic.Int32, databases)}
}

// run asks all databases until ctx ends.
func (h *health) run(ctx context.Context) error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		var wg sync.WaitGroup
		for d := range h.failures {
			wg.Go(func() { h.ping(ctx, d) })
		}
		wg.Wait()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *health) ping(ctx context.Context, database int) {
	patience, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	switch err := h.store.Ping(patience, database); {
	case err == nil:
		h.failures[database].Store(0)
	case ctx.Err() == nil:
		h.failures[database].Add(1)
	}
}

func (h *health) isDown(database int) bool { return h.failures[database].Load() >= pingsToFail }

// down lists the databases that are out of reach.
func (h *health) down() []int {
	var list []int
	for d := range h.failures {
		if h.isDown(d) {
			list = append(list, d)
		}
	}
	return list
}
