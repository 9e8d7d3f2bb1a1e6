package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// Error is the server's refusal: an RFC 9457 problem. errors.Is and errors.As find in it what
// it stands for in package task; see api.Problem.
type Error = api.Problem

// FieldError says what is wrong with one field of a request.
type FieldError = api.ProblemField

// invalid is what a server would answer to a field that is wrong; where it is in is body or query.
func invalid(where string, err error) error {
	e := &Error{
		Status: http.StatusUnprocessableEntity, Title: http.StatusText(http.StatusUnprocessableEntity), Detail: "validation failed",
	}
	if field, ok := errors.AsType[*task.FieldError](err); ok {
		e.Errors = []FieldError{{Location: where + "." + field.Field, Message: field.Message}}
	}
	return e
}

// maxProblem is how much of a refusal is read, in bytes.
const maxProblem = 1 << 20

// refusal reads an answer that is no success. What stands between client and
// server may have sent it, so it need not be a problem.
func refusal(answer *http.Response) error {
	e := &Error{}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	isProblem := strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json")
	if err != nil || !isProblem || json.Unmarshal(text, e) != nil {
		*e = Error{Detail: fmt.Sprintf("%.200q", text)}
	}
	e.Status = answer.StatusCode
	if e.Task != nil {
		e.Task.ETag = answer.Header.Get("ETag")
	}
	if e.Title == "" {
		e.Title = http.StatusText(answer.StatusCode)
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
