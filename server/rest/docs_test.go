package rest_test

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	pathpkg "path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

// documented is every route that must be in the document.
var documented = []string{
	"POST /v1/tasks", "POST /v1/tasks/batch", "GET /v1/tasks/{job_id}", "GET /v1/tasks/{job_id}/why", "GET /v1/tasks", "POST /v1/tasks/{job_id}/cancel",
	"PATCH /v1/tasks/{job_id}", "POST /v1/tasks/{job_id}/redrive", "GET /v1/forecast", "GET /v1/dead", "POST /v1/dead/redrive", "GET /v1/dead/groups", "POST /v1/dead/discard", "GET /v1/audit", "GET /v1/operations", "GET /v1/operations/{id}", "POST /v1/operations/{id}/stop", "POST /v1/operations/{id}/undo", "GET /v1/cluster",
	"GET /v1/tasks/by-key", "PATCH /v1/tasks/by-key", "POST /v1/tasks/by-key/cancel", "GET /v1/cluster/pulse", "POST /v1/cluster/wake", "POST /v1/cluster/limits", "GET /v1/cluster/unanswered", "GET /v1/biz-types",
	"POST /v1/biz-types/{name}/pause", "POST /v1/biz-types/{name}/resume", "POST /v1/biz-types/{name}/retry", "POST /v1/biz-types/{name}/lease", "POST /v1/leases/settle", "POST /youzan", "GET /healthz", "GET /readyz", "GET /metrics",
}

type operation struct {
	Summary, Description, OperationID string
	Tags                              []string
	Parameters                        []struct {
		Name, In, Description string
		Required              bool
		Schema                struct{ Minimum, Maximum, Default float64 }
	}
	RequestBody struct {
		Required bool
		Content  map[string]media
	}
	Responses map[string]struct {
		Description string
		Content     map[string]media
	}
	Security []map[string][]string
}

type media struct {
	Schema  json.RawMessage
	Example json.RawMessage
}

func document(t *testing.T, h http.Handler, headers ...string) map[string]operation {
	a := call(h, "GET", "/openapi.json", "", headers...)
	require.Equal(t, 200, a.Code)
	require.Equal(t, "application/openapi+json", a.Header().Get("Content-Type"))
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]operation
	}
	require.NoError(t, json.Unmarshal(a.Body.Bytes(), &doc))
	require.Equal(t, "3.1.0", doc.OpenAPI)
	ops := map[string]operation{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			ops[strings.ToUpper(method)+" "+path] = op
		}
	}
	return ops
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	ops := document(t, newFake(newFakeCenter(t), withTokens()))
	require.Len(t, ops, len(documented))
	ids := map[string]bool{}
	for _, route := range documented {
		op, ok := ops[route]
		require.True(t, ok, route)
		require.NotEmpty(t, op.Summary, route)
		require.NotEmpty(t, op.Description, route)
		require.Len(t, op.Tags, 1, route)
		require.False(t, ids[op.OperationID], route)
		ids[op.OperationID] = true
		require.NotEmpty(t, op.Responses, route)
		for status, r := range op.Responses {
			require.NotEmpty(t, r.Description, "%s %s", route, status)
			require.NotEmpty(t, r.Content, "%s %s", route, status)
		}
		for _, p := range op.Parameters {
			require.NotEmpty(t, p.Description, "%s %s", route, p.Name)
			require.Equal(t, p.In == "path", strings.Contains(route, "{"+p.Name+"}"), route)
		}
	}
}

// A generator finds all that a route takes: the parts of its path, and its body.
func TestOpenAPIHasEveryInput(t *testing.T) {
	bodiless := []string{"cancel-task", "redrive-task", "cancel-task-by-key", "stop-operation", "undo-operation", "resume-biz-type"}
	for route, op := range document(t, newFake(newFakeCenter(t), withTokens())) {
		var want, got []string
		for _, part := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(route, -1) {
			want = append(want, part[1])
		}
		for _, p := range op.Parameters {
			if p.In == "path" {
				require.True(t, p.Required, route)
				got = append(got, p.Name)
			}
		}
		require.Equal(t, want, got, route)
		takes := !strings.HasPrefix(route, "GET ") && !slices.Contains(bodiless, op.OperationID)
		require.Equal(t, takes, len(op.RequestBody.Content) > 0, route)
	}
}

