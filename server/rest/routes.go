package rest

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
)

// routes is every route: what it asks the center for. What each of them says about itself stands in
// describe.go under its name.
func (a *handlers) routes() {
	c, s := a.center, a.cfg.Status
	direct(a, "POST   /v1/tasks", "submit-task", a.submit)
	direct(a, "POST   /v1/tasks/batch", "submit-batch", onlyBody(a.submitBatch))
	answer(a, "GET    /v1/tasks", "list-tasks", a.list)
	taskAnswer(a, "GET    /v1/tasks/{job_id}", "get-task", byID(c.Get))
	answer(a, "GET    /v1/tasks/{job_id}/why", "explain-task", byID(c.Why))
	taskAnswer(a, "PATCH  /v1/tasks/{job_id}", "change-task", func(ctx context.Context, in *changeInput) (api.Task, error) {
		return c.Reschedule(ctx, in.id(), in.sent.Change(), in.option)
	})
	answer(a, "POST   /v1/tasks/{job_id}/cancel", "cancel-task", func(ctx context.Context, in *conditionalInput) (api.Cancelled, error) {
		return cancelled, c.Cancel(ctx, in.id(), in.option)
	})
	taskAnswer(a, "POST   /v1/tasks/{job_id}/redrive", "redrive-task", func(ctx context.Context, in *conditionalInput) (api.Task, error) {
		return c.Redrive(ctx, in.id(), in.option)
	})

	taskAnswer(a, "GET    /v1/tasks/by-key", "get-task-by-key", asked(c.GetByKey, (*ByKey).key))
	taskAnswer(a, "PATCH  /v1/tasks/by-key", "change-task-by-key", func(ctx context.Context, in *changeByKeyInput) (api.Task, error) {
		return c.RescheduleByKey(ctx, in.key(), in.sent.Change(), in.option)
	})
	answer(a, "POST   /v1/tasks/by-key/cancel", "cancel-task-by-key", func(ctx context.Context, in *cancelByKeyInput) (api.Cancelled, error) {
		return cancelled, c.CancelByKey(ctx, in.key(), in.option)
	})

	answer(a, "GET    /v1/forecast", "get-forecast", asked(c.Forecast, (*forecastInput).ask))

	answer(a, "GET    /v1/dead", "list-dead", asked(inBudget(c.ListDead), (*listDeadInput).ask))
	answer(a, "GET    /v1/dead/groups", "group-dead", asked(c.DeadGroups, func(in *deadGroupsInput) string { return in.BizType }))
	started(a, "POST   /v1/dead/redrive", "redrive-dead", asked(c.RedriveDead, (*body[api.DeadRequest]).get))
	started(a, "POST   /v1/dead/discard", "discard-dead", asked(c.DiscardDead, (*body[api.DeadRequest]).get))

	answer(a, "GET    /v1/operations", "list-operations", func(ctx context.Context, in *listOperationsInput) (api.Operations, error) {
		list, err := c.Operations(ctx, in.Limit)
		return api.Operations{Operations: list}, err
	})
	answer(a, "GET    /v1/operations/{id}", "get-operation", asked(c.Operation, (*operationInput).id))
	answer(a, "POST   /v1/operations/{id}/stop", "stop-operation", asked(c.StopOperation, (*operationInput).id))
	answer(a, "POST   /v1/operations/{id}/undo", "undo-operation", asked(c.UndoOperation, (*operationInput).id))

	answer(a, "GET    /v1/audit", "list-audit", asked(c.Audit, (*auditInput).ask))

	answer(a, "GET    /v1/cluster", "get-cluster", func(ctx context.Context, _ *struct{}) (api.Cluster, error) { return s.Cluster(ctx) })
	answer(a, "GET    /v1/cluster/pulse", "get-pulse", func(ctx context.Context, _ *struct{}) (api.Pulse, error) { return s.Pulse(ctx), nil })
	answer(a, "POST   /v1/cluster/wake", "wake-tasks", a.wake)
	answer(a, "POST   /v1/cluster/limits", "exchange", a.exchange) // by this path the version before asks for limits
	answer(a, "GET    /v1/cluster/unanswered", "list-unanswered", a.unanswered)
	answer(a, "GET    /v1/biz-types", "list-biz-types", func(ctx context.Context, _ *struct{}) (api.BizTypes, error) {
		list, err := s.BizTypes(ctx)
		return api.BizTypes{BizTypes: list}, err
	})
	answer(a, "POST   /v1/biz-types/{name}/pause", "pause-biz-type", func(ctx context.Context, in *pauseInput) (api.BizType, error) {
		return c.Pause(ctx, in.Name, in.sent.Pause())
	})
	answer(a, "POST   /v1/biz-types/{name}/resume", "resume-biz-type", func(ctx context.Context, in *NamedBizType) (api.BizType, error) {
		return c.Resume(ctx, in.Name)
	})
	started(a, "POST   /v1/biz-types/{name}/retry", "retry-biz-type", func(ctx context.Context, in *retryInput) (api.Retried, error) {
		return c.Retry(ctx, in.Name, in.sent.Rate)
	})
	direct(a, "POST   /v1/biz-types/{name}/lease", "lease-tasks", onlyBody(a.lease))
	direct(a, "POST   /v1/leases/settle", "settle-leases", onlyBody(a.settle))
	handler[body[youzanCommand], youzanAnswer](a, "POST   /youzan", "youzan", typeJSON, a.youzan)
	answer(a, "GET    /healthz", "get-health", func(context.Context, *struct{}) (api.Health, error) { return api.Health{Status: "ok"}, nil })
	route(a, "GET    /readyz", "get-readiness", a.ready)
	if a.cfg.Metrics != nil {
		handler[struct{}, string](a, "GET    /metrics", "get-metrics", "text/plain", a.cfg.Metrics.ServeHTTP)
	}
	// And serveDocs, once all of these are known: GET /docs, /openapi.json, /openapi.yaml
}

