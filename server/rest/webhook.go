package rest

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
)

// documentWebhook adds to the OpenAPI document the call that package processor/webhook makes.
func (a *handlers) documentWebhook() {
	doc := a.huma.OpenAPI()
	call := &huma.Operation{
		OperationID: "fire-task", Summary: "A task is due", Tags: []string{"webhooks"},
		Description: "Made to the webhook.url of a business type, once for each run of a task. A crash may repeat a call that was answered: be idempotent by webhook-id.",
		Security:    []map[string][]string{}, // it is signed
		RequestBody: &huma.RequestBody{
			Description: "The task, as GET /v1/tasks/{job_id} answers it, without running.", Required: true,
			Content: map[string]*huma.MediaType{typeJSON: {
				Schema: doc.Components.Schemas.Schema(reflect.TypeFor[api.Task](), true, ""), Example: example(pendingTask),
			}},
		},
		Responses: map[string]*huma.Response{
			"2XX":     {Description: "Done: the task is processed."},
			"410":     {Description: "Not wanted any more: the task is cancelled."},
			"429":     {Description: "Failed. With Retry-After it is tried again then, after backoff.max at the latest."},
			"503":     {Description: "As 429."},
			"default": {Description: "Failed: it is tried again after the back-off, until max_retries are used up. Redirects are not followed."},
		},
	}
	for _, h := range []struct {
		name, kind, text string
		required         bool
	}{
		{"webhook-id", huma.TypeString, "The job_id; the same in every attempt.", true},
		{"webhook-timestamp", huma.TypeInteger, "When this call was made, in seconds since 1970.", true},
		{"webhook-signature", huma.TypeString,
			"Standard Webhooks v1, one for each secret, with spaces between them. Only where webhook.secret is set.", false},
		{"toc-attempt", huma.TypeInteger, "Which attempt this is, from 1.", true},
		{"traceparent", huma.TypeString, "The W3C trace context of the run if it is traced, else that of the submit if it had one.", false},
	} {
		schema := &huma.Schema{Type: h.kind}
		if h.kind == huma.TypeInteger {
			schema.Format = "int64"
		}
		call.Parameters = append(call.Parameters,
			&huma.Param{Name: h.name, In: "header", Required: h.required, Description: h.text, Schema: schema})
	}
	doc.Webhooks = map[string]*huma.PathItem{"task": {Post: call}}
}
