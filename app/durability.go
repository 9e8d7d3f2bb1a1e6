package app

import (
	"context"
	"slices"
	"strings"
	"time"
)

// durabilityEvery is the interval at which each database is asked what its durability rests on.
const durabilityEvery = 10 * time.Second

// readDurability asks the databases. Of one that does not answer the last answer stands.
func (a *App) readDurability(ctx context.Context) {
	log := a.component("store")
	for d := range a.layout.Databases {
		if a.store.Condition(d).Down != nil {
			continue
		}
		now, err := a.store.Durability(ctx, d)
		if err != nil {
			continue // the store's own watch reports it
		}
		before := a.notDurable[d].Swap(&now)
		switch {
		case len(now) > 0 && (before == nil || !slices.Equal(*before, now)):
			log.Warn("database is not durable: answered writes may be lost", "database", d, "settings", strings.Join(now, "; "))
		case len(now) == 0 && before != nil && len(*before) > 0:
			log.Info("database is durable again", "database", d)
		}
	}
}

// durable reports for each database whether its answered writes are on disk; nil: it has not answered yet.
func (a *App) durable() []*bool {
	list := make([]*bool, a.layout.Databases)
	for d := range list {
		if faults := a.notDurable[d].Load(); faults != nil {
			list[d] = new(len(*faults) == 0)
		}
	}
	return list
}
