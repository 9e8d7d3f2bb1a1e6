package app

import (
	"context"

	"github.com/timeoutcenter/toc/store"
)

// watchDatabases follows the databases' conditions until ctx ends. A database that becomes usable is scanned at once.
func (a *App) watchDatabases(ctx context.Context) error {
	return a.store.Watch(ctx, func(database int, _, now store.Condition) {
		a.logFaults()
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
