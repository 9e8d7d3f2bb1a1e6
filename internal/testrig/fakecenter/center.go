// Package fakecenter is a center that stores nothing, for the tests of its doors: the HTTP API, the console and the client.
package fakecenter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// Now is when each of its tasks was submitted and is due.
var Now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// Center answers each request with Err, and else the same each time. It panics with Err if Panics is set.
type Center struct {
	BizTypes *task.Types
	Err      error
	Panics   bool
	Seen     func(ctx context.Context) // called in each request; nil: nothing is
	Calls    atomic.Int64
	Tasks    []api.Task       // of the answers to List and ListAll
	Leased   []api.LeasedTask // of those to Lease
	Sizes    []int            // of the batches
	Woken    []uint64         // the tasks of wakes
}

var _ api.Center = (*Center)(nil)

// answer counts a request, and answers it.
func answer[T any](ctx context.Context, c *Center, answer T) (T, error) {
	c.Calls.Add(1)
	if c.Seen != nil {
		c.Seen(ctx)
	}
	if c.Panics {
		panic(c.Err)
	}
	return answer, c.Err
}

func order(jobID uint64) task.Task {
	return task.Task{JobID: jobID, BizType: 1, ActionTime: Now, Created: Now, Modified: Now}
}

// shown is a task as it is answered.
func shown(t task.Task) api.Task {
	a := api.From(t, "order_close")
	a.ETag = api.ETag(&t)
	return a
}

// Types returns the business types.
func (c *Center) Types() *task.Types { return c.BizTypes }

// FindLeased finds nothing.
func (c *Center) FindLeased(ctx context.Context, _ api.BizID, _, _ string) ([]task.Task, error) {
	return answer[[]task.Task](ctx, c, nil)
}

// Wake keeps what it was woken for. A wake fails for nobody.
func (c *Center) Wake(ctx context.Context, jobIDs []uint64) int {
	_, _ = answer(ctx, c, 0)
	c.Woken = jobIDs
	return len(jobIDs)
}

// The methods of an api.Center follow.

func (c *Center) Submit(ctx context.Context, s api.Submit) (api.Submitted, error) {
	t := order(1 << 60)
	t.BizID, t.BizKey, t.Attribute, t.DedupKey = s.BizID, s.BizKey, s.Attribute, s.DedupKey
	return answer(ctx, c, api.Submitted{Task: shown(t)})
}

func (c *Center) SubmitBatch(ctx context.Context, list []api.Submit) ([]api.BatchResult, error) {
	c.Sizes = append(c.Sizes, len(list))
	results := make([]api.BatchResult, len(list))
	for i := range list {
		if id, err := answer[api.ID](ctx, c, 1<<60); err != nil {
			results[i].Err = api.NewBatchError(err)
		} else {
			results[i].JobID = id
		}
	}
	return results, nil
}

func (c *Center) Get(ctx context.Context, jobID uint64) (api.Task, error) {
	t := shown(order(jobID))
	t.Running = &api.Running{Node: "n1", Since: api.Time(Now)}
	return answer(ctx, c, t)
}

func (c *Center) GetByKey(ctx context.Context, _ api.Key) (api.Task, error) { return c.Get(ctx, 1) }

func (c *Center) Why(ctx context.Context, _ uint64) (api.Why, error) {
	return answer(ctx, c, api.Why{State: "pending", Where: api.WhyQueue, Node: "n1", Because: []string{"so"}})
}

func (c *Center) WhyByKey(ctx context.Context, _ api.Key) (api.Why, error) { return c.Why(ctx, 1) }

func (c *Center) List(ctx context.Context, _ api.List) (api.Page, error) { return c.page(ctx, c.Tasks) }

func (c *Center) ListAll(ctx context.Context, _ api.ListAll) (api.Page, error) {
	return c.page(ctx, c.Tasks)
}

func (c *Center) ListDead(ctx context.Context, _ api.ListDead) (api.Page, error) {
	return c.page(ctx, nil)
}

