package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// body is embedded by the input of a route that takes a body of type T, a struct.
// huma calls Resolve before the handler.
type body[T any] struct{ sent T }

func (b *body[T]) get() T { return b.sent }

// Resolve reads the request's body.
func (b *body[T]) Resolve(ctx huma.Context) []error {
	r, w := humago.Unwrap(ctx)
	return b.receive(ctx.Context(), w, r, ctx.Operation().MaxBodyBytes)
}

func (b *body[T]) receive(ctx context.Context, w http.ResponseWriter, r *http.Request, most int64) []error {
	buf := takeBuffer()
	defer putBuffer(buf)
	if err := readBody(ctx, buf, w, r, most); err != nil {
		return []error{err}
	}
	value := bytes.TrimSpace(buf.Bytes())
	if _, may := any(b.sent).(interface{ MayBeEmpty() }); may && len(value) == 0 {
		return nil
	}
	if len(value) == 0 {
		return []error{&bodyError{http.StatusBadRequest, "is empty; send a JSON object"}}
	}
	if err := check(value); err != nil {
		return []error{&bodyError{http.StatusBadRequest, err.Error()}}
	}
	var errs []error
	for _, f := range fill(&b.sent, value) {
		errs = append(errs, located("body", f.field, f.message))
	}
	return errs
}

// ReadSubmit reads the body of POST /v1/tasks from elsewhere. Its error is a task.FieldError: the first fault.
func ReadSubmit(value []byte) (api.Submit, error) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return api.Submit{}, &task.FieldError{Message: "the body is empty; send a JSON object"}
	}
	if err := check(value); err != nil {
		return api.Submit{}, &task.FieldError{Message: "the body " + err.Error()}
	}
	var r api.SubmitRequest
	if faults := fill(&r, value); len(faults) > 0 {
		return api.Submit{}, &task.FieldError{Field: faults[0].field, Message: faults[0].message}
	}
	return r.Submit(), nil
}

// bodyType is the type of the body in the documentation.
func (*body[T]) bodyType() reflect.Type { return reflect.TypeFor[T]() }

// bodyError is a refusal of the whole body, with the status to answer.
type bodyError struct {
	status  int
	message string
}

func (e *bodyError) Error() string  { return e.message }
func (e *bodyError) GetStatus() int { return e.status }
func (e *bodyError) ErrorDetail() *huma.ErrorDetail {
	return located("body", "", e.message)
}

// readBody reads a body of at most so many bytes.
func readBody(ctx context.Context, buf *bytes.Buffer, w http.ResponseWriter, r *http.Request, most int64) error {
	if err := acceptable(r.Header); err != nil {
		return err
	}
	expected := most
	if r.ContentLength >= 0 {
		expected = min(most, r.ContentLength)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience(expected))) // where there is a connection
	if r.ContentLength > most && r.Header.Get("Expect") != "" {
		return tooLarge(most) // before it is sent at all
	}
	limit := min(most+1, freeBytes)
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit))
	for _, size := range []int64{prepaidBytes, most} { // who sends little holds little, and who has begun gets all the rest at once
		if err != nil || n < limit || n > most {
			break
		}
		step := max(min(size, expected)-n, 0) + 1 // one that is too large shows
		if err = makeRoom(ctx, step); err == nil {
			buf.Grow(int(step) + bytes.MinRead)
			var part int64
			part, err = buf.ReadFrom(io.LimitReader(r.Body, step))
			n, limit = n+part, limit+step
		}
	}
	var timeout net.Error
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		return &bodyError{http.StatusServiceUnavailable, detailBusy}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &bodyError{http.StatusRequestTimeout, "took too long to arrive"}
	case err != nil:
		return &bodyError{http.StatusBadRequest, "did not arrive whole"}
	case n > most:
		// Many clients look at the answer only after they have sent everything,
		// and would see a broken connection instead of it.
		_, _ = io.CopyN(io.Discard, r.Body, 8*most)
		return tooLarge(most)
	}
	return nil
}

