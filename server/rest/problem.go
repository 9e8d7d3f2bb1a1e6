package rest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// problem is an RFC 9457 problem, in huma's form.
type problem struct {
	huma.ErrorModel
	// Outcome says in a word why a change did not apply. Only with status 409.
	Outcome string `json:"outcome,omitempty" enum:"already_processed,already_cancelled,dead,running,pending" doc:"Why the change did not apply."`
	// LeasedUntil is when the lease of a running task ends. Only with outcome running.
	LeasedUntil api.Time `json:"leased_until,omitzero" doc:"With the outcome running: when the lease of the consumer that has the task ends. Left out if no consumer has it."`
	// Task is the task as it stands. Only with status 412.
	Task *api.Task `json:"task,omitempty" doc:"The task as it stands; with 412, when If-Match names another state of it."`

	headers http.Header
}

// GetHeaders gives the headers that go with the problem.
func (p *problem) GetHeaders() http.Header { return p.headers }

func newProblem(status int, detail string) *problem {
	return &problem{ErrorModel: huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}}
}

// detail makes the first fault the detail of a problem: many clients show nothing else.
func detail(p *huma.ErrorModel) {
	if len(p.Errors) == 0 {
		return
	}
	for _, e := range p.Errors {
		if e.Message == "invalid integer" { // huma's: 1.0 and 1e2 are integers to JSON Schema
			e.Message = fmt.Sprintf("%.40q is not a whole number in digits only", e.Value)
		}
	}
	p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	if more := len(p.Errors) - 1; more > 0 {
		p.Detail += fmt.Sprintf(" (%d more in errors)", more)
	}
}

// located says what is wrong and where: body.biz_id, query.limit.
func located(where, field, message string) *huma.ErrorDetail {
	if field != "" {
		where += "." + field
	}
	return &huma.ErrorDetail{Location: where, Message: message}
}

// detailInternal is answered to an error that is the center's own.
const detailInternal = "the center failed; its log says why"

// problem is the table of errors: what the Center and the Status answer, as HTTP.
func (a *handlers) problem(op huma.Operation, err error) *problem {
	var field *task.FieldError
	var conflict *task.ConflictError
	var changed *task.ChangedError
	var whole *problem
	var said *api.Problem
	var unknown *task.UnknownTypeError
	switch {
	case errors.As(err, &whole):
		return whole
	case errors.As(err, &field):
		p := newProblem(http.StatusUnprocessableEntity, "validation failed")
		p.Errors = []*huma.ErrorDetail{located(inputOf(op, field.Field), field.Field, field.Message)}
		return p
	case errors.As(err, &changed):
		p := newProblem(http.StatusPreconditionFailed, changed.Error())
		shown := api.From(changed.Task, a.center.Types().NameOf(changed.Task.BizType))
		if shown.ETag = api.ETag(&changed.Task); errors.As(err, &said) { // another node's answer
			shown = *said.Task
		}
		p.Task, p.headers = &shown, http.Header{"ETag": {shown.ETag}}
		return p
	case errors.As(err, &conflict):
		p := newProblem(http.StatusConflict, conflict.Error())
		p.Outcome, p.LeasedUntil = string(conflict.Conflict), api.Time(conflict.Until)
		return p
	case errors.Is(err, intake.ErrTooManyOperations):
		return newProblem(http.StatusConflict, err.Error())
	case errors.As(err, &unknown):
		return newProblem(http.StatusNotFound, unknown.Error())
	case errors.Is(err, task.ErrNotFound):
		return newProblem(http.StatusNotFound, notFoundText(op))
	case api.IsUnavailable(err):
		p := newProblem(http.StatusServiceUnavailable, unavailableText(op, err))
		p.headers = retryAfter
		return p
	default:
		a.log.Error("request failed", "method", op.Method, "path", op.Path, "err", err)
		return newProblem(http.StatusInternalServerError, detailInternal)
	}
}

// unavailableText says what is known of a request that cannot be decided now.
func unavailableText(op huma.Operation, err error) string {
	unknown := api.DetailUnavailable
	switch {
	case op.Method == http.MethodGet:
		unknown = "the store cannot be read now; try again"
	case op.OperationID == "submit-task":
		unknown += api.DetailRepeat
	}
	text := api.Undecided(err, unknown)
	var at interface{ Where() string } // a store's error
	if errors.As(err, &at) {
		text += " (" + at.Where() + ")"
	}
	return text
}

func notFoundText(op huma.Operation) string {
	if isOfKey(op, "dedup_key") {
		return "no task has this biz_type, biz_id and dedup_key"
	}
	if strings.HasPrefix(op.Path, "/v1/biz-types/") {
		return "no configured biz_type has this name"
	}
	if strings.HasPrefix(op.Path, "/v1/operations/") {
		return "no operation has this id"
	}
	return "no task has this job_id"
}

// inputOf is where a field of an operation comes from.
func inputOf(op huma.Operation, field string) string {
	switch {
	case strings.Contains(op.Path, "{"+field+"}"):
		return "path"
	case op.Method == http.MethodGet || isOfKey(op, field):
		return "query"
	}
	return "body"
}

// writeProblem answers outside of huma: what no operation has seen.
func writeProblem(w http.ResponseWriter, p *problem) {
	h := w.Header()
	for name, values := range p.headers {
		h[name] = values
	}
	h.Set("Content-Type", typeProblem)
	w.WriteHeader(p.Status)
	_ = writeJSON(w, p) // an error is the connection's
}
