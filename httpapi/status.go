package httpapi

import (
	"context"
	"net/http"

	"github.com/timeoutcenter/toc/taskjson"
)

// Cluster is who owns what.
type Cluster struct {
	Node       string `json:"node" doc:"Name of the node that answers." example:"node-1"`
	Partitions int    `json:"partitions" doc:"How many partitions there are." example:"256"`
	Nodes      []Node `json:"nodes" nullable:"false" doc:"The healthy nodes."`
}

// Node is one node of the cluster.
type Node struct {
	Name       string `json:"name" example:"node-1"`
	Address    string `json:"address" doc:"Where its HTTP API listens." example:"10.0.0.7:8080"`
	Partitions []int  `json:"partitions" nullable:"false" doc:"The partitions it owns." example:"[0,1,2]"`
}

// BizType is a business type and how much it has to do on this node.
type BizType struct {
	ID         taskjson.ID `json:"id" doc:"Its number in the task tables." example:"1"`
	Name       string      `json:"name" example:"order_close"`
	Mode       string      `json:"mode" enum:"scan,redis" doc:"The engine that finds its due tasks."`
	Processor  string      `json:"processor" example:"webhook"`
	QueueDepth int         `json:"queue_depth" doc:"Tasks in this node's queue." example:"12"`
	Running    int         `json:"running" doc:"Tasks that are being processed by this node." example:"3"`
	Overdue    int         `json:"overdue" doc:"Pending tasks in this node's tables whose time has come." example:"0"`
}

// Readiness tells whether this node can serve.
type Readiness struct {
	Ready    bool     `json:"ready"`
	Degraded []string `json:"degraded" nullable:"false" doc:"What does not work as it should; it need not keep the node from being ready." example:"database toc_3 is down"`
}

type clusterOutput struct{ Body Cluster }

func (a *api) cluster(ctx context.Context, _ *struct{}) (*clusterOutput, error) {
	c, err := a.status.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]Node, len(c.Nodes))
	for i, n := range c.Nodes {
		n.Partitions = append([]int{}, n.Partitions...)
		nodes[i] = n
	}
	c.Nodes = nodes
	return &clusterOutput{c}, nil
}

type bizTypesOutput struct {
	Body struct {
		BizTypes []BizType `json:"biz_types" nullable:"false"`
	} `nameHint:"BizTypes"`
}

func (a *api) bizTypes(ctx context.Context, _ *struct{}) (*bizTypesOutput, error) {
	list, err := a.status.BizTypes(ctx)
	if err != nil {
		return nil, err
	}
	out := &bizTypesOutput{}
	out.Body.BizTypes = append([]BizType{}, list...)
	return out, nil
}

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	} `nameHint:"Health"`
}

// health says that the process lives, nothing more.
func (a *api) health(context.Context, *struct{}) (*healthOutput, error) {
	out := &healthOutput{}
	out.Body.Status = "ok"
	return out, nil
}

type readyOutput struct {
	Status int
	Body   Readiness
}

func (a *api) ready(ctx context.Context, _ *struct{}) (*readyOutput, error) {
	r := a.status.Ready(ctx)
	r.Degraded = append([]string{}, r.Degraded...)
	out := &readyOutput{Status: http.StatusOK, Body: r}
	if !r.Ready {
		out.Status = http.StatusServiceUnavailable
	}
	return out, nil
}
