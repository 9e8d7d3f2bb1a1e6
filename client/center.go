package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
)

var _ api.Center = (*Client)(nil)

// get asks a server for out.
func get[T any](ctx context.Context, c *Client, path string) (out T, err error) {
	_, err = c.do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// post sends a body, which may be nil.
func post[T any](ctx context.Context, c *Client, path string, body any, opts ...ChangeOption) (out T, err error) {
	_, err = c.do(ctx, http.MethodPost, path, body, &out, opts...)
	return out, err
}

// query writes names and values, which take turns; an empty value is left out.
func query(namesAndValues ...any) string {
	q := url.Values{}
	for pair := range slices.Chunk(namesAndValues, 2) {
		text := fmt.Sprint(pair[1])
		switch v := pair[1].(type) {
		case time.Time:
			if text = ""; !v.IsZero() {
				text = v.UTC().Format(time.RFC3339Nano)
			}
		case time.Duration:
			if v == 0 {
				text = ""
			}
		}
		if text != "" {
			q.Set(pair[0].(string), text)
		}
	}
	return "?" + q.Encode()
}

// limitOf is the limit of a list.
func limitOf(limit int) int { return cmp.Or(limit, 100) }

func taskPath(jobID uint64, action string) string { return "/v1/tasks/" + ID(jobID).String() + action }

func typePath(bizType, action string) string {
	return "/v1/biz-types/" + url.PathEscape(bizType) + action
}

func operationPath(id uint64, action string) string {
	return "/v1/operations/" + strconv.FormatUint(id, 10) + action
}

// keyPath gives the path of a task, or of an action on it, as taskPath does by the job_id.
func keyPath(k Key, action string) (string, error) {
	bizID, err := api.BizIDOf(k.BizID, k.BizKey)
	if err != nil {
		return "", invalid("query", err)
	}
	return "/v1/tasks/by-key" + action + query("biz_type", k.BizType, "biz_id", bizID, "dedup_key", k.DedupKey), nil
}

// Submit stores one task. If it returns no error, the task is committed.
func (c *Client) Submit(ctx context.Context, submit Submit) (out Submitted, err error) {
	body, err := submit.Request()
	if err != nil {
		return out, invalid("body", err)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return out, fmt.Errorf("encode request: %w", err)
	}
	s := &gathered{ctx: ctx, text: text, isSafe: hasKey(&body)}
	var status int
	if c.gatherer.takes(s) {
		out.Task, status, err = c.gatherer.submit(s)
	} else {
		out.Task, status, err = c.submitAlone(s)
	}
	out.Duplicate = status == http.StatusOK
	return out, err
}

// submitAlone sends one submit in one request.
func (c *Client) submitAlone(s *gathered) (t Task, status int, err error) {
	status, err = c.each(s.ctx, s.isSafe, func(ctx context.Context, base string) (int, error) {
		return c.send(ctx, base, http.MethodPost, "/v1/tasks", s.text, &t, nil)
	})
	return t, status, err
}

const batchPath = "/v1/tasks/batch"

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
	out, err := post[api.BatchAnswer](ctx, c, batchPath, body)
	return out.Results, err
}

// Get looks a task up. Without such a task it answers an *Error with status 404.
func (c *Client) Get(ctx context.Context, jobID uint64) (Task, error) {
	return get[Task](ctx, c, taskPath(jobID, ""))
}

// GetByKey is Get by the caller's own key.
func (c *Client) GetByKey(ctx context.Context, k Key) (Task, error) {
	path, err := keyPath(k, "")
	if err != nil {
		return Task{}, err
	}
	return get[Task](ctx, c, path)
}

// Why returns where a task waits and the reasons, or its outcome. If there is no such task, the error is an
// *Error with status 404.
func (c *Client) Why(ctx context.Context, jobID uint64) (Why, error) {
	return get[Why](ctx, c, taskPath(jobID, "/why"))
}

