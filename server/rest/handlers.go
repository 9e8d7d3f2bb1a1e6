package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

type submitOutput struct {
	Status   int
	Location string `header:"Location" doc:"Where the task can be read."`
	ETag     string `header:"ETag" doc:"Names this state of the task; for If-Match."`
	Body     api.Task
}

// submit stores one task: 201, or 200 with the first task if its dedup_key is
// known.
func (a *handlers) submit(ctx context.Context, in *body[api.SubmitRequest]) (*submitOutput, error) {
	s, err := a.center.Submit(ctx, in.sent.Submit())
	out := &submitOutput{http.StatusCreated, string(strconv.AppendUint([]byte("/v1/tasks/"), uint64(s.Task.JobID), 10)), s.Task.ETag, s.Task}
	if s.Duplicate {
		out.Status = http.StatusOK
	}
	return out, err
}

func (o *submitOutput) answer(h http.Header) (status int, body any) {
	values := [...]string{o.Location, o.ETag}
	h["Location"], h["Etag"] = values[:1:1], values[1:]
	return o.Status, &o.Body
}

type batchInput struct{ body[batch] }

// bodyType is the type of the body in the documentation.
func (*batchInput) bodyType() reflect.Type { return reflect.TypeFor[api.BatchRequest]() }

// submitBatch stores the good tasks of a batch and says what is wrong with the
// others.
func (a *handlers) submitBatch(ctx context.Context, in *batchInput) (api.BatchAnswer, error) {
	items := in.sent.Tasks
	if in.sent.Full {
		return a.submitEach(ctx, items)
	}
	if err := takeAnswer(ctx, int64(len(items))*batchResultSize); err != nil {
		return api.BatchAnswer{}, err
	}
	results := make([]api.BatchResult, len(items))
	good := make([]api.Submit, 0, len(items))
	places := make([]int, 0, len(items)) // of good, in items
	for i, item := range items {
		if item.fault != nil {
			results[i].Err = &api.BatchError{Field: item.fault.field, Message: item.fault.message}
			continue
		}
		good, places = append(good, item.submit), append(places, i)
	}
	if len(good) == 0 {
		return api.BatchAnswer{Results: results}, nil
	}
	stored, err := a.center.SubmitBatch(ctx, good)
	var internal error
	for i, r := range stored {
		if r.Err != nil && r.Err.IsInternal() {
			internal, r.Err.Message = r.Err.Cause, detailInternal
		}
		results[places[i]] = r
	}
	if internal != nil { // once a batch, not once a task
		a.log.Error("tasks of a batch failed", "err", internal)
	}
	return api.BatchAnswer{Results: results}, err
}

// maxFull is the most tasks of a batch that asks for full answers.
const maxFull = 1000

// submitEach takes each task of a batch as a single submit: none waits for another, and each has its own trace.
func (a *handlers) submitEach(ctx context.Context, items []batchItem) (api.BatchAnswer, error) {
	if len(items) > maxFull {
		return api.BatchAnswer{}, task.Wrong("tasks", "holds %d tasks; give 1 to %d where full is true", len(items), maxFull)
	}
	if err := takeAnswer(ctx, int64(len(items))*(taskSize+task.MaxAttribute+task.MaxLastError)); err != nil {
		return api.BatchAnswer{}, err
	}
	results := make([]api.BatchResult, len(items))
	var all sync.WaitGroup
	for i := range items {
		all.Go(func() { results[i].Answer = a.submitOne(ctx, &items[i]) })
	}
	all.Wait()
	return api.BatchAnswer{Results: results}, nil
}

// submitOne answers a task of a batch as submit answers it.
func (a *handlers) submitOne(ctx context.Context, item *batchItem) (answer *api.SubmitAnswer) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("request panicked", "method", submitOperation.Method, "path", submitOperation.Path, "panic", p, "stack", string(debug.Stack()))
			answer = answerOf(newProblem(http.StatusInternalServerError, detailInternal))
		}
	}()
	if item.fault != nil {
		p := newProblem(http.StatusUnprocessableEntity, "validation failed")
		for _, f := range fill(new(api.SubmitRequest), item.text) {
			p.Errors = append(p.Errors, located("body", f.field, f.message))
		}
		return answerOf(p)
	}
	s, err := a.center.Submit(ctx, item.submit)
	if err != nil {
		return answerOf(a.problem(submitOperation, err))
	}
	answer = &api.SubmitAnswer{Status: http.StatusCreated, ETag: s.Task.ETag, Task: &s.Task}
	if s.Duplicate {
		answer.Status = http.StatusOK
	}
	return answer
}

