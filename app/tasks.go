package app

import (
	"context"
	"fmt"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// Tasks submits, changes and looks up the tasks of a center in the same process. Its methods are those of
// client.Client, with the same requests and answers, so one interface of a program fits both. errors.Is and
// errors.As find the same errors of package task; those of a Client are also a *client.Error.
type Tasks struct{ service *intake.Service }

// Tasks returns the tasks of the center. They can be used between Start and Stop.
func (a *App) Tasks() *Tasks { return &Tasks{a.service} }

// Submit stores one task. If it returns no error, the task is committed. A task without a time is a
// *task.FieldError.
func (t *Tasks) Submit(ctx context.Context, s client.Submit) (client.Submitted, error) {
	r, err := s.Request()
	if err != nil {
		return client.Submitted{}, err
	}
	got, err := t.service.Submit(ctx, intake.SubmitOf(&r))
	stored, err := t.withETag(got.Task, err)
	return client.Submitted{Task: stored, Duplicate: got.Duplicate}, err
}

// SubmitBatch stores up to 10,000 tasks and returns a result for each of them, in order. A refused one does not
// affect the others. After an error none is stored.
func (t *Tasks) SubmitBatch(ctx context.Context, list []client.Submit) ([]client.BatchResult, error) {
	if n := len(list); n < 1 || n > intake.MaxBatch {
		return nil, &task.FieldError{Field: "tasks", Message: fmt.Sprintf("holds %d tasks; give 1 to %d", n, intake.MaxBatch)}
	}
	submits := make([]intake.Submit, len(list))
	for i, s := range list {
		r, err := s.Request()
		if err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
		submits[i] = intake.SubmitOf(&r)
	}
	results := make([]client.BatchResult, len(list))
	for i, s := range t.service.SubmitBatch(ctx, submits) {
		results[i], _ = s.Wire()
	}
	return results, nil
}

// Get reads a task; task.ErrNotFound if there is none.
func (t *Tasks) Get(ctx context.Context, jobID uint64) (client.Task, error) {
	got, err := t.service.Get(ctx, jobID)
	return t.withRunning(ctx, got, err)
}

// GetByKey is Get by the caller's own key.
func (t *Tasks) GetByKey(ctx context.Context, k client.Key) (client.Task, error) {
	got, err := t.service.ByKey(ctx, intake.Key(k))
	return t.withRunning(ctx, got, err)
}

// Why returns where a task waits and the causes that hold it, or how it ended; task.ErrNotFound if there is none.
func (t *Tasks) Why(ctx context.Context, jobID uint64) (client.Why, error) {
	return t.service.Why(ctx, jobID)
}

// WhyByKey is Why by the caller's own key.
func (t *Tasks) WhyByKey(ctx context.Context, k client.Key) (client.Why, error) {
	got, err := t.service.ByKey(ctx, intake.Key(k))
	if err != nil {
		return client.Why{}, err
	}
	return t.Why(ctx, got.JobID)
}

// List reads the tasks of a biz_id in the order of their submission.
func (t *Tasks) List(ctx context.Context, q client.List) (client.Page, error) {
	status, err := intake.StatusOf(q.Status)
	if err != nil {
		return client.Page{}, err
	}
	after, asOf, err := intake.CursorOf(api.CursorTasks, q.Cursor)
	if err != nil {
		return client.Page{}, err
	}
	p, err := t.service.List(ctx, intake.List{
		BizID: q.BizID, BizKey: q.BizKey, BizType: q.BizType, Status: status, After: after, AsOf: asOf, Limit: q.Limit,
	})
	return t.page(api.CursorTasks, p, err)
}

// ListAll reads tasks of all tables, in the order of table, action_time and job_id. A page may be short, or empty,
// although it has a NextCursor.
func (t *Tasks) ListAll(ctx context.Context, q client.ListAll) (client.Page, error) {
	status, err := intake.StatusOf(q.Status)
	if err != nil {
		return client.Page{}, err
	}
	ask := intake.ListAll{BizType: q.BizType, From: q.From, To: q.To, Limit: q.Limit}
	if status != nil {
		ask.Status = *status
	}
	if ask.After, err = intake.PlaceOf(q.Cursor); err != nil {
		return client.Page{}, err
	}
	p, err := t.service.ListAll(ctx, ask)
	if err != nil {
		return client.Page{}, err
	}
	return p.Wire(t.service.Types()), nil
}

// Cancel cancels a pending task. Without an error it never fires. A task that is not
// pending, or running now, is a *task.ConflictError.
func (t *Tasks) Cancel(ctx context.Context, jobID uint64, opts ...client.ChangeOption) error {
	ifMatch, err := tags(opts)
	if err != nil {
		return err
	}
	return t.service.CancelIf(ctx, jobID, ifMatch)
}

// CancelByKey is Cancel by the caller's own key.
func (t *Tasks) CancelByKey(ctx context.Context, k client.Key, opts ...client.ChangeOption) error {
	got, err := t.service.ByKey(ctx, intake.Key(k))
	if err != nil {
		return err
	}
	return t.Cancel(ctx, got.JobID, opts...)
}

// Reschedule changes a pending task in one step and returns the changed task. Its conflicts are those of
// Cancel.
func (t *Tasks) Reschedule(ctx context.Context, jobID uint64, c client.Change, opts ...client.ChangeOption) (client.Task, error) {
	ifMatch, err := tags(opts)
	if err != nil {
		return client.Task{}, err
	}
	r, err := c.Request()
	if err != nil {
		return client.Task{}, err
	}
	return t.withETag(t.service.Reschedule(ctx, jobID, intake.ChangeOf(&r, ifMatch)))
}

// RescheduleByKey is Reschedule by the caller's own key.
func (t *Tasks) RescheduleByKey(ctx context.Context, k client.Key, c client.Change, opts ...client.ChangeOption) (client.Task, error) {
	got, err := t.service.ByKey(ctx, intake.Key(k))
	if err != nil {
		return client.Task{}, err
	}
	return t.Reschedule(ctx, got.JobID, c, opts...)
}

// Redrive gives a dead task a fresh start: pending, attempts 0, due now. For a task that is not dead it returns
// a *task.ConflictError.
func (t *Tasks) Redrive(ctx context.Context, jobID uint64, opts ...client.ChangeOption) (client.Task, error) {
	ifMatch, err := tags(opts)
	if err != nil {
		return client.Task{}, err
	}
	return t.withETag(t.service.RedriveIf(ctx, jobID, ifMatch))
}

// ListDead reads dead tasks, table by table, in each by job_id.
func (t *Tasks) ListDead(ctx context.Context, q client.ListDead) (client.Page, error) {
	after, _, err := intake.CursorOf(api.CursorDead, q.Cursor)
	if err != nil {
		return client.Page{}, err
	}
	p, err := t.service.ListDead(ctx, intake.Dead{BizType: q.BizType, Error: q.Error, Since: q.Since, Until: q.Until}, after, q.Limit)
	return t.page(api.CursorDead, p, err)
}

// Forecast counts the pending tasks that are due from now on, by steps of time.
func (t *Tasks) Forecast(ctx context.Context, q client.AskForecast) (client.Forecast, error) {
	f, err := t.service.Forecast(ctx, intake.Forecast{BizType: q.BizType, Step: q.Step, Span: q.Span})
	if err != nil {
		return client.Forecast{}, err
	}
	return f.Wire(t.service.Types()), nil
}

// DeadGroups sums up the dead tasks of a business type (empty: of all) by their error, the largest groups first.
func (t *Tasks) DeadGroups(ctx context.Context, bizType string) (client.DeadGroups, error) {
	g, err := t.service.DeadGroups(ctx, bizType)
	if err != nil {
		return client.DeadGroups{}, err
	}
	return g.Wire(t.service.Types()), nil
}

// RedriveDead makes the matching dead tasks pending, attempts 0, due now. After an error the result counts
// those redriven before it.
func (t *Tasks) RedriveDead(ctx context.Context, r client.RedriveDead) (client.Redriven, error) {
	got, err := t.service.RedriveDead(ctx, intake.DeadOf(&r))
	return client.Redriven{Matched: got.Matched, Redriven: got.Changed, Operation: client.ID(got.Operation)}, err
}

// DiscardDead makes the matching dead tasks cancelled. After an error the result counts those discarded before it.
func (t *Tasks) DiscardDead(ctx context.Context, r client.DiscardDead) (client.Discarded, error) {
	got, err := t.service.DiscardDead(ctx, intake.DeadOf(&r))
	return client.Discarded{Matched: got.Matched, Discarded: got.Changed, Operation: client.ID(got.Operation)}, err
}

// Retry makes the pending tasks of a business type run now that have failed and would run again later; see client.Client.Retry.
func (t *Tasks) Retry(ctx context.Context, bizType string, rate float64) (client.Retried, error) {
	got, err := t.service.RetryFailing(ctx, bizType, rate)
	return client.Retried{Matched: got.Matched, Retried: got.Changed, Operation: client.ID(got.Operation)}, err
}

// Audit reads who did what, the latest first.
func (t *Tasks) Audit(ctx context.Context, q client.Audit) (client.AuditPage, error) {
	ask := intake.Audit{Actor: q.Actor, Action: q.Action, From: q.From, To: q.To, Limit: q.Limit}
	if q.Cursor != "" {
		var err error
		if ask.After.At, ask.After.Database, ask.After.ID, err = api.ParseAuditCursor([]byte(q.Cursor)); err != nil {
			return client.AuditPage{}, &task.FieldError{Field: "cursor", Message: err.Error()}
		}
	}
	p, err := t.service.Audit(ctx, ask)
	if err != nil {
		return client.AuditPage{}, err
	}
	return p.Wire(), nil
}

// withETag adds the ETag to a task.
func (t *Tasks) withETag(got task.Task, err error) (client.Task, error) {
	if err != nil {
		return client.Task{}, err
	}
	shown := api.From(got, t.service.Types().NameOf(got.BizType))
	shown.ETag = api.ETag(&got)
	return shown, nil
}

// withRunning adds the ETag, and the run of the task if its owner runs it.
func (t *Tasks) withRunning(ctx context.Context, got task.Task, err error) (client.Task, error) {
	shown, err := t.withETag(got, err)
	if err != nil {
		return shown, err
	}
	if r, runs := t.service.Running(ctx, got); runs {
		shown.Running = r.Wire()
	}
	return shown, nil
}

func (t *Tasks) page(list byte, p intake.Page, err error) (client.Page, error) {
	if err != nil {
		return client.Page{}, err
	}
	return p.Wire(t.service.Types(), list), nil
}

// tags returns the condition of a change.
func tags(opts []client.ChangeOption) (ifMatch []string, err error) {
	var c client.Condition
	for _, o := range opts {
		o(&c)
	}
	if c.IfMatch == nil {
		return nil, nil
	}
	if ifMatch, err = api.ParseIfMatch(c.IfMatch); err != nil {
		err = &task.FieldError{Field: "If-Match", Message: err.Error()}
	}
	return ifMatch, err
}