// The schema of the answers to POST /youzan has every member of them.
func TestOpenAPIOfYouzan(t *testing.T) {
	d := newFakeCenter(t)
	d.Leased = []api.LeasedTask{{Task: api.Task{JobID: 1 << 60, BizType: "order_close", BizID: api.BizID{Key: "o-1"}, Timeout: api.Duration(time.Minute)}}}
	h := newFake(d)
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	require.NoError(t, json.Unmarshal(call(h, "GET", "/openapi.json", "").Body.Bytes(), &doc))
	responses := document(t, h)["POST /youzan"].Responses
	require.Len(t, responses, 1)
	for body, want := range map[string]string{
		`{"command":"pop","topic":"order_close"}`:         `{"success":true,"id":"o-1","value":"","topic":"order_close","TTR":60,"job_id":"1152921504606846976","code":0}`,
		`{"command":"pop","topic":"order_close","max":2}`: `{"success":true,"jobs":[{"id":"o-1","value":"","topic":"order_close","TTR":60,"job_id":"1152921504606846976"}],"code":0}`,
		`{"command":"finish","id":"o-1"}`:                 `{"success":false,"error":"there is no such job","code":1}`,
		`{"command":"eat"}`:                               `{"success":false,"error":"command: is \"eat\"; give add, pop, finish or delete","code":2}`,
	} {
		a := call(h, "POST", "/youzan", body)
		require.Equal(t, want, strings.TrimSpace(a.Body.String()))
		require.JSONEq(t, `{"$ref":"#/components/schemas/YouzanAnswer"}`, string(responses[strconv.Itoa(a.Code)].Content["application/json"].Schema))
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(a.Body.Bytes(), &members))
		for name := range members {
			require.Contains(t, doc.Components.Schemas["YouzanAnswer"].Properties, name)
		}
	}
	d.Err = task.ErrUnavailable
	a := call(h, "POST", "/youzan", `{"command":"pop","topic":"order_close"}`)
	require.JSONEq(t, `{"success":false,"error":"it cannot be decided now; send it again","code":3}`, a.Body.String())
}

// The table of docs/http.md has every route but those between nodes, and no other.
func TestRoutesOfTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "| route | for |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for route, op := range document(t, newFake(newFakeCenter(t), withTokens())) {
		_, path, _ := strings.Cut(route, " ")
		documented[path] = true
		if strings.HasPrefix(op.Description, "Between nodes") {
			continue
		}
		parent, action := pathpkg.Split(path)
		short := regexp.MustCompile(`(?m)^.*` + regexp.QuoteMeta(parent[:len(parent)-1]) + "[`/?].*…/" + regexp.QuoteMeta(action) + "[`?]")
		full := regexp.MustCompile(regexp.QuoteMeta(path) + "[`?]")
		require.True(t, full.MatchString(table) || short.MatchString(table), route)
	}
	for _, path := range regexp.MustCompile("[`A-Z ](/[^`? ]+)[`?]").FindAllStringSubmatch(table, -1) {
		require.True(t, documented[path[1]], path[1])
	}
}

// Every reference in the document leads somewhere.
func TestOpenAPIReferences(t *testing.T) {
	body := call(newFake(newFakeCenter(t)), "GET", "/openapi.json", "").Body.String()
	var doc struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	refs := regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(body, -1)
	require.NotEmpty(t, refs)
	used := map[string]bool{}
	for _, ref := range refs {
		require.Contains(t, doc.Components.Schemas, ref[1])
		used[ref[1]] = true
	}
	for name := range doc.Components.Schemas {
		require.True(t, used[name], "nobody refers to %s", name)
	}
}

// The schemas of bodies say what the code reads: each property is taken, and
// each example is right.
func TestOpenAPIBodiesAreRead(t *testing.T) {
	d := newFakeCenter(t)
	types, err := task.NewTypes(task.BizType{ID: 1, Name: "order_close", Mode: task.ModeScan, Pull: true}) // POST /youzan adds only to such
	require.NoError(t, err)
	d.BizTypes = types
	h := newFake(d)
	ops := document(t, h)
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties           map[string]json.RawMessage
				AdditionalProperties *bool
			}
		}
	}
	require.NoError(t, json.Unmarshal(call(h, "GET", "/openapi.json", "").Body.Bytes(), &doc))
	for route, op := range ops {
		body, ok := op.RequestBody.Content["application/json"]
		if !ok {
			continue
		}
		method, target, _ := strings.Cut(strings.NewReplacer("{job_id}", "1", "{name}", "order_close").Replace(route), " ")
		if strings.Contains(route, "by-key") {
			target += "?biz_type=order_close&biz_id=42&dedup_key=k"
		}
		optional := strings.HasSuffix(route, "/pause") || strings.HasSuffix(route, "/retry") || strings.HasSuffix(route, "/lease")
		require.Equal(t, !optional, op.RequestBody.Required, route)
		require.Less(t, call(h, method, target, string(body.Example)).Code, 300, route)

		var ref struct {
			Ref string `json:"$ref"`
		}
		require.NoError(t, json.Unmarshal(body.Schema, &ref))
		schema := doc.Components.Schemas[strings.TrimPrefix(ref.Ref, "#/components/schemas/")]
		require.NotEmpty(t, schema.Properties, route)
		require.Equal(t, route == "POST /youzan", schema.AdditionalProperties == nil, "%s: Youzan's programs may send more", route)
		for name := range schema.Properties {
			p := call(h, method, target, `{"`+name+`":[null]}`).Body.String()
			require.NotContains(t, p, "is no field", "%s: %s", route, name)
		}
	}
	require.Nil(t, doc.Components.Schemas["Task"].AdditionalProperties, "answers may grow")
}

