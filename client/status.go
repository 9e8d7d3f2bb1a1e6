package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/timeoutcenter/toc/api"
)

// Cluster returns the nodes and the partitions that each of them owns.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	var out Cluster
	_, err := c.do(ctx, http.MethodGet, "/v1/cluster", nil, &out)
	return out, err
}

// Pulse returns the state of a node and its work in the last hour, as nodes ask each other for their consoles.
func (c *Client) Pulse(ctx context.Context) (out api.Pulse, err error) {
	_, err = c.do(ctx, http.MethodGet, "/v1/cluster/pulse", nil, &out)
	return out, err
}

// Wake sends a node up to 1000 tasks in its partitions that are due soon, as
// nodes do among themselves. It returns how many of them the node has queued.
func (c *Client) Wake(ctx context.Context, jobIDs []uint64) (taken int, err error) {
	in := api.WakeRequest{JobIDs: make([]ID, len(jobIDs))}
	for i, id := range jobIDs {
		in.JobIDs[i] = ID(id)
	}
	var out api.Woken
	_, err = c.do(ctx, http.MethodPost, "/v1/cluster/wake", in, &out)
	return out.Taken, err
}

// ShareLimits asks a node for what it does not use of the limits of business types, as nodes do among themselves.
func (c *Client) ShareLimits(ctx context.Context, r api.LimitsRequest) (out api.LimitsAnswer, err error) {
	_, err = c.do(ctx, http.MethodPost, "/v1/cluster/limits", r, &out)
	return out, err
}

// Unanswered asks a node which of its questions for leases to this node have no answer, as nodes do among themselves.
func (c *Client) Unanswered(ctx context.Context) (questions []uint64, err error) {
	var out api.Unanswered
	_, err = c.do(ctx, http.MethodGet, "/v1/cluster/unanswered", nil, &out)
	for _, q := range out.Questions {
		questions = append(questions, uint64(q))
	}
	return questions, err
}

// Pause keeps the tasks of a business type from starting, on all nodes within two seconds, over restarts, until
// Resume or p.Until. Runs under way end. A second Pause replaces the first.
func (c *Client) Pause(ctx context.Context, bizType string, p Pause) (BizType, error) {
	return c.decide(ctx, bizType, "pause", p.Request())
}

// Resume ends the pause of a business type: what has become due meanwhile starts at once.
func (c *Client) Resume(ctx context.Context, bizType string) (BizType, error) {
	return c.decide(ctx, bizType, "resume", nil)
}

// Retry makes the pending tasks of a business type run now that have failed and would run again later. With a rate (tasks a second)
// it starts an operation and returns at once; with 0 it waits until all are retried, for 20 s at most: then an Operation goes on.
func (c *Client) Retry(ctx context.Context, bizType string, rate float64) (out Retried, err error) {
	_, err = c.do(ctx, http.MethodPost, "/v1/biz-types/"+url.PathEscape(bizType)+"/retry", api.RetryRequest{Rate: rate}, &out)
	return out, err
}

func (c *Client) decide(ctx context.Context, bizType, verb string, in any) (out BizType, err error) {
	_, err = c.do(ctx, http.MethodPost, "/v1/biz-types/"+url.PathEscape(bizType)+"/"+verb, in, &out)
	return out, err
}

// BizTypes lists the configured business types.
func (c *Client) BizTypes(ctx context.Context) ([]BizType, error) {
	var out api.BizTypes
	_, err := c.do(ctx, http.MethodGet, "/v1/biz-types", nil, &out)
	return out.BizTypes, err
}
