package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// output is an answer with status 200 and nothing but a body.
type output[T any] struct{ Body T }

type submitOutput struct {
	Status   int
	Location string `header:"Location" doc:"Where the task can be read."`
	ETag     string `header:"ETag" doc:"Names this state of the task; for If-Match."`
	Body     api.Task
}

// submit stores one task: 201, or 200 with the first task if its dedup_key is
// known.
func (a *handlers) submit(ctx context.Context, in *body[api.SubmitRequest]) (*submitOutput, error) {
	s, err := a.desk.Submit(ctx, intake.SubmitOf(&in.sent))
	if err != nil {
		return nil, err
	}
	out := &submitOutput{Status: http.StatusCreated, ETag: api.ETag(&s.Task), Body: a.shape(s.Task)}
	out.Location = "/v1/tasks/" + out.Body.JobID.String()
	if s.Duplicate {
		out.Status = http.StatusOK
	}
	return out, nil
}

// shape is a task as JSON.
func (a *handlers) shape(t task.Task) api.Task {
	return api.From(t, a.desk.Types().NameOf(t.BizType))
}

// ByID is embedded by the inputs of routes that know a task by its job_id.
type ByID struct {
	JobID idParam `path:"job_id" doc:"The task's id." example:"413351953711104"`
}

type taskOutput struct {
	ETag string `header:"ETag" doc:"Names this state of the task; for If-Match."`
	Body api.Task
}

func (a *handlers) one(t task.Task, err error) (*taskOutput, error) {
	if err != nil {
		return nil, err
	}
	return &taskOutput{api.ETag(&t), a.shape(t)}, nil
}

// found is one, and adds the run of the task if the owner of its partition reports one.
func (a *handlers) found(ctx context.Context, t task.Task, err error) (*taskOutput, error) {
	out, err := a.one(t, err)
	if err != nil {
		return nil, err
	}
	if r, runs := a.desk.Running(ctx, t); runs {
		out.Body.Running = r.Wire()
	}
	return out, nil
}

func (a *handlers) get(ctx context.Context, in *ByID) (*taskOutput, error) {
	t, err := a.desk.Get(ctx, uint64(in.JobID.ID))
	return a.found(ctx, t, err)
}

func (a *handlers) why(ctx context.Context, in *ByID) (*output[api.Why], error) {
	w, err := a.desk.Why(ctx, uint64(in.JobID.ID))
	if err != nil {
		return nil, err
	}
	return &output[api.Why]{w}, nil
}

// Change is embedded by the inputs of routes that reschedule a task.
type Change struct {
	Condition
	body[api.ChangeRequest]
}

// Resolve reads the header and the body.
func (c *Change) Resolve(ctx huma.Context) []error {
	return append(c.Condition.Resolve(ctx), c.body.Resolve(ctx)...)
}

type changeInput struct {
	ByID
	Change
}

func (a *handlers) change(ctx context.Context, in *changeInput) (*taskOutput, error) {
	return a.one(a.desk.Reschedule(ctx, uint64(in.JobID.ID), intake.ChangeOf(&in.sent, in.tags)))
}

type conditionalInput struct {
	ByID
	Condition
}

func (a *handlers) redrive(ctx context.Context, in *conditionalInput) (*taskOutput, error) {
	return a.one(a.desk.RedriveIf(ctx, uint64(in.JobID.ID), in.tags))
}

func (a *handlers) cancel(ctx context.Context, in *conditionalInput) (*output[api.Cancelled], error) {
	return a.cancelled(a.desk.CancelIf(ctx, uint64(in.JobID.ID), in.tags))
}

func (a *handlers) cancelled(err error) (*output[api.Cancelled], error) {
	if err != nil {
		return nil, err
	}
	return &output[api.Cancelled]{api.Cancelled{Outcome: api.OutcomeCancelled}}, nil
}