// Each example has what its schema requires, and nothing that it does not know.
func TestOpenAPIExamplesFitTheirSchemas(t *testing.T) {
	type schema struct {
		Ref        string                     `json:"$ref"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Items      json.RawMessage            `json:"items"`
	}
	h := newFake(newFakeCenter(t))
	var doc struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(call(h, "GET", "/openapi.json", "").Body.Bytes(), &doc))
	var fits func(where string, text, example json.RawMessage)
	fits = func(where string, text, example json.RawMessage) {
		var s schema
		require.NoError(t, json.Unmarshal(text, &s), where)
		if s.Ref != "" {
			fits(where, doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")], example)
			return
		}
		if s.Items != nil {
			var list []json.RawMessage
			require.NoError(t, json.Unmarshal(example, &list), where)
			for _, one := range list {
				fits(where+"[]", s.Items, one)
			}
		}
		if s.Properties == nil {
			return
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(example, &members), where)
		for _, name := range s.Required {
			require.Contains(t, members, name, where)
		}
		for name, one := range members {
			require.Contains(t, s.Properties, name, where)
			fits(where+"."+name, s.Properties[name], one)
		}
	}
	checked := 0
	for route, op := range document(t, h) {
		for status, r := range op.Responses {
			if m := r.Content["application/json"]; m.Example != nil {
				fits(route+" "+status, m.Schema, m.Example)
				checked++
			}
		}
		if m := op.RequestBody.Content["application/json"]; m.Example != nil {
			fits(route, m.Schema, m.Example)
			checked++
		}
	}
	require.Greater(t, checked, 40)
}

// The document keeps to what the generators of clients understand: openapi-generator, oapi-codegen, ogen, openapi-python-client,
// openapi-typescript, hey-api.
func TestOpenAPIForGenerators(t *testing.T) {
	var doc map[string]any
	require.NoError(t, json.Unmarshal(call(newFake(newFakeCenter(t)), "GET", "/openapi.json", "").Body.Bytes(), &doc))
	schemas := 0
	var walk func(where string, node any)
	walk = func(where string, node any) {
		switch node := node.(type) {
		case []any:
			for i, one := range node {
				walk(where+"/"+strconv.Itoa(i), one)
			}
		case map[string]any:
			if kind, ok := node["type"]; ok && !strings.HasSuffix(where, "/properties") {
				schemas++
				require.IsType(t, "", kind, "%s: nothing is null", where)
				require.NotContains(t, node, "exclusiveMaximum", "%s: ogen takes it for a boolean", where)
				if kind == "integer" {
					require.Equal(t, "int64", node["format"], "%s: Go and Java get 32 bits without", where)
				}
				if text, _ := node["description"].(string); strings.Contains(text, "RFC 3339") {
					require.Equal(t, "date-time", node["format"], where)
				}
			}
			for name, one := range node {
				if name != "example" && name != "examples" {
					walk(where+"/"+name, one)
				}
			}
		}
	}
	walk("", doc)
	require.Greater(t, schemas, 200)
	call := doc["webhooks"].(map[string]any)["task"].(map[string]any)["post"].(map[string]any)
	require.Len(t, call["tags"], 1, "a generated client has a part for it")
}

func TestOpenAPIYAML(t *testing.T) {
	a := call(newFake(newFakeCenter(t)), "GET", "/openapi.yaml", "")
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal(a.Body.Bytes(), &doc))
	require.Equal(t, "3.1.0", doc["openapi"])
	require.Contains(t, doc["paths"], "/v1/tasks")
}

func TestOpenAPIAsksForTokens(t *testing.T) {
	h := newFake(newFakeCenter(t), withTokens("alpha"))
	require.Contains(t, call(h, "GET", "/docs", "").Body.String(), "Authorization: Bearer $TOC_TOKEN")
	ops := document(t, h)
	require.Contains(t, ops["POST /v1/tasks"].Responses, "401")
	require.Nil(t, ops["POST /v1/tasks"].Security, "the document's own security holds")
	require.NotContains(t, ops["GET /healthz"].Responses, "401")
	for _, open := range []string{"GET /healthz", "GET /readyz", "POST /v1/cluster/wake", "POST /v1/cluster/limits", "GET /v1/cluster/unanswered"} {
		require.Equal(t, []map[string][]string{}, ops[open].Security, open)
	}

	var doc struct {
		Security   []map[string][]string
		Components struct {
			SecuritySchemes map[string]struct{ Type, Scheme string }
		}
	}
	require.NoError(t, json.Unmarshal(call(h, "GET", "/openapi.json", "").Body.Bytes(), &doc))
	require.Equal(t, []map[string][]string{{"token": {}}}, doc.Security)
	require.Equal(t, "http bearer", doc.Components.SecuritySchemes["token"].Type+" "+doc.Components.SecuritySchemes["token"].Scheme)
}

// The document has the call that the processor webhook makes: its headers, and the fields of its body.
func TestOpenAPIHasTheWebhook(t *testing.T) {
	var doc struct {
		Webhooks   struct{ Task struct{ Post operation } }
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	require.NoError(t, json.Unmarshal(call(newFake(newFakeCenter(t), withTokens("alpha")), "GET", "/openapi.json", "").Body.Bytes(), &doc))
	documented := doc.Webhooks.Task.Post
	require.Equal(t, []map[string][]string{}, documented.Security, "no token is sent")
	headers := map[string]bool{}
	for _, p := range documented.Parameters {
		require.Equal(t, "header", p.In)
		headers[http.CanonicalHeaderKey(p.Name)] = true
	}

	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Webhook-") || strings.HasPrefix(name, "Toc-") || name == "Traceparent" {
				assert.True(t, headers[name], name)
				delete(headers, name)
			}
		}
		assert.Empty(t, headers, "documented, and not sent")
		var body map[string]any
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		for name := range body {
			assert.Contains(t, doc.Components.Schemas["Task"].Properties, name)
		}
	}))
	defer receiver.Close()
	hook, err := webhook.New(task.BizType{Name: "order_close", Timeout: time.Minute}, webhook.Config{URL: receiver.URL, Secret: "sixteen characters"})
	require.NoError(t, err)
	require.NoError(t, hook.Process(t.Context(), task.Task{JobID: 1, BizKey: "a", Attribute: "b", DedupKey: "c", LastError: "d",
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}))
	require.NoError(t, hook.Close())
}

// The page shows every route and needs nothing from elsewhere.
func TestDocsPage(t *testing.T) {
	h := newFake(newFakeCenter(t), withTokens())
	a := call(h, "GET", "/docs", "")
	page := a.Body.String()
	require.Equal(t, "text/html; charset=utf-8", a.Header().Get("Content-Type"))
	for route, op := range document(t, h) {
		require.Contains(t, page, `id="`+op.OperationID+`"`, route)
		_, path, _ := strings.Cut(route, " ")
		require.Contains(t, page, "<code>"+path+"</code>")
	}
	require.NotRegexp(t, `TOC_SERVER[^<]*{\w+}`, page, "each part of a path has an example")
	calls := html.UnescapeString(page)
	require.Contains(t, calls, "curl -X POST \"$TOC_SERVER/youzan\" \\\n  -H 'Content-Type: application/json' \\\n  -d '{\n  \"command\": \"add\"")
	require.NotRegexp(t, `(src|href)="(https?:)?//`, page)
	require.NotContains(t, page, "ZgotmplZ", "html/template refused something")

	policy := a.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	for _, tag := range []string{"style", "script"} {
		inline := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(page, -1)
		require.Len(t, inline, 1)
		file, err := os.ReadFile(map[string]string{"style": "docs/style.css", "script": "docs/page.js"}[tag])
		require.NoError(t, err)
		require.Equal(t, string(file), inline[0][1], "the policy names the hash of exactly this")
	}
	require.NotRegexp(t, ` (style|on[a-z]+)=`, page, "the policy forbids inline attributes")
}

func TestMetricsAreServedAsTheyCome(t *testing.T) {
	h := newFake(newFakeCenter(t), func(c *rest.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, "toc_up 1\n")
		})
	})
	a := call(h, "GET", "/metrics", "")
	require.Equal(t, "toc_up 1\n", a.Body.String())
	require.Equal(t, "text/plain; version=0.0.4", a.Header().Get("Content-Type"))
}
