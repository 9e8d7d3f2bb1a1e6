package client

import (
	"context"
	"net/http"

	"github.com/timeoutcenter/toc/wire"
)

// Cluster tells who owns what.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	var out Cluster
	_, err := c.do(ctx, http.MethodGet, "/v1/cluster", nil, &out)
	return out, err
}

// Wake tells a node of up to 1000 tasks in its partitions that are due soon, as
// nodes do among themselves. It answers how many the node has queued.
func (c *Client) Wake(ctx context.Context, jobIDs []uint64) (taken int, err error) {
	in := wire.WakeRequest{JobIDs: make([]ID, len(jobIDs))}
	for i, id := range jobIDs {
		in.JobIDs[i] = ID(id)
	}
	var out wire.Woken
	_, err = c.do(ctx, http.MethodPost, "/v1/cluster/wake", in, &out)
	return out.Taken, err
}

// BizTypes lists the configured business types.
func (c *Client) BizTypes(ctx context.Context) ([]BizType, error) {
	var out wire.BizTypes
	_, err := c.do(ctx, http.MethodGet, "/v1/biz-types", nil, &out)
	return out.BizTypes, err
}