// submitOperation stands for POST /v1/tasks in the table of errors.
var submitOperation = huma.Operation{Method: http.MethodPost, Path: "/v1/tasks", OperationID: "submit-task"}

// answerOf is a problem as a part of an answer.
func answerOf(p *problem) *api.SubmitAnswer {
	detail(&p.ErrorModel)
	said := &api.Problem{Status: p.Status, Title: p.Title, Detail: p.Detail, Outcome: p.Outcome, Until: p.LeasedUntil, Task: p.Task}
	for _, e := range p.Errors {
		said.Errors = append(said.Errors, api.ProblemField{Location: e.Location, Message: e.Message})
	}
	wait, _ := strconv.Atoi(p.headers.Get("Retry-After"))
	return &api.SubmitAnswer{Status: p.Status, RetryAfter: wait, Problem: said}
}

// ByID is embedded by the inputs of routes that know a task by its job_id.
type ByID struct {
	JobID idParam `path:"job_id" doc:"The task's id." example:"413351953711104"`
}

func (in *ByID) id() uint64 { return uint64(in.JobID.ID) }

// Condition is embedded by the input of a route that changes a task, on request
// only if it is in a state that the caller has seen. huma calls Resolve before the
// handler.
type Condition struct {
	IfMatch string `header:"If-Match" doc:"Change the task only if it is still in one of these states: ETags as they were answered, or *." example:"\"ys2jcA5Gxu2UQyFi\""`
	lines   []string
}

// Resolve reads the header If-Match, which may come in several lines.
func (c *Condition) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	if c.lines = r.Header["If-Match"]; c.lines == nil {
		return nil
	}
	if _, err := api.ParseIfMatch(c.lines); err != nil {
		return []error{located("header", "If-Match", err.Error())}
	}
	return nil
}

func (c *Condition) option(of *api.Condition) { of.IfMatch = c.lines }

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

type conditionalInput struct {
	ByID
	Condition
}

const pathByKey = "/v1/tasks/by-key"

// ByKey is embedded by the inputs of routes that name a task by its caller's own key. A key is one task's for as long as that is stored.
type ByKey struct {
	BizType  string    `query:"biz_type" required:"true" minLength:"1" doc:"Name of its business type." example:"order_close"`
	BizID    api.BizID `query:"biz_id" required:"true" minLength:"1" maxLength:"128" doc:"Its biz_id, a number or a text." example:"42"`
	DedupKey string    `query:"dedup_key" required:"true" minLength:"1" doc:"The dedup_key of its submit." example:"order-42-unpaid"`
}

func (in *ByKey) key() api.Key {
	return api.Key{BizType: in.BizType, BizID: in.BizID.Number, BizKey: in.BizID.Key, DedupKey: in.DedupKey}
}

// isOfKey reports whether a field of an operation is part of a key, and so in the query.
func isOfKey(op huma.Operation, field string) bool {
	return strings.HasPrefix(op.Path, pathByKey) && slices.Contains([]string{"biz_type", "biz_id", "dedup_key"}, field)
}

type changeByKeyInput struct {
	ByKey
	Change
}