type listInput struct {
	BizID   string    `query:"biz_id" minLength:"1" maxLength:"128" doc:"Tasks of this biz_id, a number or a text; they lie in one table. Left out: tasks of all tables." example:"42"`
	BizType string    `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Status  string    `query:"status" enum:"pending,processed,cancelled,dead" doc:"Only tasks in this status. Left out: all of a biz_id; without one, the pending ones."`
	From    timeParam `query:"from" doc:"Only tasks whose action_time is this or later, RFC 3339. Without biz_id only."`
	To      timeParam `query:"to" doc:"Only tasks whose action_time is before this, RFC 3339. Without biz_id only."`
	Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many tasks: 1 to 1000, 100 if left out."`
	Cursor  string    `query:"cursor" doc:"The next_cursor of the page before."`
}

// Resolve refuses an empty biz_id: it comes from a variable that is not set, and must not mean all tasks.
func (in *listInput) Resolve(ctx huma.Context) []error {
	if u := ctx.URL(); in.BizID == "" && u.Query().Has("biz_id") {
		return []error{&huma.ErrorDetail{Location: "query.biz_id", Message: "is empty; give a biz_id, or leave it out for all tasks"}}
	}
	return nil
}

func (a *handlers) list(ctx context.Context, in *listInput) (*output[api.Page], error) {
	status, err := intake.StatusOf(in.Status)
	if err != nil {
		return nil, err
	}
	if in.BizID == "" {
		return a.listAll(ctx, in, status)
	}
	if !in.From.IsZero() || !in.To.IsZero() {
		return nil, &task.FieldError{Field: "from", Message: "from and to do not go together with biz_id; leave them out, or biz_id"}
	}
	bizID, err := api.ParseBizID(in.BizID)
	if err != nil {
		return nil, &task.FieldError{Field: "biz_id", Message: err.Error()}
	}
	after, asOf, err := intake.CursorOf(api.CursorTasks, in.Cursor)
	if err != nil {
		return nil, err
	}
	p, err := a.desk.List(ctx, intake.List{
		BizID: bizID.Number, BizKey: bizID.Key, BizType: in.BizType, Status: status, After: after, AsOf: asOf, Limit: in.Limit,
	})
	return a.page(ctx, api.CursorTasks, p, err)
}

// listAll reads the tables of all shards.
func (a *handlers) listAll(ctx context.Context, in *listInput, status *task.Status) (*output[api.Page], error) {
	q := intake.ListAll{BizType: in.BizType, From: in.From.Time, To: in.To.Time, Limit: in.Limit}
	if status != nil {
		q.Status = *status
	}
	var err error
	if q.After, err = intake.PlaceOf(in.Cursor); err != nil {
		return nil, err
	}
	p, err := a.desk.ListAll(ctx, q)
	if err = takeTasks(ctx, p.Tasks, err); err != nil {
		return nil, err
	}
	return &output[api.Page]{p.Wire(a.desk.Types())}, nil
}

func (a *handlers) page(ctx context.Context, list byte, p intake.Page, err error) (*output[api.Page], error) {
	if err = takeTasks(ctx, p.Tasks, err); err != nil {
		return nil, err
	}
	return &output[api.Page]{p.Wire(a.desk.Types(), list)}, nil
}

// takeTasks takes the memory for an answer with tasks.
func takeTasks(ctx context.Context, tasks []task.Task, err error) error {
	if err != nil {
		return err
	}
	size := int64(0)
	for i := range tasks {
		size += taskSize + int64(len(tasks[i].Attribute)+len(tasks[i].LastError))
	}
	return takeAnswer(ctx, size)
}

type forecastInput struct {
	BizType string        `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Step    durationParam `query:"step" doc:"The length of a bucket in whole seconds, a Go duration; 1m if left out. At most 1500 buckets." example:"1m"`
	Span    durationParam `query:"span" doc:"How far ahead, a Go duration up to 744h; 2h if left out." example:"2h"`
}

func (a *handlers) forecast(ctx context.Context, in *forecastInput) (*output[api.Forecast], error) {
	f, err := a.desk.Forecast(ctx, intake.Forecast{BizType: in.BizType, Step: in.Step.Duration, Span: in.Span.Duration})
	if err != nil {
		return nil, err
	}
	return &output[api.Forecast]{f.Wire(a.desk.Types())}, nil
}
