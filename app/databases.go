package app

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// watchDatabases logs changes of the databases' conditions, until ctx ends. A database that becomes usable is
// scanned at once.
func (a *App) watchDatabases(ctx context.Context) error {
	log := a.component("store")
	return a.store.Watch(ctx, func(database int, before, now store.Condition) {
		switch {
		case before.Down == nil && now.Down != nil:
			log.Warn("database is out of reach, its partitions wait", "database", database, "error", now.Down)
		case before.Down != nil && now.Down == nil:
			log.Info("database answers again", "database", database)
		}
		switch {
		case before.Refusing == nil && now.Refusing != nil:
			log.Warn("database refuses writes", "database", database, "error", now.Refusing)
		case before.Refusing != nil && now.Refusing == nil:
			log.Info("database takes writes again", "database", database)
		}
		switch {
		case before.Slow == 0 && now.Slow != 0:
			log.Warn("database is slow", "database", database, "answer", now.Slow.Round(time.Millisecond))
		case before.Slow != 0 && now.Slow == 0:
			log.Info("database is fast again", "database", database)
		}
		if now.Usable() {
			a.scanner.TickDatabase(database)
		}
	})
}

// unreachableDatabases lists the databases that this node cannot use and another one perhaps can.
func (a *App) unreachableDatabases() (list []int) {
	for d := range a.layout.Databases {
		if a.isUnreachable(d) {
			list = append(list, d)
		}
	}
	return list
}

func (a *App) isUnreachable(database int) bool {
	c := a.store.Condition(database)
	return c.Down != nil || c.IsReadOnly()
}
