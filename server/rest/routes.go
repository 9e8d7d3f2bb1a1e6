package rest

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// routes is every route. What each of them says about itself stands in
// describe.go under its name.
func (a *handlers) routes() {
	route(a, "POST   /v1/tasks", "submit-task", a.submit)
	route(a, "POST   /v1/tasks/batch", "submit-batch", a.submitBatch)
	route(a, "GET    /v1/tasks", "list-tasks", a.list)
	route(a, "GET    /v1/tasks/{job_id}", "get-task", a.get)
	route(a, "GET    /v1/tasks/{job_id}/why", "explain-task", a.why)
	route(a, "PATCH  /v1/tasks/{job_id}", "change-task", a.change)
	route(a, "POST   /v1/tasks/{job_id}/cancel", "cancel-task", a.cancel)
	route(a, "POST   /v1/tasks/{job_id}/redrive", "redrive-task", a.redrive)

	route(a, "GET    /v1/tasks/by-key", "get-task-by-key", a.getByKey)
	route(a, "PATCH  /v1/tasks/by-key", "change-task-by-key", a.changeByKey)
	route(a, "POST   /v1/tasks/by-key/cancel", "cancel-task-by-key", a.cancelByKey)

	route(a, "GET    /v1/forecast", "get-forecast", a.forecast)

	route(a, "GET    /v1/dead", "list-dead", a.listDead)
	route(a, "GET    /v1/dead/groups", "group-dead", a.deadGroups)
	route(a, "POST   /v1/dead/redrive", "redrive-dead", a.redriveDead)
	route(a, "POST   /v1/dead/discard", "discard-dead", a.discardDead)

	route(a, "GET    /v1/operations", "list-operations", a.operations)
	route(a, "GET    /v1/operations/{id}", "get-operation", a.getOperation)
	route(a, "POST   /v1/operations/{id}/stop", "stop-operation", a.stopOperation)
	route(a, "POST   /v1/operations/{id}/undo", "undo-operation", a.undoOperation)

	route(a, "GET    /v1/audit", "list-audit", a.audit)

	route(a, "GET    /v1/cluster", "get-cluster", a.cluster)
	route(a, "GET    /v1/cluster/pulse", "get-pulse", a.pulse)
	route(a, "POST   /v1/cluster/wake", "wake-tasks", a.wake)
	route(a, "POST   /v1/cluster/limits", "share-limits", a.shareLimits)
	route(a, "GET    /v1/cluster/unanswered", "list-unanswered", a.unanswered)
	route(a, "GET    /v1/biz-types", "list-biz-types", a.bizTypes)
	route(a, "POST   /v1/biz-types/{name}/pause", "pause-biz-type", a.pause)
	route(a, "POST   /v1/biz-types/{name}/resume", "resume-biz-type", a.resume)
	route(a, "POST   /v1/biz-types/{name}/retry", "retry-biz-type", a.retry)
	route(a, "POST   /v1/biz-types/{name}/lease", "lease-tasks", a.lease)
	route(a, "POST   /v1/leases/settle", "settle-leases", a.settle)
	handler[body[youzanCommand], youzanAnswer](a, "POST   /youzan", "youzan", typeJSON, a.youzan)
	route(a, "GET    /healthz", "get-health", a.health)
	route(a, "GET    /readyz", "get-readiness", a.ready)
	if a.cfg.Metrics != nil {
		handler[struct{}, string](a, "GET    /metrics", "get-metrics", "text/plain", a.cfg.Metrics.ServeHTTP)
	}
	// And serveDocs, once all of these are known: GET /docs, /openapi.json, /openapi.yaml
}

// route registers a handler that takes a typed request and gives a typed answer
// or an error of the table in problem.go.
func route[I, O any](a *handlers, pattern, name string, handle func(context.Context, *I) (*O, error)) {
	op := a.operation(pattern, name)
	bounded := !descriptions[name].unbounded
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		if bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.cfg.Timeout)
			defer cancel()
		}
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.problem(op, err)
		}
		return out, nil
	})
	a.document(op, new(I))
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
