package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/timeoutcenter/toc/api"
)

// keyPath gives the path of a task, or of an action on it, as taskPath does by the job_id.
func keyPath(k Key, action string) (string, error) {
	bizID, err := api.BizIDOf(k.BizID, k.BizKey)
	if err != nil {
		return "", invalid("query", err)
	}
	return "/v1/tasks/by-key" + action + query("biz_type", k.BizType, "biz_id", bizID.String(), "dedup_key", k.DedupKey), nil
}

// Get looks a task up. Without such a task it answers an *Error with status 404.
func (c *Client) Get(ctx context.Context, jobID uint64) (Task, error) {
	return c.get(ctx, taskPath(jobID, ""))
}

// GetByKey is Get by the caller's own key.
func (c *Client) GetByKey(ctx context.Context, k Key) (Task, error) {
	path, err := keyPath(k, "")
	if err != nil {
		return Task{}, err
	}
	return c.get(ctx, path)
}

func (c *Client) get(ctx context.Context, path string) (t Task, err error) {
	_, err = c.do(ctx, http.MethodGet, path, nil, &t)
	return t, err
}

// Why returns where a task waits and the reasons, or its outcome. If there is no such task, the error is an
// *Error with status 404.
func (c *Client) Why(ctx context.Context, jobID uint64) (w Why, err error) {
	_, err = c.do(ctx, http.MethodGet, taskPath(jobID, "/why"), nil, &w)
	return w, err
}

// WhyByKey is Why by the caller's own key; it looks the task up first.
func (c *Client) WhyByKey(ctx context.Context, k Key) (Why, error) {
	t, err := c.GetByKey(ctx, k)
	if err != nil {
		return Why{}, err
	}
	return c.Why(ctx, uint64(t.JobID))
}

// Cancel cancels a pending task. Without an error it never fires. A task that
// is not pending, or running now, is an *Error with status 409 and an Outcome.
func (c *Client) Cancel(ctx context.Context, jobID uint64, opts ...ChangeOption) error {
	return c.cancel(ctx, taskPath(jobID, "/cancel"), opts)
}

// CancelByKey is Cancel by the caller's own key.
func (c *Client) CancelByKey(ctx context.Context, k Key, opts ...ChangeOption) error {
	path, err := keyPath(k, "/cancel")
	if err != nil {
		return err
	}
	return c.cancel(ctx, path, opts)
}

func (c *Client) cancel(ctx context.Context, path string, opts []ChangeOption) error {
	var out api.Cancelled
	_, err := c.do(ctx, http.MethodPost, path, nil, &out, opts...)
	if err == nil && out.Outcome != api.OutcomeCancelled { // the server is no timeout center
		err = fmt.Errorf("%s: the answer has the outcome %.64q", path, out.Outcome)
	}
	return err
}

// Reschedule changes a pending task in one step and gives it as it stands then.
// Its conflicts are those of Cancel.
func (c *Client) Reschedule(ctx context.Context, jobID uint64, change Change, opts ...ChangeOption) (Task, error) {
	return c.reschedule(ctx, taskPath(jobID, ""), change, opts)
}

// RescheduleByKey is Reschedule by the caller's own key.
func (c *Client) RescheduleByKey(ctx context.Context, k Key, change Change, opts ...ChangeOption) (Task, error) {
	path, err := keyPath(k, "")
	if err != nil {
		return Task{}, err
	}
	return c.reschedule(ctx, path, change, opts)
}

func (c *Client) reschedule(ctx context.Context, path string, change Change, opts []ChangeOption) (t Task, err error) {
	body, err := change.Request()
	if err != nil {
		return t, invalid("body", err)
	}
	_, err = c.do(ctx, http.MethodPatch, path, body, &t, opts...)
	return t, err
}

// Redrive gives a dead task a fresh start: pending, attempts 0, due now. A task
// that is not dead is an *Error with status 409 and an Outcome.
func (c *Client) Redrive(ctx context.Context, jobID uint64, opts ...ChangeOption) (Task, error) {
	var t Task
	_, err := c.do(ctx, http.MethodPost, taskPath(jobID, "/redrive"), nil, &t, opts...)
	return t, err
}

func taskPath(jobID uint64, action string) string { return "/v1/tasks/" + ID(jobID).String() + action }
