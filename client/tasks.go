package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// Submit asks for one task. It fires at ActionTime, Delay from when the server gets it, or
// at once; one of them is needed.
type Submit struct {
	BizType    string        // name of a configured business type
	BizID      uint64        // the business's own id; 0 is one, too
	BizKey     string        // the same where it is a text of up to 128 bytes, like a UUID; BizID is then not needed
	ActionTime time.Time     // when to fire; the server rounds it up to a millisecond
	Delay      time.Duration // if ActionTime is zero: how long from now
	Now        bool          // if both are zero: fire at once
	Attribute  string        // handed to the processor; at most 4096 bytes of UTF-8
	DedupKey   string        // makes the submit safe to repeat; at most 64 bytes of UTF-8
	Timeout    time.Duration // how long one run may take: 1 ms to 24 h; 0: as long as the business type says

	// OnDuplicate says what becomes of the first task if DedupKey is known: Keep (the default), Move or Again.
	OnDuplicate string
	// Past says what becomes of an ActionTime more than 5 s ago: Refuse (the default) or Fire.
	Past string
}

// Values of OnDuplicate: they say what a submit does if a task has its DedupKey already.
const (
	Keep = "keep" // nothing
	// Again is Keep while that task is pending. If it has ended, a new task gets the key. The client never repeats such a
	// submit.
	Again = "again"
	Move  = "move" // gives it this time, attribute and, where one is given, timeout. One that is not pending, or runs, is a conflict
)

// Values of Past, for an ActionTime more than 5 s ago.
const (
	Refuse = "refuse" // it is a wrong field
	Fire   = "fire"   // the task is due at once; its DueTime is the ActionTime
)

// Request gives the submit as package api has it. The error, a *task.FieldError, names a
// field that is missing, or that JSON cannot carry: encoding/json would send U+FFFD instead.
func (s Submit) Request() (api.SubmitRequest, error) {
	b := api.SubmitRequest{
		BizType: s.BizType, Attribute: s.Attribute, DedupKey: s.DedupKey, Timeout: api.Duration(s.Timeout),
		OnDuplicate: api.OnDuplicate(s.OnDuplicate),
		Past:        api.Past(s.Past),
	}
	for _, f := range []struct{ name, text string }{{"biz_type", s.BizType}, {"attribute", s.Attribute}, {"dedup_key", s.DedupKey}} {
		if !utf8.ValidString(f.text) {
			return b, notText(f.name)
		}
	}
	var err error
	if b.BizID, err = api.BizIDOf(s.BizID, s.BizKey); err != nil {
		return b, err
	}
	switch {
	case !s.ActionTime.IsZero():
		b.ActionTime, err = actionTime(s.ActionTime)
	case s.Delay != 0 || s.Now:
		b.Delay = (*api.Duration)(&s.Delay)
	default:
		err = &task.FieldError{Field: "action_time", Message: "is missing; give ActionTime, Delay or Now"}
	}
	return b, err
}

// actionTime refuses a year that RFC 3339 cannot write, as of milliseconds that were taken for seconds.
func actionTime(t time.Time) (*time.Time, error) {
	if t.Year() < 0 || t.Year() > 9999 {
		return nil, &task.FieldError{Field: "action_time", Message: fmt.Sprintf("is in the year %d; give one from 0 to 9999", t.Year())}
	}
	return &t, nil
}

func notText(field string) error {
	return &task.FieldError{Field: field, Message: "is not valid UTF-8"}
}

// Submitted answers a Submit.
type Submitted struct {
	Task      Task
	Duplicate bool // the DedupKey was known: Task is the task that has it, unchanged or moved (see OnDuplicate)
}

// Submit stores one task. If it returns no error, the task is committed.
func (c *Client) Submit(ctx context.Context, s Submit) (Submitted, error) {
	var out Submitted
	body, err := s.Request()
	if err != nil {
		return out, invalid("body", err)
	}
	status, err := c.do(ctx, http.MethodPost, "/v1/tasks", body, &out.Task)
	out.Duplicate = status == http.StatusOK
	return out, err
}

// SubmitBatch stores up to 10,000 tasks, at most 8 MiB of JSON, and answers for
// each of them, in order. One that is refused does not spoil the rest. After an
// *Error with a 4xx status none is stored; any other error leaves it open.
func (c *Client) SubmitBatch(ctx context.Context, list []Submit) ([]BatchResult, error) {
	body := api.BatchRequest{Tasks: make([]api.SubmitRequest, len(list))}
	for i, s := range list {
		var err error
		if body.Tasks[i], err = s.Request(); err != nil {
			return nil, fmt.Errorf("task %d: %w", i, invalid("body", err))
		}
	}
	var out api.BatchAnswer
	_, err := c.do(ctx, http.MethodPost, "/v1/tasks/batch", body, &out)
	return out.Results, err
}

// List narrows a look-up by biz_id.
type List struct {
	BizID   uint64
	BizKey  string // the biz_id where it is a text; BizID is then not needed
	BizType string // name; empty: all
	Status  string // pending, processed, cancelled or dead; empty: all
	Limit   int    // 1 to 1000; 0: 100
	Cursor  string // the NextCursor of the page before; empty: the first page
}

// ListAll narrows a look-up over all tasks.
type ListAll struct {
	BizType string    // name; empty: all
	Status  string    // pending, processed, cancelled or dead; empty: pending
	From    time.Time // action_time at this time or later; zero: no bound
	To      time.Time // action_time before this time; zero: no bound
	Limit   int       // 1 to 1000; 0: 100
	Cursor  string    // the NextCursor of the page before; empty: the first page
}

// ListAll looks up tasks of all tables, in the order of table, action_time and job_id. A page may be short, or empty,
// although it has a NextCursor.
func (c *Client) ListAll(ctx context.Context, q ListAll) (Page, error) {
	var p Page
	_, err := c.do(ctx, http.MethodGet, "/v1/tasks"+query("biz_type", q.BizType, "status", q.Status, "from", rfc3339(q.From), "to",
		rfc3339(q.To),
		"limit", strconv.Itoa(cmp.Or(q.Limit, 100)), "cursor", q.Cursor), nil, &p)
	return p, err
}

// AskForecast asks how many tasks are due when.
type AskForecast struct {
	BizType string        // name; empty: all
	Step    time.Duration // whole seconds; 0: a minute
	Span    time.Duration // from now on, at most 31 days; 0: two hours
}

// Forecast counts the pending tasks that are due from now on, by steps of time.
func (c *Client) Forecast(ctx context.Context, q AskForecast) (f Forecast, err error) {
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	_, err = c.do(ctx, http.MethodGet, "/v1/forecast"+query("biz_type", q.BizType, "step", text(q.Step), "span", text(q.Span)), nil, &f)
	return f, err
}

// List looks up the tasks of a biz_id in the order of their submission.
func (c *Client) List(ctx context.Context, q List) (Page, error) {
	bizID, err := api.BizIDOf(q.BizID, q.BizKey)
	if err != nil {
		return Page{}, invalid("query", err)
	}
	var p Page
	_, err = c.do(ctx, http.MethodGet, "/v1/tasks"+query("biz_id", bizID.String(), "biz_type", q.BizType, "status", q.Status,
		"limit", strconv.Itoa(cmp.Or(q.Limit, 100)), "cursor", q.Cursor), nil, &p)
	return p, err
}