type cancelByKeyInput struct {
	ByKey
	Condition
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

func (a *handlers) list(ctx context.Context, in *listInput) (api.Page, error) {
	if in.BizID == "" {
		return inBudget(a.center.ListAll)(ctx,
			api.ListAll{BizType: in.BizType, Status: in.Status, From: in.From.Time, To: in.To.Time, Limit: in.Limit, Cursor: in.Cursor})
	}
	if !in.From.IsZero() || !in.To.IsZero() {
		return api.Page{}, task.Wrong("from", "from and to do not go together with biz_id; leave them out, or biz_id")
	}
	bizID, err := api.ParseBizID(in.BizID)
	if err != nil {
		return api.Page{}, &task.FieldError{Field: "biz_id", Message: err.Error()}
	}
	return inBudget(a.center.List)(ctx, api.List{BizID: bizID.Number, BizKey: bizID.Key, BizType: in.BizType, Status: in.Status,
		Limit: in.Limit, Cursor: in.Cursor})
}

// inBudget takes the memory for an answer with tasks.
func inBudget[Q any](list func(context.Context, Q) (api.Page, error)) func(context.Context, Q) (api.Page, error) {
	return func(ctx context.Context, q Q) (api.Page, error) {
		p, err := list(ctx, q)
		if err != nil {
			return p, err
		}
		size := int64(0)
		for i := range p.Tasks {
			size += taskSize + int64(len(p.Tasks[i].Attribute)+len(p.Tasks[i].LastError))
		}
		return p, takeAnswer(ctx, size)
	}
}

type forecastInput struct {
	BizType string        `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Step    durationParam `query:"step" doc:"The length of a bucket in whole seconds, a Go duration; 1m if left out. At most 1500 buckets." example:"1m"`
	Span    durationParam `query:"span" doc:"How far ahead, a Go duration up to 744h; 2h if left out." example:"2h"`
}

func (in *forecastInput) ask() api.AskForecast {
	return api.AskForecast{BizType: in.BizType, Step: in.Step.Duration, Span: in.Span.Duration}
}

type listDeadInput struct {
	BizType string    `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Error   string    `query:"error" doc:"Only tasks whose last_error has this part, upper and lower case as it stands." example:"is locked"`
	Since   timeParam `query:"since" doc:"Only tasks that died (gmt_modified) at this time or later, RFC 3339." example:"2026-01-02T15:00:00Z"`
	Until   timeParam `query:"until" doc:"Only tasks that died before this time, RFC 3339." example:"2026-01-02T16:00:00Z"`
	Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many tasks: 1 to 1000, 100 if left out."`
	Cursor  string    `query:"cursor" doc:"The next_cursor of the page before."`
}

func (in *listDeadInput) ask() api.ListDead {
	return api.ListDead{BizType: in.BizType, Error: in.Error, Since: in.Since.Time, Until: in.Until.Time, Limit: in.Limit, Cursor: in.Cursor}
}

type deadGroupsInput struct {
	BizType string `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
}

type auditInput struct {
	Actor  string    `query:"actor" doc:"Only what this one did." example:"api"`
	Action string    `query:"action" doc:"Only this action." example:"redrive"`
	From   timeParam `query:"from" doc:"Only at this time or later, RFC 3339." example:"2026-01-02T15:00:00Z"`
	To     timeParam `query:"to" doc:"Only before this time, RFC 3339." example:"2026-01-02T16:00:00Z"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many entries: 1 to 1000, 100 if left out."`
	Cursor string    `query:"cursor" doc:"The next_cursor of the page before."`
}

func (in *auditInput) ask() api.Audit {
	return api.Audit{Actor: in.Actor, Action: in.Action, From: in.From.Time, To: in.To.Time, Limit: in.Limit, Cursor: in.Cursor}
}

type listOperationsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many operations: 1 to 1000, 100 if left out."`
}

type operationInput struct {
	ID idParam `path:"id" doc:"The operation's id." example:"1886427354112000001"`
}

func (in *operationInput) id() uint64 { return uint64(in.ID.ID) }

// NamedBizType is embedded by the inputs of routes of one business type.
type NamedBizType struct {
	Name string `path:"name" doc:"Name of a configured business type." example:"order_close"`
}

type pauseInput struct {
	NamedBizType
	body[api.PauseRequest]
}

type retryInput struct {
	NamedBizType
	body[api.RetryRequest]
}

type leaseInput struct {
	NamedBizType
	body[api.LeaseRequest]
}

// receive reads the request, and lets the connection live as long as that may wait.
func (in *leaseInput) receive(ctx context.Context, w http.ResponseWriter, r *http.Request, most int64) []error {
	in.Name = r.PathValue("name")
	errs := in.body.receive(ctx, w, r, most)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(intake.MaxWait + time.Minute))
	return errs
}

func (a *handlers) lease(ctx context.Context, in *leaseInput) (api.LeaseAnswer, error) {
	ask := api.AskLease{Max: in.sent.Max, Settle: in.sent.Settle}
	if in.sent.Wait != nil {
		ask.Wait = time.Duration(*in.sent.Wait)
	}
	if in.sent.TTR != nil {
		if ask.TTR = time.Duration(*in.sent.TTR); ask.TTR == 0 {
			return api.LeaseAnswer{}, task.Wrong("ttr", "0s is out of range; leave it out for that of the business type")
		}
	}
	return a.center.Lease(ctx, in.Name, ask)
}

func (a *handlers) settle(ctx context.Context, in *body[api.SettleRequest]) (api.SettleAnswer, error) {
	results, err := a.center.Settle(ctx, in.sent.Settle...)
	return api.SettleAnswer{Results: results}, err
}

type readyOutput struct {
	Status int
	Body   api.Readiness
}

