package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is the server's refusal: an RFC 9457 problem.
type Error struct {
	Status  int          `json:"status"`  // HTTP status
	Title   string       `json:"title"`   // the status in words
	Detail  string       `json:"detail"`  // what is wrong
	Outcome string       `json:"outcome"` // with 409: already_processed, already_cancelled, dead, running or pending
	Task    *Task        `json:"task"`    // with 412: the task as it stands, its ETag too
	Errors  []FieldError `json:"errors"`  // with 422 (and 400, 413, 415): which fields are wrong

	// RetryAfter is how long the server asks to wait, with 503. 0: it does not say.
	RetryAfter time.Duration `json:"-"`
}

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	Location string `json:"location"` // like body.biz_id or query.limit
	Message  string `json:"message"`
}

func (e *Error) Error() string {
	if len(e.Errors) == 0 {
		return fmt.Sprintf("%d %s: %s", e.Status, e.Title, e.Detail)
	}
	parts := make([]string, len(e.Errors))
	for i, f := range e.Errors {
		parts[i] = f.Location + ": " + f.Message
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Title, strings.Join(parts, "; "))
}

// notText is what a server would answer to a text that is none.
func notText(field string) error { return invalid("body."+field, "is not valid UTF-8") }

// invalid is what a server would answer to a field that is wrong.
func invalid(location, message string) error {
	return &Error{
		Status: http.StatusUnprocessableEntity, Title: http.StatusText(http.StatusUnprocessableEntity), Detail: "validation failed",
		Errors: []FieldError{{Location: location, Message: message}},
	}
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

// TaskError says why one task of a batch was not stored.
type TaskError struct {
	Field   string `json:"field"` // the field that is wrong; empty if none is
	Message string `json:"message"`
	Outcome string `json:"outcome"` // why the first task could not be moved: already_processed, already_cancelled, dead or running
	Retry   bool   `json:"retry"`   // nothing is wrong with the task: submit it again
}

func (e *TaskError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}
