package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
)

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// newHuma makes the huma API on the router. Its documents are served by
// serveDocs: huma would make them at the first request, unguarded.
func (a *handlers) newHuma() huma.API {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[api.ID](), reflect.TypeFor[idText]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Time](), reflect.TypeFor[time.Time]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Duration](), reflect.TypeFor[durationText]())
	schemas.RegisterTypeAlias(reflect.TypeFor[json.Number](), reflect.TypeFor[float64]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Problem](), reflect.TypeFor[problem]())
	format := huma.Format{Marshal: writeJSON, Unmarshal: json.Unmarshal}
	cfg := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "timeout center", Version: a.cfg.Version, Description: introduction,
				License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
			},
			Servers:    []*huma.Server{{URL: "/"}},
			Tags:       tags,
			Components: &huma.Components{Schemas: schemas},
			Security:   []map[string][]string{{}}, // nothing is asked for
		},
		Formats:                      map[string]huma.Format{typeJSON: format, "json": format},
		DefaultFormat:                typeJSON,
		RejectUnknownQueryParameters: true,
	}
	cfg.AllowAdditionalPropertiesByDefault = true // answers may grow; requests say no themselves
	if a.guarded {
		cfg.Security = []map[string][]string{{"token": {}}}
		cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {
			Type: "http", Scheme: "bearer", Description: "One of the tokens of `http.tokens`.",
		}}
	}
	h := humago.New(a.router, cfg)
	h.UseMiddleware(a.prepare)
	return h
}

// writeJSON writes an answer. Tasks know a faster way than encoding/json.
func writeJSON(w io.Writer, v any) error {
	t, ok := v.(interface{ AppendJSON(dst []byte) []byte })
	if !ok {
		switch v := v.(type) {
		case *huma.ErrorModel:
			detail(v)
		case *problem:
			detail(&v.ErrorModel)
		}
		return huma.DefaultJSONFormat.Marshal(w, v)
	}
	buf := takeBuffer()
	defer putBuffer(buf)
	buf.Write(t.AppendJSON(buf.AvailableBuffer()))
	buf.WriteByte('\n')
	_, err := w.Write(buf.Bytes())
	return err
}

// operation returns the description of a route for huma.
func (a *handlers) operation(pattern, name string) huma.Operation {
	method, path, _ := strings.Cut(pattern, " ")
	d, ok := descriptions[name]
	if !ok {
		panic(fmt.Sprintf("route %s has no description", name))
	}
	op := huma.Operation{
		Method: method, Path: strings.TrimSpace(path), OperationID: name,
		Tags: []string{d.tag}, Summary: d.summary, Description: d.text,
		DefaultStatus: d.status(), MaxBodyBytes: min(a.cfg.MaxBody, cmp.Or(d.maxBody, smallBody)),
	}
	if d.open {
		op.Security = []map[string][]string{}
	}
	if d.unbounded {
		op.Middlewares = huma.Middlewares{withoutDeadline}
	}
	return op
}

// withoutDeadline lets an answer take as long as it takes.
func withoutDeadline(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	endlessAnswer(w)
	next(ctx)
}

func endlessAnswer(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a recorder has none
}

// document adds to the OpenAPI document what huma cannot know: the body that is
// read here (input may have one), the examples and the refusals.
func (a *handlers) document(op huma.Operation, input any) {
	d, schemas := descriptions[op.OperationID], a.huma.OpenAPI().Components.Schemas
	path := a.huma.OpenAPI().Paths[op.Path]
	doc := map[string]*huma.Operation{http.MethodGet: path.Get, http.MethodPost: path.Post, http.MethodPatch: path.Patch}[op.Method]
	a.documented = append(a.documented, doc)
	for _, p := range doc.Parameters {
		if p.In == "path" && (p.Name == "job_id" || p.Name == "id") {
			p.Schema.Pattern = idPattern
		}
	}

	if b, ok := input.(interface{ bodyType() reflect.Type }); ok {
		_, optional := reflect.Zero(b.bodyType()).Interface().(interface{ MayBeEmpty() })
		doc.RequestBody = &huma.RequestBody{Required: !optional, Content: map[string]*huma.MediaType{typeJSON: {
			Schema: schemas.Schema(b.bodyType(), true, ""), Example: example(d.request),
		}}}
	}
	delete(doc.Responses, "default")
	success := doc.Responses[strconv.Itoa(d.status())]
	if c := success.Content[typeJSON]; c != nil {
		for status, text := range d.also {
			doc.Responses[strconv.Itoa(status)] = &huma.Response{
				Description: text, Headers: success.Headers, Content: map[string]*huma.MediaType{typeJSON: {Schema: c.Schema}},
			}
		}
		c.Example = example(d.answer)
	}
	refusals := append([]int{}, d.refusals...)
	if !d.open && a.guarded {
		refusals = append(refusals, http.StatusUnauthorized)
	}
	for _, status := range refusals {
		doc.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: refusalTexts[status], Headers: refusalHeaders[status],
			Content: map[string]*huma.MediaType{typeProblem: {Schema: schemas.Schema(reflect.TypeFor[problem](), true, "")}},
		}
	}
}

// documentTypes says of bodies what huma does not see in the types: ids may be numbers, too, and each problem has a title, a
// status and a detail.
func (a *handlers) documentTypes() {
	schemas := a.huma.OpenAPI().Components.Schemas.Map()
	least := 0.0
	// int64 is the only format for which all generators have 64 bits, and ogen cannot read an exclusiveMaximum of 1 << 64.
	number := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least, Description: "A number of 2^63 or more as a string."}
	bizID := schemas["SubmitRequest"].Properties["biz_id"]
	text := &huma.Schema{Type: huma.TypeString, MinLength: bizID.MinLength, MaxLength: bizID.MaxLength}
	bizID.Type, bizID.MinLength, bizID.MaxLength = "", nil, nil
	bizID.OneOf = []*huma.Schema{text, number}
	jobIDs := schemas["WakeRequest"].Properties["job_ids"]
	jobIDs.Items = &huma.Schema{OneOf: []*huma.Schema{jobIDs.Items, number}}
	refusal := schemas["Problem"]
	refusal.Required = []string{"title", "status", "detail"}
	refusal.Properties["errors"].Nullable = false
	schemas["ErrorDetail"].Required = []string{"location", "message"}
}

// example is an example as it is written; nil if there is none.
func example(text string) any {
	if text == "" {
		return nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		panic(fmt.Sprintf("example %s: %v", text, err))
	}
	return json.RawMessage(out.Bytes())
}