func (a *handlers) ready(ctx context.Context, _ *struct{}) (*readyOutput, error) {
	r := a.cfg.Status.Ready(ctx)
	if ctx.Value(anonymous{}) != nil {
		r.Degraded = r.Reasons
	}
	r.Degraded = append([]string{}, r.Degraded...)
	out := &readyOutput{Status: http.StatusOK, Body: r}
	if !r.Ready {
		out.Status = http.StatusServiceUnavailable
	}
	return out, nil
}

// idParam is the id of a task or an operation in a path. huma checks no pattern: UnmarshalText says what would be right.
type idParam struct{ api.ID }

// Schema describes the parameter to huma.
func (idParam) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

// idPattern describes such ids, in the document. They have 63 bits, hence at most 19 digits. No id that it matches is refused.
const idPattern = "^(0|[1-9][0-9]{0,18})$"

// idText describes an api.ID to huma, for which it is a number.
type idText struct{}

// Schema describes a number of 64 bits.
func (idText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: "^(0|[1-9][0-9]{0,19})$"}
}

// durationText describes a Go duration to huma, for which a api.Duration is any text.
type durationText struct{}

// Schema describes a duration of 0s or more.
func (durationText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: `^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$`}
}

// timeParam is a time in a query; zero if it is left out.
type timeParam struct{ time.Time }

// UnmarshalText reads an RFC 3339 time.
func (t *timeParam) UnmarshalText(text []byte) error {
	moment, err := readTime(string(text))
	if err == nil {
		t.Time = *moment
	} else if _, wrong := readTime(strings.ReplaceAll(string(text), " ", "+")); wrong == nil {
		err = fmt.Errorf("%q has a space where its zone has a +; write %%2B for it in a query", text)
	}
	return err
}

// Schema describes the parameter to huma.
func (timeParam) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// durationParam is a duration in a query; zero if it is left out.
type durationParam struct{ time.Duration }

// UnmarshalText reads a Go duration.
func (d *durationParam) UnmarshalText(text []byte) error {
	read, err := readDuration(string(text))
	if d.Duration = time.Duration(read); err == nil && read <= 0 {
		err = errors.New("must be more than 0")
	}
	return err
}

// Schema describes the parameter to huma.
func (durationParam) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString}
}

// prepare stands before every operation.
//
// It takes the Accept header away: answers are JSON in any case, and some values
// of the header make huma panic. And it rejects a query that can be read in two
// ways, or that is no text. Huma would take the first of two values, and drop
// a value that it cannot unescape.
func (a *handlers) prepare(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	delete(r.Header, "Accept")
	if r.URL.RawQuery != "" {
		if err := ambiguous(r.URL.RawQuery); err != nil {
			_ = huma.WriteErr(a.huma, ctx, http.StatusUnprocessableEntity, "validation failed", err)
			return
		}
	}
	a.budget.withShare(ctx, next)
}

// ambiguous says what is wrong with a query; nil if nothing is.
func ambiguous(rawQuery string) error {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return located("query", "", err.Error())
	}
	if len(values) > maxFaults {
		return located("query", "", fmt.Sprintf("has %d parameters; no route takes more than %d", len(values), maxFaults))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if n := len(values[name]); n > 1 {
			return located("query", clip(name), fmt.Sprintf("is given %d times", n))
		}
		if !utf8.ValidString(name) || !utf8.ValidString(values[name][0]) {
			return located("query", clip(name), "is not valid UTF-8")
		}
	}
	return nil
}

type exchangeInput struct {
	body[api.ExchangeRequest]
	Node string `header:"Toc-Forwarded" doc:"The node that asks."`
}

func (a *handlers) exchange(ctx context.Context, in *exchangeInput) (api.ExchangeAnswer, error) {
	node, err := url.PathUnescape(in.Node)
	if err != nil {
		return api.ExchangeAnswer{}, task.Wrong(api.HeaderForwarded, "is not the escaped name of a node")
	}
	return a.cfg.Nodes.Exchange(ctx, node, in.sent), nil
}

type unansweredInput struct {
	Node string `header:"Toc-Forwarded" doc:"The node that asks."`
}

func (a *handlers) unanswered(ctx context.Context, in *unansweredInput) (api.Unanswered, error) {
	answer, err := a.exchange(ctx, &exchangeInput{Node: in.Node})
	return api.Unanswered{Questions: append([]api.ID{}, answer.Unanswered...)}, err
}

func (a *handlers) wake(ctx context.Context, in *body[api.WakeRequest]) (api.Woken, error) {
	jobIDs := make([]uint64, len(in.sent.JobIDs))
	for i, id := range in.sent.JobIDs {
		jobIDs[i] = uint64(id)
	}
	return api.Woken{Taken: a.center.Wake(ctx, jobIDs)}, nil
}
