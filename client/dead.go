package client

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
)

// ListDead narrows a look-up of dead tasks.
type ListDead struct {
	BizType string // name; empty: all
	Limit   int    // 1 to 1000; 0: 100
	Cursor  string // the NextCursor of the page before; empty: the first page
}

// ListDead looks up dead tasks in the order of their job_id.
func (c *Client) ListDead(ctx context.Context, q ListDead) (Page, error) {
	var p Page
	_, err := c.do(ctx, http.MethodGet, "/v1/dead"+query("biz_type", q.BizType, "limit", strconv.Itoa(cmp.Or(q.Limit, 100)), "cursor", q.Cursor), nil, &p)
	return p, err
}

// RedriveDead puts the dead tasks that match back to pending, attempts 0, due
// now. It may take a while; when ctx ends it stops where it is.
func (c *Client) RedriveDead(ctx context.Context, r RedriveDead) (Redriven, error) {
	var out Redriven
	_, err := c.do(ctx, http.MethodPost, "/v1/dead/redrive", r, &out)
	return out, err
}
