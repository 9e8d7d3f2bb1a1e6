package rest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// fakeDesk stores nothing. It answers err if that is set, and panics with it if
// panics is set.
type fakeDesk struct {
	rest.Desk // nil: what is not overridden panics
	types     *task.Types
	err       error
	panics    bool
	seen      func(ctx context.Context) // told of each call
	calls     atomic.Int64
	page      intake.Page // what List answers
	leased    []api.LeasedTask
}

func newFakeDesk(t testing.TB) *fakeDesk { return &fakeDesk{types: catalog(t).Load()} }

func (d *fakeDesk) called(ctx context.Context) error {
	d.calls.Add(1)
	if d.seen != nil {
		d.seen(ctx)
	}
	if d.panics {
		panic(d.err)
	}
	return d.err
}

func (d *fakeDesk) Types() *task.Types { return d.types }

func (d *fakeDesk) Submit(ctx context.Context, s intake.Submit) (intake.Submitted, error) {
	r := intake.Submitted{Task: task.Task{
		JobID: 1 << 60, BizID: s.BizID, BizKey: s.BizKey, BizType: 1, ActionTime: now, Attribute: s.Attribute, DedupKey: s.DedupKey, Created: now, Modified: now,
	}}
	r.Err = d.called(ctx)
	return r, r.Err
}

func (d *fakeDesk) SubmitBatch(ctx context.Context, list []intake.Submit) []intake.Submitted {
	results := make([]intake.Submitted, len(list))
	for i := range list {
		results[i], _ = d.Submit(ctx, list[i])
	}
	return results
}

func (d *fakeDesk) Get(ctx context.Context, jobID uint64) (task.Task, error) {
	return task.Task{JobID: jobID, BizType: 1, ActionTime: now}, d.called(ctx)
}

func (d *fakeDesk) Why(ctx context.Context, _ uint64) (api.Why, error) {
	return api.Why{State: "pending", Where: api.WhyQueue, Node: "n1", Because: []string{"so"}}, d.called(ctx)
}

func (d *fakeDesk) List(ctx context.Context, _ intake.List) (intake.Page, error) {
	return d.page, d.called(ctx)
}

func (d *fakeDesk) ListAll(ctx context.Context, _ intake.ListAll) (intake.AllPage, error) {
	return intake.AllPage{Tasks: d.page.Tasks}, d.called(ctx)
}

func (d *fakeDesk) Forecast(ctx context.Context, _ intake.Forecast) (intake.Forecasted, error) {
	return intake.Forecasted{AsOf: now, Step: time.Minute}, d.called(ctx)
}

func (d *fakeDesk) ByKey(ctx context.Context, _ intake.Key) (task.Task, error) { return d.Get(ctx, 1) }

func (d *fakeDesk) Running(context.Context, task.Task) (intake.Running, bool) {
	return intake.Running{Node: "n1", Since: now}, true
}

func (d *fakeDesk) CancelIf(ctx context.Context, _ uint64, _ []string) error { return d.called(ctx) }

func (d *fakeDesk) Reschedule(ctx context.Context, jobID uint64, _ intake.Change) (task.Task, error) {
	return d.Get(ctx, jobID)
}

func (d *fakeDesk) RedriveIf(ctx context.Context, jobID uint64, _ []string) (task.Task, error) {
	return d.Get(ctx, jobID)
}

func (d *fakeDesk) ListDead(ctx context.Context, _ intake.Dead, _ uint64, _ int) (intake.Page, error) {
	return intake.Page{}, d.called(ctx)
}

func (d *fakeDesk) DeadGroups(ctx context.Context, _ string) (intake.DeadGroups, error) {
	return intake.DeadGroups{}, d.called(ctx)
}

func (d *fakeDesk) RedriveDead(ctx context.Context, _ intake.ChangeDead) (intake.ChangedDead, error) {
	return intake.ChangedDead{}, d.called(ctx)
}

func (d *fakeDesk) DiscardDead(ctx context.Context, _ intake.ChangeDead) (intake.ChangedDead, error) {
	return intake.ChangedDead{}, d.called(ctx)
}

func (d *fakeDesk) RetryFailing(ctx context.Context, _ string, _ float64) (intake.ChangedDead, error) {
	return intake.ChangedDead{}, d.called(ctx)
}

func (d *fakeDesk) Operations(ctx context.Context, _ int) ([]store.Operation, error) {
	return nil, d.called(ctx)
}

func (d *fakeDesk) Operation(ctx context.Context, id uint64) (store.Operation, error) {
	return store.Operation{ID: id}, d.called(ctx)
}

func (d *fakeDesk) UndoOperation(ctx context.Context, _ uint64) (store.Operation, error) {
	return store.Operation{ID: 8, Kind: store.OperationUndo, Undoes: 7}, d.called(ctx)
}

func (d *fakeDesk) StopOperation(ctx context.Context, id uint64) (store.Operation, error) {
	return d.Operation(ctx, id)
}

func (d *fakeDesk) Audit(ctx context.Context, _ intake.Audit) (intake.AuditPage, error) {
	return intake.AuditPage{}, d.called(ctx)
}

func (d *fakeDesk) Lease(ctx context.Context, _ intake.Lease) (api.LeaseAnswer, error) {
	return api.LeaseAnswer{Tasks: d.leased}, d.called(ctx)
}

func (d *fakeDesk) Settle(ctx context.Context, list []api.Settlement) ([]api.Settled, error) {
	results := make([]api.Settled, len(list))
	for i := range list {
		results[i] = api.Settled{Lease: list[i].Lease, Result: api.SettledOK}
	}
	return results, d.called(ctx)
}

func (d *fakeDesk) Wake(ctx context.Context, jobIDs []uint64) int {
	_ = d.called(ctx) // a wake fails for nobody
	return len(jobIDs)
}

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