func tooLarge(most int64) error {
	return &bodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("is larger than %d bytes", most)}
}

// bodyPatience is how long so many bytes may take to arrive, or to be taken.
func bodyPatience(bytes int64) time.Duration {
	return 10*time.Second + time.Duration(bytes>>20)*time.Second
}

// acceptable refuses what is not plain JSON in UTF-8. Without a content type it
// is taken for that; a browser on a foreign site cannot get here (sameOrigin).
func acceptable(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return &bodyError{http.StatusUnsupportedMediaType, fmt.Sprintf("has Content-Encoding %.64q; send it as it is", encoding)}
	}
	contentType := h.Get("Content-Type")
	if contentType == "" || contentType == "application/json" {
		return nil
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset := params["charset"]
	if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &bodyError{http.StatusUnsupportedMediaType, fmt.Sprintf("has Content-Type %.64q; send application/json", contentType)}
	}
	return nil
}

// buffers are for reading bodies and writing answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func takeBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) }

// putBuffer gives a buffer back, unless one large body would pin its memory.
func putBuffer(buf *bytes.Buffer) {
	if buf.Cap() <= 1<<20 {
		buf.Reset()
		buffers.Put(buf)
	}
}

// fault says what is wrong with one field of a body. An empty field means the
// body itself.
type fault struct{ field, message string }

// Error makes it an error that read gives, of a part of what is read.
func (f fault) Error() string { return f.field + ": " + f.message }

// maxFaults bounds the faults that reading one request collects: a refusal must cost less than the request.
const maxFaults = 20

// fill reads valid JSON into the struct that o points to, strictly: an unknown name, a name
// that comes twice and a value of the wrong type are faults. It returns up to maxFaults of them, then the fields that are
// missing (of those with the tag missing), and those of against.
func fill(o any, value []byte) []fault { return fillNames(o, value, false) }

// fillKnown is fill for callers that may send more: an unknown name is left out, and upper case is as good as lower.
func fillKnown(o any, value []byte) []fault { return fillNames(o, value, true) }

func fillNames(o any, value []byte, lenient bool) []fault {
	if value[0] != '{' {
		return []fault{{"", "must be an object, not " + kindOf(value)}}
	}
	to := reflect.ValueOf(o).Elem()
	given := names{fields: jsonFields(to.Type())}
	var faults []fault
	unknown := make(map[string]bool)
	for name, value := range members(value) {
		if lenient {
			name = given.spelling(name)
		}
		if len(faults) == maxFaults {
			return append(faults[:maxFaults-1], fault{"", "has more faults than these"})
		}
		at := given.find(string(name))
		switch {
		case at < 0 && lenient && !unknown[string(name)]:
			unknown[string(name)] = true
			if err := checkUnicode(value); err != nil {
				faults = append(faults, fault{clip(string(name)), err.Error()})
			}
		case at < 0 && lenient:
			faults = append(faults, fault{clip(string(name)), "is given twice"})
		case at < 0:
			faults = append(faults, fault{clip(string(name)), "is no field of this body; there are: " + given.list()})
		case given.bits>>at&1 == 1:
			faults = append(faults, fault{string(name), "is given twice"})
		default:
			given.bits |= 1 << at
			if err := read(to.Field(given.fields[at].place).Addr().Interface(), value); err != nil {
				part, is := errors.AsType[fault](err)
				if !is {
					part.message = err.Error()
				}
				faults = append(faults, fault{string(name) + part.field, part.message})
			}
		}
	}
	for i, f := range given.fields {
		if f.missing != "" && given.bits>>i&1 == 0 {
			faults = append(faults, fault{f.name, "is missing; " + f.missing})
		}
	}
	return append(faults, against(o, given)...)
}

// names are the names of a body's fields, and which of them were given.
type names struct {
	fields []field
	bits   uint64 // 1: the field was given; in the order of fields
}