func (c *Center) page(ctx context.Context, list []api.Task) (api.Page, error) {
	return answer(ctx, c, api.Page{Tasks: append([]api.Task{}, list...)})
}

func (c *Center) Forecast(ctx context.Context, _ api.AskForecast) (api.Forecast, error) {
	return answer(ctx, c, api.Forecast{AsOf: api.Time(Now), StepSeconds: 60, Buckets: []api.DueBucket{}, Crowded: []api.DueSecond{}})
}

func (c *Center) Cancel(ctx context.Context, _ uint64, _ ...api.ChangeOption) error {
	_, err := answer(ctx, c, 0)
	return err
}

func (c *Center) CancelByKey(ctx context.Context, _ api.Key, _ ...api.ChangeOption) error {
	return c.Cancel(ctx, 1)
}

func (c *Center) Reschedule(ctx context.Context, id uint64, _ api.Change, _ ...api.ChangeOption) (api.Task, error) {
	return answer(ctx, c, shown(order(id)))
}

func (c *Center) RescheduleByKey(ctx context.Context, _ api.Key, _ api.Change, _ ...api.ChangeOption) (api.Task, error) {
	return answer(ctx, c, shown(order(1)))
}

func (c *Center) Redrive(ctx context.Context, id uint64, _ ...api.ChangeOption) (api.Task, error) {
	return answer(ctx, c, shown(order(id)))
}

func (c *Center) DeadGroups(ctx context.Context, _ string) (api.DeadGroups, error) {
	return answer(ctx, c, api.DeadGroups{Groups: []api.DeadGroup{}})
}

func (c *Center) RedriveDead(ctx context.Context, _ api.DeadRequest) (api.Redriven, error) {
	return answer(ctx, c, api.Redriven{})
}

func (c *Center) DiscardDead(ctx context.Context, _ api.DeadRequest) (api.Discarded, error) {
	return answer(ctx, c, api.Discarded{})
}

func (c *Center) Retry(ctx context.Context, _ string, _ float64) (api.Retried, error) {
	return answer(ctx, c, api.Retried{})
}

func (c *Center) Pause(ctx context.Context, name string, p api.AskPause) (api.BizType, error) {
	return answer(ctx, c, api.BizType{Name: name, Paused: &api.Pause{Reason: p.Reason, Until: api.Time(p.Until)}})
}

func (c *Center) Resume(ctx context.Context, name string) (api.BizType, error) {
	return answer(ctx, c, api.BizType{Name: name})
}

func (c *Center) Operations(ctx context.Context, _ int) ([]api.Operation, error) {
	return answer(ctx, c, []api.Operation{})
}

func (c *Center) Operation(ctx context.Context, id uint64) (api.Operation, error) {
	return answer(ctx, c, api.Operation{ID: api.ID(id)})
}

func (c *Center) StopOperation(ctx context.Context, id uint64) (api.Operation, error) {
	return c.Operation(ctx, id)
}

func (c *Center) UndoOperation(ctx context.Context, id uint64) (api.Operation, error) {
	return answer(ctx, c, api.Operation{ID: api.ID(id) + 1, Kind: "undo", Undoes: api.ID(id)})
}

func (c *Center) Audit(ctx context.Context, _ api.Audit) (api.AuditPage, error) {
	return answer(ctx, c, api.AuditPage{Entries: []api.AuditEntry{}})
}

func (c *Center) Lease(ctx context.Context, _ string, q api.AskLease) (api.LeaseAnswer, error) {
	return answer(ctx, c, api.LeaseAnswer{Tasks: append([]api.LeasedTask{}, c.Leased...), Results: settled(q.Settle)})
}

func (c *Center) Settle(ctx context.Context, list ...api.Settlement) ([]api.Settled, error) {
	return answer(ctx, c, settled(list))
}

func settled(list []api.Settlement) (results []api.Settled) {
	for _, s := range list {
		results = append(results, api.Settled{Lease: s.Lease, Result: api.SettledOK})
	}
	return results
}
