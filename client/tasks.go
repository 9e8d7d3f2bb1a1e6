package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"
)

// Submit asks for one task. It fires at ActionTime or, if that is zero, Delay
// from when the server gets it.
type Submit struct {
	BizType    string        // name of a configured business type
	BizID      uint64        // the business's own id
	ActionTime time.Time     // when to fire; the server rounds it up to a millisecond
	Delay      time.Duration // if ActionTime is zero: how long from now; 0 is at once
	Attribute  string        // handed to the processor; at most 4096 bytes of UTF-8
	DedupKey   string        // makes the submit safe to repeat; at most 64 bytes of UTF-8
}

// submitBody is a Submit as JSON.
type submitBody struct {
	BizType    string `json:"biz_type"`
	BizID      ID     `json:"biz_id"`
	ActionTime string `json:"action_time,omitempty"`
	Delay      string `json:"delay,omitempty"`
	Attribute  string `json:"attribute,omitempty"`
	DedupKey   string `json:"dedup_key,omitempty"`
}

func (s Submit) body() submitBody {
	b := submitBody{BizType: s.BizType, BizID: ID(s.BizID), Attribute: s.Attribute, DedupKey: s.DedupKey}
	if !s.ActionTime.IsZero() {
		b.ActionTime = s.ActionTime.Format(time.RFC3339Nano)
	} else {
		b.Delay = s.Delay.String()
	}
	return b
}

// check refuses what JSON cannot carry: encoding/json would send U+FFFD instead.
func (s Submit) check() error {
	for _, f := range []struct{ name, text string }{{"biz_type", s.BizType}, {"attribute", s.Attribute}, {"dedup_key", s.DedupKey}} {
		if !utf8.ValidString(f.text) {
			return notText(f.name)
		}
	}
	return nil
}

// Submitted answers a Submit.
type Submitted struct {
	Task      Task
	Duplicate bool // the DedupKey was known: Task is the first task, unchanged
}

// Submit stores one task. Without an error it is committed.
func (c *Client) Submit(ctx context.Context, s Submit) (Submitted, error) {
	var out Submitted
	if err := s.check(); err != nil {
		return out, err
	}
	status, err := c.do(ctx, http.MethodPost, "/v1/tasks", nil, s.body(), &out.Task)
	out.Duplicate = status == http.StatusOK
	return out, err
}

// BatchResult is what became of one task of a batch.
type BatchResult struct {
	JobID     ID         `json:"job_id"`
	Duplicate bool       `json:"duplicate"` // the DedupKey was known: JobID is the first task's
	Err       *TaskError `json:"error"`     // nil: the task is stored
}

// SubmitBatch stores up to 10,000 tasks, at most 8 MiB of JSON, and answers for
// each of them, in order. One that is refused does not spoil the rest. After an
// *Error with a 4xx status none is stored; any other error leaves it open.
func (c *Client) SubmitBatch(ctx context.Context, list []Submit) ([]BatchResult, error) {
	body := struct {
		Tasks []submitBody `json:"tasks"`
	}{make([]submitBody, len(list))}
	for i, s := range list {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
		body.Tasks[i] = s.body()
	}
	var out struct {
		Results []BatchResult `json:"results"`
	}
	_, err := c.do(ctx, http.MethodPost, "/v1/tasks/batch", nil, body, &out)
	return out.Results, err
}

// Get looks a task up. Without such a task it answers an *Error with status 404.
func (c *Client) Get(ctx context.Context, jobID uint64) (Task, error) {
	var t Task
	_, err := c.do(ctx, http.MethodGet, taskPath(jobID, ""), nil, nil, &t)
	return t, err
}

// Cancel cancels a pending task. Without an error it never fires. A task that
// is not pending, or running now, is an *Error with status 409 and an Outcome.
func (c *Client) Cancel(ctx context.Context, jobID uint64) error {
	var out struct {
		Outcome string `json:"outcome"`
	}
	_, err := c.do(ctx, http.MethodPost, taskPath(jobID, "/cancel"), nil, nil, &out)
	if err == nil && out.Outcome != "cancelled" { // whatever answered is no timeout center
		err = fmt.Errorf("cancel task %d: the answer has the outcome %.64q", jobID, out.Outcome)
	}
	return err
}

// Change asks for another time, another attribute, or both.
type Change struct {
	ActionTime time.Time      // when to fire; zero: as it is, or Delay
	Delay      *time.Duration // how long from now; nil: as it is, or ActionTime
	Attribute  *string        // nil: as it is
}

// Reschedule changes a pending task in one step and gives it as it stands then.
// Its conflicts are those of Cancel.
func (c *Client) Reschedule(ctx context.Context, jobID uint64, change Change) (Task, error) {
	var t Task
	if change.Attribute != nil && !utf8.ValidString(*change.Attribute) {
		return t, notText("attribute")
	}
	body := struct {
		ActionTime string  `json:"action_time,omitempty"`
		Delay      string  `json:"delay,omitempty"`
		Attribute  *string `json:"attribute,omitempty"`
	}{Attribute: change.Attribute}
	if !change.ActionTime.IsZero() {
		body.ActionTime = change.ActionTime.Format(time.RFC3339Nano)
	}
	if change.Delay != nil {
		body.Delay = change.Delay.String()
	}
	_, err := c.do(ctx, http.MethodPatch, taskPath(jobID, ""), nil, body, &t)
	return t, err
}

// Redrive gives a dead task a fresh start: pending, attempts 0, due now. A task
// that is not dead is an *Error with status 409 and an Outcome.
func (c *Client) Redrive(ctx context.Context, jobID uint64) (Task, error) {
	var t Task
	_, err := c.do(ctx, http.MethodPost, taskPath(jobID, "/redrive"), nil, nil, &t)
	return t, err
}

// List narrows a look-up by biz_id.
type List struct {
	BizID   uint64
	BizType string // name; empty: all
	Status  string // pending, processed, cancelled or dead; empty: all
	Limit   int    // 1 to 1000; 0: 100
	Cursor  string // the NextCursor of the page before; empty: the first page
}

// Page is a part of a list of tasks.
type Page struct {
	Tasks      []Task `json:"tasks"`
	NextCursor string `json:"next_cursor"` // empty: this is the last page
}

// List looks up the tasks of a biz_id in the order of their submission.
func (c *Client) List(ctx context.Context, q List) (Page, error) {
	query := pageQuery(q.BizType, q.Limit, q.Cursor)
	query.Set("biz_id", ID(q.BizID).String())
	if q.Status != "" {
		query.Set("status", q.Status)
	}
	var p Page
	_, err := c.do(ctx, http.MethodGet, "/v1/tasks", query, nil, &p)
	return p, err
}

// pageQuery is what all lists have in common.
func pageQuery(bizType string, limit int, cursor string) url.Values {
	query := url.Values{}
	if bizType != "" {
		query.Set("biz_type", bizType)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return query
}

func taskPath(jobID uint64, action string) string { return "/v1/tasks/" + ID(jobID).String() + action }
