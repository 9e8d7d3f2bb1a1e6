package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"reflect"
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
	buf := takeBuffer()
	defer putBuffer(buf)
	if err := receive(buf, ctx); err != nil {
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

// receive reads a body of at most the operation's MaxBodyBytes.
func receive(buf *bytes.Buffer, ctx huma.Context) error {
	r, w := humago.Unwrap(ctx)
	if err := acceptable(r.Header); err != nil {
		return err
	}
	most := ctx.Operation().MaxBodyBytes
	expected := most
	if r.ContentLength >= 0 {
		expected = min(most, r.ContentLength)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience(expected))) // where there is a connection
	tooLarge := &bodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("is larger than %d bytes", most)}
	if r.ContentLength > most && r.Header.Get("Expect") != "" {
		return tooLarge // before it is sent at all
	}
	limit := min(most+1, freeBytes)
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit))
	for _, size := range []int64{prepaidBytes, most} { // who sends little holds little, and who has begun gets all the rest at once
		if err != nil || n < limit || n > most {
			break
		}
		step := max(min(size, expected)-n, 0) + 1 // one that is too large shows
		if err = makeRoom(ctx.Context(), step); err == nil {
			buf.Grow(int(step) + bytes.MinRead)
			var part int64
			part, err = buf.ReadFrom(io.LimitReader(r.Body, step))
			n, limit = n+part, limit+step
		}
	}
	var timeout net.Error
	switch {
	case errors.Is(err, errBusy):
		ctx.SetHeader("Retry-After", "1")
		return &bodyError{http.StatusServiceUnavailable, detailBusy}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &bodyError{http.StatusRequestTimeout, "took too long to arrive"}
	case err != nil:
		return &bodyError{http.StatusBadRequest, "did not arrive whole"}
	case n > most:
		// Many clients look at the answer only after they have sent everything,
		// and would see a broken connection instead of it.
		_, _ = io.CopyN(io.Discard, r.Body, 8*most)
		return tooLarge
	}
	return nil
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
