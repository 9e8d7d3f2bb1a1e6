package client

import (
	"context"
	"net/http"
)

// Cluster is who owns what.
type Cluster struct {
	Node       string `json:"node"`       // name of the node that answered
	Partitions int    `json:"partitions"` // how many there are
	Nodes      []Node `json:"nodes"`      // the healthy ones
}

// Node is one node of the cluster.
type Node struct {
	Name       string `json:"name"`
	Address    string `json:"address"`    // where its HTTP API listens
	Partitions []int  `json:"partitions"` // that it owns
}

// Cluster tells who owns what.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	var out Cluster
	_, err := c.do(ctx, http.MethodGet, "/v1/cluster", nil, nil, &out)
	return out, err
}

// Wake tells a node of up to 1000 tasks in its partitions that are due soon, as
// nodes do among themselves. It answers how many the node has queued.
func (c *Client) Wake(ctx context.Context, jobIDs []uint64) (taken int, err error) {
	var in struct {
		JobIDs []ID `json:"job_ids"`
	}
	for _, id := range jobIDs {
		in.JobIDs = append(in.JobIDs, ID(id))
	}
	var out struct {
		Taken int `json:"taken"`
	}
	_, err = c.do(ctx, http.MethodPost, "/v1/cluster/wake", nil, in, &out)
	return out.Taken, err
}

// BizType is a business type and how much it has to do on the node that
// answered.
type BizType struct {
	ID         ID     `json:"id"`
	Name       string `json:"name"`
	Mode       string `json:"mode"` // scan or redis
	Processor  string `json:"processor"`
	QueueDepth int    `json:"queue_depth"` // tasks in the node's queue
	Running    int    `json:"running"`     // tasks being processed
	Overdue    int    `json:"overdue"`     // pending tasks whose time has come
}

// BizTypes lists the configured business types.
func (c *Client) BizTypes(ctx context.Context) ([]BizType, error) {
	var out struct {
		BizTypes []BizType `json:"biz_types"`
	}
	_, err := c.do(ctx, http.MethodGet, "/v1/biz-types", nil, nil, &out)
	return out.BizTypes, err
}