// field is a field of a struct: its name in JSON, its place in the struct, and what to give if it must be given.
type field struct {
	name    string
	place   int
	missing string
}

func (n names) has(name string) bool {
	at := n.find(name)
	return at >= 0 && n.bits>>at&1 == 1
}

// find gives the place in fields. There are so few that a map would take longer.
func (n names) find(name string) int {
	return slices.IndexFunc(n.fields, func(f field) bool { return f.name == name })
}

// list names the fields for a caller who has given another one.
func (n names) list() string {
	known := make([]string, len(n.fields))
	for i, f := range n.fields {
		known[i] = f.name
	}
	return strings.Join(known, ", ")
}

// spelling gives a name as the body's field has it, if only upper and lower case differ.
func (n names) spelling(name []byte) []byte {
	for _, f := range n.fields {
		if strings.EqualFold(f.name, string(name)) {
			return []byte(f.name)
		}
	}
	return name
}

// knownFields keeps the answers of jsonFields.
var knownFields sync.Map

func jsonFields(body reflect.Type) (fields []field) {
	if known, ok := knownFields.Load(body); ok {
		return known.([]field)
	}
	for i := range body.NumField() {
		tag := body.Field(i).Tag
		if name, _, _ := strings.Cut(tag.Get("json"), ","); name != "" {
			fields = append(fields, field{name, i, tag.Get("missing")})
		}
	}
	knownFields.Store(body, fields)
	return fields
}

// against returns a fault for each field that was given, or left out, against a rule of the body.
func against(body any, given names) (faults []fault) {
	add := func(field, message string) { faults = append(faults, fault{field, message}) }
	switch body := body.(type) {
	case *api.SubmitRequest:
		if !given.has("action_time") && !given.has("delay") {
			add("action_time", "is missing; give action_time (RFC 3339) or delay (like 30m)")
		}
		if given.has("on_duplicate") && !given.has("dedup_key") {
			add("on_duplicate", "needs a dedup_key; without one there are no duplicates")
		}
	case *api.ChangeRequest:
		if !given.has("action_time") && !given.has("delay") && !given.has("attribute") && !given.has("timeout") {
			add("action_time", "nothing to change; give action_time or delay, attribute, or timeout")
		}
	case *api.DeadRequest: // an empty biz_type comes from a variable that is not set, and must not mean everything
		if given.has("biz_type") && body.BizType == "" {
			add("biz_type", "is empty; leave it out for all")
		}
		if given.has("error") && body.Error == "" {
			add("error", "is empty; leave it out for all")
		}
	case *api.ExchangeRequest:
		if !given.has("from") || body.From == "" || len(body.From) > maxFrom {
			add("from", fmt.Sprintf("is missing, or longer than %d bytes; give the name of the process that asks", maxFrom))
		}
	case *api.Settlement:
		if body.Lease == "" {
			add("lease", "is missing; give the lease as it came with the task")
		}
	}
	if given.has("action_time") && given.has("delay") {
		const message = "give either action_time or delay, not both"
		add("action_time", message)
		add("delay", message)
	}
	return faults
}

// maxFrom is the greatest length of a node's name here, in bytes.
const maxFrom = 512

// batch is a api.BatchRequest as it is read: task by task, so that a bad one does not spoil the rest.
type batch struct {
	Tasks []batchItem `json:"tasks" missing:"give the tasks to submit"`
	Full  bool        `json:"full"`
}

// batchItem is a task of a batch, or its first fault and its text.
type batchItem struct {
	submit api.Submit
	fault  *fault
	text   []byte
}

func (b *batchItem) read(value []byte) error {
	var r api.SubmitRequest
	if faults := fill(&r, value); len(faults) > 0 {
		b.fault, b.text = &faults[0], bytes.Clone(value)
		return nil
	}
	b.submit = r.Submit()
	return nil
}
