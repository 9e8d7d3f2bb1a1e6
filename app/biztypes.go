package app

import (
	"cmp"
	"context"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// BizTypes returns the business types and their load on this node.
func (a *App) BizTypes() []client.BizType { return a.state().bizTypes() }

// BizTypes returns the business types and their load on all nodes. A node that asks gets this node's.
func (s status) BizTypes(ctx context.Context) ([]api.BizType, error) {
	list := s.App.BizTypes()
	s.addOthers(ctx, list)
	return list, nil
}

// bizTypeOfAll is one of them.
func (a *App) bizTypeOfAll(ctx context.Context, b task.BizType) api.BizType {
	list := []api.BizType{a.state().bizType(b)}
	a.addOthers(ctx, list)
	return list[0]
}

// addOthers adds the load of the other nodes.
func (a *App) addOthers(ctx context.Context, list []api.BizType) {
	if a.forward == nil || intake.IsForwarded(ctx) {
		return
	}
	index := make(map[api.ID]*api.BizType, len(list))
	for i := range list {
		index[list[i].ID] = &list[i]
	}
	a.forward.Detail(ctx)
	for _, m := range a.forward.Others() {
		v := a.forward.View(m.Name) // a node that does not answer counts as it last did, while it is a member
		age := time.Since(v.Detailed).Truncate(time.Millisecond).Seconds()
		for _, b := range v.Answer.BizTypes {
			if sum := index[b.ID]; sum != nil {
				addLoad(sum, b, age)
			}
		}
	}
}

func addLoad(sum *api.BizType, b api.BizType, age float64) {
	sum.QueueDepth += b.QueueDepth
	sum.Running += b.Running
	sum.Overdue += b.Overdue
	if b.Overdue > 0 {
		sum.OldestOverdue = max(sum.OldestOverdue, b.OldestOverdue+age)
	}
	sum.Retryable += b.Retryable
	if sum.Retrying += b.Retrying; b.OldestRetry > 0 {
		sum.OldestRetry = max(sum.OldestRetry, b.OldestRetry+age)
	}
	if b.OldestPromise > 0 {
		sum.OldestPromise = max(sum.OldestPromise, b.OldestPromise+age)
	}
	sum.LastError = cmp.Or(sum.LastError, b.LastError)
	sum.Throttled = cmp.Or(sum.Throttled, b.Throttled)
}
