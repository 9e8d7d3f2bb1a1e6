package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
)

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

// ListAll looks up tasks of all tables, in the order of table, action_time and job_id. A page may be short, or empty,
// although it has a NextCursor.
func (c *Client) ListAll(ctx context.Context, q ListAll) (Page, error) {
	var p Page
	_, err := c.do(ctx, http.MethodGet, "/v1/tasks"+query("biz_type", q.BizType, "status", q.Status, "from", rfc3339(q.From), "to",
		rfc3339(q.To),
		"limit", strconv.Itoa(cmp.Or(q.Limit, 100)), "cursor", q.Cursor), nil, &p)
	return p, err
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