var cancelled = api.Cancelled{Outcome: api.OutcomeCancelled}

// route registers a handler that takes a typed request and gives a typed answer
// or an error of the table in problem.go.
func route[I, O any](a *handlers, pattern, name string, handle func(context.Context, *I) (*O, error)) {
	op := a.operation(pattern, name)
	unbounded := descriptions[name].unbounded
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		if !unbounded {
			var limit bounded
			limit.within(ctx, a.cfg.Timeout)
			defer limit.end()
			ctx = &limit
		}
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.problem(op, err)
		}
		return out, nil
	})
	a.document(op, new(I))
}

// output is an answer with status 200 and nothing but a body.
type output[T any] struct{ Body T }

// answer is route for an output.
func answer[I, O any](a *handlers, pattern, name string, handle func(context.Context, *I) (O, error)) {
	route(a, pattern, name, onlyBody(handle))
}

// onlyBody makes an output of what a handler returns.
func onlyBody[I, O any](handle func(context.Context, *I) (O, error)) func(context.Context, *I) (*output[O], error) {
	return func(ctx context.Context, in *I) (*output[O], error) {
		out, err := handle(ctx, in)
		return &output[O]{out}, err
	}
}

func (o *output[T]) answer(http.Header) (status int, body any) { return http.StatusOK, &o.Body }

type taskOutput struct {
	ETag string `header:"ETag" doc:"Names this state of the task; for If-Match."`
	Body api.Task
}

// taskAnswer is route for a task and its ETag.
func taskAnswer[I any](a *handlers, pattern, name string, handle func(context.Context, *I) (api.Task, error)) {
	route(a, pattern, name, func(ctx context.Context, in *I) (*taskOutput, error) {
		t, err := handle(ctx, in)
		return &taskOutput{t.ETag, t}, err
	})
}

type startedOutput[T any] struct {
	Status int
	Body   T
}

// started is route for a change of many tasks: 202 if an operation makes it.
func started[I any, O api.Changed](a *handlers, pattern, name string, handle func(context.Context, *I) (O, error)) {
	route(a, pattern, name, func(ctx context.Context, in *I) (*startedOutput[O], error) {
		got, err := handle(ctx, in)
		out := &startedOutput[O]{http.StatusOK, got}
		if _, _, operation := got.Counts(); operation != 0 {
			out.Status = http.StatusAccepted
		}
		return out, err
	})
}

// byID asks f for the task in the path.
func byID[O any](f func(context.Context, uint64) (O, error)) func(context.Context, *ByID) (O, error) {
	return asked(f, (*ByID).id)
}

// asked asks f for what an input asks for.
func asked[I, Q, O any](f func(context.Context, Q) (O, error), ask func(*I) Q) func(context.Context, *I) (O, error) {
	return func(ctx context.Context, in *I) (O, error) { return f(ctx, ask(in)) }
}

// handler registers a handler that reads its request and writes its answer, of the
// given content type, itself. I and O only document them.
func handler[I, O any](a *handlers, pattern, name, contentType string, h http.HandlerFunc) {
	op, schemas := a.operation(pattern, name), a.huma.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"200": {
		Description: http.StatusText(http.StatusOK),
		Content:     map[string]*huma.MediaType{contentType: {Schema: schemas.Schema(reflect.TypeFor[O](), true, "")}},
	}}
	a.router.HandleFunc(op.Method+" "+op.Path, h)
	a.huma.OpenAPI().AddOperation(&op)
	a.document(op, new(I))
}