// WhyByKey is Why by the caller's own key; it looks the task up first.
func (c *Client) WhyByKey(ctx context.Context, k Key) (Why, error) {
	t, err := c.GetByKey(ctx, k)
	if err != nil {
		return Why{}, err
	}
	return c.Why(ctx, uint64(t.JobID))
}

// List looks up the tasks of a biz_id in the order of their submission.
func (c *Client) List(ctx context.Context, q List) (Page, error) {
	bizID, err := api.BizIDOf(q.BizID, q.BizKey)
	if err != nil {
		return Page{}, invalid("query", err)
	}
	return get[Page](ctx, c, "/v1/tasks"+query("biz_id", bizID, "biz_type", q.BizType, "status", q.Status, "limit", limitOf(q.Limit),
		"cursor", q.Cursor))
}

// ListAll looks up tasks of all tables, in the order of table, action_time and job_id. A page may be short, or empty,
// although it has a NextCursor.
func (c *Client) ListAll(ctx context.Context, q ListAll) (Page, error) {
	return get[Page](ctx, c, "/v1/tasks"+query("biz_type", q.BizType, "status", q.Status, "from", q.From, "to", q.To,
		"limit", limitOf(q.Limit), "cursor", q.Cursor))
}

// Forecast counts the pending tasks that are due from now on, by steps of time.
func (c *Client) Forecast(ctx context.Context, q AskForecast) (Forecast, error) {
	return get[Forecast](ctx, c, "/v1/forecast"+query("biz_type", q.BizType, "step", q.Step, "span", q.Span))
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
	out, err := post[api.Cancelled](ctx, c, path, nil, opts...)
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
	return post[Task](ctx, c, taskPath(jobID, "/redrive"), nil, opts...)
}

// ListDead looks up dead tasks, table by table, in each by job_id.
func (c *Client) ListDead(ctx context.Context, q ListDead) (Page, error) {
	return get[Page](ctx, c, "/v1/dead"+query("biz_type", q.BizType, "error", q.Error, "since", q.Since, "until", q.Until,
		"limit", limitOf(q.Limit), "cursor", q.Cursor))
}

// DeadGroups sums up the dead tasks of a business type (empty: of all) by their error, the largest groups first.
func (c *Client) DeadGroups(ctx context.Context, bizType string) (DeadGroups, error) {
	return get[DeadGroups](ctx, c, "/v1/dead/groups"+query("biz_type", bizType))
}

// RedriveDead puts the dead tasks that match back to pending, attempts 0, due
// now. It may take a while; when ctx ends it stops where it is.
func (c *Client) RedriveDead(ctx context.Context, r RedriveDead) (Redriven, error) {
	return post[Redriven](ctx, c, "/v1/dead/redrive", r)
}

// DiscardDead makes the dead tasks that match cancelled. It may take a while; when ctx ends it stops where it is.
func (c *Client) DiscardDead(ctx context.Context, r DiscardDead) (Discarded, error) {
	return post[Discarded](ctx, c, "/v1/dead/discard", r)
}

// Retry makes the pending tasks of a business type run now that have failed and would run again later. With a rate (tasks a second)
// it starts an operation and returns at once; with 0 it waits until all are retried, for 20 s at most: then an Operation goes on.
func (c *Client) Retry(ctx context.Context, bizType string, rate float64) (Retried, error) {
	return post[Retried](ctx, c, typePath(bizType, "/retry"), api.RetryRequest{Rate: rate})
}

// Pause keeps the tasks of a business type from starting, on all nodes within two seconds, over restarts, until
// Resume or p.Until. Runs under way end. A second Pause replaces the first.
func (c *Client) Pause(ctx context.Context, bizType string, p Pause) (BizType, error) {
	return post[BizType](ctx, c, typePath(bizType, "/pause"), p.Request())
}

// Resume ends the pause of a business type: what has become due meanwhile starts at once.
func (c *Client) Resume(ctx context.Context, bizType string) (BizType, error) {
	return post[BizType](ctx, c, typePath(bizType, "/resume"), nil)
}

