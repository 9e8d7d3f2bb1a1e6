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
// it stands for in package task; see Unwrap.
type Error struct {
	Status  int          `json:"status"`       // HTTP status
	Title   string       `json:"title"`        // the status in words
	Detail  string       `json:"detail"`       // what is wrong
	Outcome string       `json:"outcome"`      // with 409: already_processed, already_cancelled, dead, running or pending
	Until   api.Time     `json:"leased_until"` // with the outcome running: when its consumer's lease ends; zero: no consumer has it
	Task    *Task        `json:"task"`         // with 412: the task as it stands, its ETag too
	Errors  []FieldError `json:"errors"`       // with 422 (and 400, 413, 415): which fields are wrong

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

// Unwrap gives the errors of package task that the refusal stands for, by its status:
//
//	404  task.ErrNotFound
//	409  *task.ConflictError; its JobID is 0: a problem does not name it
//	412  *task.ChangedError; its Task has BizType 0: a problem names it by its name
//	422  *task.FieldError, one for each field that is wrong
//	503  task.ErrUnavailable; task.ErrLocked or task.ErrNotBegun, too, if that is known
func (e *Error) Unwrap() (known []error) {
	switch e.Status {
	case http.StatusNotFound:
		return []error{task.ErrNotFound}
	case http.StatusConflict:
		switch c := task.Conflict(e.Outcome); c {
		case task.ConflictProcessed, task.ConflictCancelled, task.ConflictDead, task.ConflictRunning, task.ConflictPending:
			return []error{&task.ConflictError{Conflict: c, Until: e.Until.Time()}}
		}
	case http.StatusPreconditionFailed:
		if e.Task != nil {
			if t, err := e.Task.Task(0); err == nil {
				return []error{&task.ChangedError{Task: t}}
			}
		}
	case http.StatusUnprocessableEntity:
		for _, f := range e.Errors {
			_, field, found := strings.Cut(f.Location, ".") // body.delay is the field delay
			if !found {
				field = f.Location
			}
			known = append(known, &task.FieldError{Field: field, Message: f.Message})
		}
	case http.StatusServiceUnavailable:
		return api.Unavailable(e.Detail)
	}
	return known
}

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
