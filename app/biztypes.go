package app

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/wait"
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

const (
	loadsFor    = time.Second            // the load of the other nodes is asked for again after this
	loadsWithin = 500 * time.Millisecond // and not waited for longer
)

// loads are the last known loads of the other nodes. A node that does not answer counts as it last did, while it is a member.
type loads struct {
	mu     wait.Mutex // one caller asks, the others wait for its answers
	asked  time.Time
	byNode map[string]nodeLoad
}

type nodeLoad struct {
	at       time.Time // of the answer
	bizTypes []api.BizType
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
	a.loads.mu.Lock()
	defer a.loads.mu.Unlock()
	if time.Since(a.loads.asked) >= loadsFor {
		a.loads.byNode = a.askLoads(ctx, a.loads.byNode)
		a.loads.asked = time.Now()
	}
	for _, load := range a.loads.byNode {
		age := time.Since(load.at).Truncate(time.Millisecond).Seconds()
		for _, b := range load.bizTypes {
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

// askLoads asks all other nodes at once.
func (a *App) askLoads(ctx context.Context, last map[string]nodeLoad) map[string]nodeLoad {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadsWithin) // the answers are for other callers, too
	defer cancel()
	var mu sync.Mutex
	var asks sync.WaitGroup
	now := make(map[string]nodeLoad)
	for _, m := range a.cluster.Members() {
		if m.Name == a.node {
			continue
		}
		asks.Go(func() {
			list, err := a.forward.BizTypes(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				now[m.Name] = nodeLoad{time.Now(), list}
			} else if before, ok := last[m.Name]; ok {
				now[m.Name] = before
			}
		})
	}
	asks.Wait()
	return now
}