// Operations lists the latest redrives and discards that have a rate, the latest first; limit 0 is 100.
func (c *Client) Operations(ctx context.Context, limit int) ([]Operation, error) {
	out, err := get[api.Operations](ctx, c, "/v1/operations"+query("limit", limitOf(limit)))
	return out.Operations, err
}

// Operation looks an operation up.
func (c *Client) Operation(ctx context.Context, id uint64) (Operation, error) {
	return get[Operation](ctx, c, operationPath(id, ""))
}

// UndoOperation takes an operation back: the tasks that it has redriven or discarded are dead again, with their attempts
// as before. Tasks that have started or changed since stay as they are. It returns the operation that does this.
func (c *Client) UndoOperation(ctx context.Context, id uint64) (Operation, error) {
	return post[Operation](ctx, c, operationPath(id, "/undo"), nil)
}

// StopOperation stops an operation and returns it. What it has changed stays so; one that has ended stays as it is.
func (c *Client) StopOperation(ctx context.Context, id uint64) (Operation, error) {
	return post[Operation](ctx, c, operationPath(id, "/stop"), nil)
}

// Audit looks up who did what, the latest first.
func (c *Client) Audit(ctx context.Context, q Audit) (AuditPage, error) {
	return get[AuditPage](ctx, c, "/v1/audit"+query("actor", q.Actor, "action", q.Action, "from", q.From, "to", q.To,
		"limit", limitOf(q.Limit), "cursor", q.Cursor))
}

// Lease leases due tasks of a business type whose processor is pull. Without any it waits, and returns an empty list in
// the end. Each task must be settled before ExpiresAt; then it is handed out again, or dead after max_retries. ctx should
// allow for Wait: a caller that gives up earlier may have been given tasks that nobody works on until then. With q.Settle it
// does not wait, and the answer has the results; an older center refuses it with an *Error that names the field body.settle.
func (c *Client) Lease(ctx context.Context, bizType string, q AskLease) (Leased, error) {
	r := api.LeaseRequest{Max: max(1, q.Max), Wait: (*api.Duration)(&q.Wait), Settle: q.Settle}
	if q.TTR != 0 {
		r.TTR = (*api.Duration)(&q.TTR)
	}
	return post[Leased](ctx, c, typePath(bizType, "/lease"), r)
}

// Settle settles up to 1,000 leases. The results are in the order of the list. After an error they are unknown: send
// the list again, and what is lost then may have been settled by the first request.
func (c *Client) Settle(ctx context.Context, list ...Settlement) ([]SettleResult, error) {
	out, err := post[api.SettleAnswer](ctx, c, "/v1/leases/settle", api.SettleRequest{Settle: list})
	return out.Results, err
}

// Cluster returns the nodes and the partitions that each of them owns.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	return get[Cluster](ctx, c, "/v1/cluster")
}

// BizTypes lists the configured business types.
func (c *Client) BizTypes(ctx context.Context) ([]BizType, error) {
	out, err := get[api.BizTypes](ctx, c, "/v1/biz-types")
	return out.BizTypes, err
}

// Wake sends a node up to 1000 tasks in its partitions that are due soon, as
// nodes do among themselves. It returns how many of them the node has queued.
func (c *Client) Wake(ctx context.Context, jobIDs []uint64) (taken int, err error) {
	in := api.WakeRequest{JobIDs: make([]ID, len(jobIDs))}
	for i, id := range jobIDs {
		in.JobIDs[i] = ID(id)
	}
	out, err := post[api.Woken](ctx, c, "/v1/cluster/wake", in)
	return out.Taken, err
}

// Exchange asks a node how it is and for what it does not use of the limits of business types, as nodes do among themselves.
func (c *Client) Exchange(ctx context.Context, r api.ExchangeRequest) (api.ExchangeAnswer, error) {
	return post[api.ExchangeAnswer](ctx, c, "/v1/cluster/limits", r)
}
