package rest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
)

// The documentation page is one file without any reference to elsewhere: it
// works offline, and saved with curl.
var (
	//go:embed docs/page.html
	docsHTML string
	//go:embed docs/style.css
	docsCSS string
	//go:embed docs/page.js
	docsJS string
)

// serveDocs serves the OpenAPI document and the page that shows it. They are made when somebody first asks for one of them:
// that takes longer than all else in the start of a center.
func (a *handlers) serveDocs() {
	doc := a.huma.OpenAPI()
	a.documentTypes()
	a.documentWebhook()
	delete(doc.Components.Schemas.Map(), "ErrorModel") // huma's; problem is ours
	for _, s := range doc.Components.Schemas.Map() {
		if s.AdditionalProperties == true { // true is the default, and some generators send further fields if they see it
			s.AdditionalProperties = nil
		}
	}
	a.constant("GET /openapi.json", func() ([]byte, error) { return json.Marshal(doc) },
		http.Header{"Content-Type": {"application/openapi+json"}})
	a.constant("GET /openapi.yaml", doc.YAML, http.Header{"Content-Type": {"application/openapi+yaml"}})
	a.constant("GET /docs", func() ([]byte, error) { return renderDocs(doc, a.documented) }, http.Header{
		"Content-Type": {"text/html; charset=utf-8"},
		"Content-Security-Policy": {"default-src 'none'; style-src " + hashOf(docsCSS) + "; script-src " + hashOf(docsJS) +
			"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
		"Referrer-Policy": {"no-referrer"},
	})
}

func renderDocs(doc *huma.OpenAPI, ops []*huma.Operation) ([]byte, error) {
	page, err := template.New("page").Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Doc": doc, "Groups": docsGroups(doc, ops), "CSS": template.CSS(docsCSS), "JS": template.JS(docsJS),
	})
	return out.Bytes(), err
}

// hashOf is how a Content-Security-Policy names an inline style or script.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// constant serves an answer that never changes.
func (a *handlers) constant(pattern string, render func() ([]byte, error), headers http.Header) {
	content := sync.OnceValue(func() []byte {
		made, err := render()
		if err != nil { // a fault of the program, which the tests find
			panic(fmt.Sprintf("%s: %v", pattern, err))
		}
		return made
	})
	a.router.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		made := content()
		for name, values := range headers {
			w.Header()[name] = values
		}
		_, _ = w.Write(made)
	})
}

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
