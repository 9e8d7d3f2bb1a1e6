package client

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
)

// ListDead looks up dead tasks, table by table, in each by job_id.
func (c *Client) ListDead(ctx context.Context, q ListDead) (Page, error) {
	var p Page
	_, err := c.do(ctx, http.MethodGet, "/v1/dead"+query("biz_type", q.BizType, "error", q.Error,
		"since", rfc3339(q.Since), "until", rfc3339(q.Until), "limit", strconv.Itoa(cmp.Or(q.Limit, 100)), "cursor", q.Cursor), nil, &p)
	return p, err
}

// RedriveDead puts the dead tasks that match back to pending, attempts 0, due
// now. It may take a while; when ctx ends it stops where it is.
func (c *Client) RedriveDead(ctx context.Context, r RedriveDead) (Redriven, error) {
	var out Redriven
	_, err := c.do(ctx, http.MethodPost, "/v1/dead/redrive", r, &out)
	return out, err
}

// DiscardDead makes the dead tasks that match cancelled. It may take a while; when ctx ends it stops where it is.
func (c *Client) DiscardDead(ctx context.Context, r DiscardDead) (Discarded, error) {
	var out Discarded
	_, err := c.do(ctx, http.MethodPost, "/v1/dead/discard", r, &out)
	return out, err
}

// DeadGroups sums up the dead tasks of a business type (empty: of all) by their error, the largest groups first.
func (c *Client) DeadGroups(ctx context.Context, bizType string) (DeadGroups, error) {
	var out DeadGroups
	_, err := c.do(ctx, http.MethodGet, "/v1/dead/groups"+query("biz_type", bizType), nil, &out)
	return out, err
}

// Operations lists the latest redrives and discards that have a rate, the latest first; limit 0 is 100.
func (c *Client) Operations(ctx context.Context, limit int) ([]Operation, error) {
	var out api.Operations
	_, err := c.do(ctx, http.MethodGet, "/v1/operations"+query("limit", strconv.Itoa(cmp.Or(limit, 100))), nil, &out)
	return out.Operations, err
}

// Operation looks an operation up.
func (c *Client) Operation(ctx context.Context, id uint64) (out Operation, err error) {
	_, err = c.do(ctx, http.MethodGet, "/v1/operations/"+strconv.FormatUint(id, 10), nil, &out)
	return out, err
}

// UndoOperation takes an operation back: the tasks that it has redriven or discarded are dead again, with their attempts
// as before. Tasks that have started or changed since stay as they are. It returns the operation that does this.
func (c *Client) UndoOperation(ctx context.Context, id uint64) (out Operation, err error) {
	_, err = c.do(ctx, http.MethodPost, "/v1/operations/"+strconv.FormatUint(id, 10)+"/undo", nil, &out)
	return out, err
}

// StopOperation stops an operation and returns it. What it has changed stays so; one that has ended stays as it is.
func (c *Client) StopOperation(ctx context.Context, id uint64) (out Operation, err error) {
	_, err = c.do(ctx, http.MethodPost, "/v1/operations/"+strconv.FormatUint(id, 10)+"/stop", nil, &out)
	return out, err
}

// Audit looks up who did what, the latest first.
func (c *Client) Audit(ctx context.Context, q Audit) (AuditPage, error) {
	var p AuditPage
	_, err := c.do(ctx, http.MethodGet, "/v1/audit"+query("actor", q.Actor, "action", q.Action, "from", rfc3339(q.From), "to", rfc3339(q.To),
		"limit", strconv.Itoa(cmp.Or(q.Limit, 100)), "cursor", q.Cursor), nil, &p)
	return p, err
}

// rfc3339 writes a time for a query; "" if there is none.
func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
