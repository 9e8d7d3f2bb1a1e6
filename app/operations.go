package app

import (
	"context"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
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

// Operations lists the latest redrives and discards that have a rate, the latest first; limit 0 is 100.
func (t *Tasks) Operations(ctx context.Context, limit int) ([]client.Operation, error) {
	list, err := t.service.Operations(ctx, limit)
	return intake.OperationsOf(list, t.service.Types()).Operations, err
}

// Operation reads an operation; task.ErrNotFound if there is none.
func (t *Tasks) Operation(ctx context.Context, id uint64) (client.Operation, error) {
	o, err := t.service.Operation(ctx, id)
	return intake.Operation(&o, t.service.Types()), err
}

// UndoOperation takes an operation back: the tasks that it has redriven or discarded are dead again, with their attempts
// as before. Tasks that have started or changed since stay as they are. It returns the operation that does this.
func (t *Tasks) UndoOperation(ctx context.Context, id uint64) (client.Operation, error) {
	o, err := t.service.UndoOperation(ctx, id)
	return intake.Operation(&o, t.service.Types()), err
}

// StopOperation stops an operation and returns it. What it has changed stays so; one that has ended stays as it is.
func (t *Tasks) StopOperation(ctx context.Context, id uint64) (client.Operation, error) {
	o, err := t.service.StopOperation(ctx, id)
	return intake.Operation(&o, t.service.Types()), err
}
