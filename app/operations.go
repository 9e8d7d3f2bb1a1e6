package app

import (
	"context"

	"github.com/timeoutcenter/toc/intake/bulk"
)

func (a *App) newOperations(owned owners) *bulk.Runner {
	return bulk.New(bulk.Config{
		Store: a.store, Databases: a.layout.Databases, Any: a.control.OperationRuns, Runs: func() bool { return owned.Owns(0) },
		Undo: a.service.UndoTasks, Redriven: a.wakeRedriven, Discarded: a.forgetDiscarded, Now: a.clock.Now, Logger: a.component("operations"),
	})
}

// wakeRedriven brings redriven tasks to their engines, on any node. A tick finds the tasks that it misses.
func (a *App) wakeRedriven(ctx context.Context, jobIDs []uint64) {
	a.service.Wake(ctx, jobIDs) // of this node's partitions
	var others []uint64
	for _, id := range jobIDs {
		if shard, ok := a.layout.ShardOf(id); ok && a.forward != nil && !a.cluster.Ownership().Owns(a.layout.Partition(shard)) {
			others = append(others, id)
		}
	}
	if len(others) == 0 {
		return
	}
	list, err := a.store.Load(ctx, others)
	if err == nil {
		a.dispatcher.Place(list...)
	}
}

// forgetDiscarded takes discarded tasks out of the dead queues in Redis.
func (a *App) forgetDiscarded(jobIDs []uint64) {
	for _, id := range jobIDs {
		a.dispatcher.Forget(id)
	}
}
