package httpapi

import (
	"context"
	"net/http"

	"github.com/timeoutcenter/toc/wire"
)

type clusterOutput struct{ Body wire.Cluster }

func (a *api) cluster(ctx context.Context, _ *struct{}) (*clusterOutput, error) {
	c, err := a.status.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]wire.Node, len(c.Nodes))
	for i, n := range c.Nodes {
		n.Partitions = append([]int{}, n.Partitions...)
		nodes[i] = n
	}
	c.Nodes = nodes
	return &clusterOutput{c}, nil
}

type bizTypesOutput struct{ Body wire.BizTypes }

func (a *api) bizTypes(ctx context.Context, _ *struct{}) (*bizTypesOutput, error) {
	list, err := a.status.BizTypes(ctx)
	if err != nil {
		return nil, err
	}
	return &bizTypesOutput{wire.BizTypes{BizTypes: append([]wire.BizType{}, list...)}}, nil
}

type healthOutput struct{ Body wire.Health }

// health says that the process lives, nothing more.
func (a *api) health(context.Context, *struct{}) (*healthOutput, error) {
	return &healthOutput{wire.Health{Status: "ok"}}, nil
}

type readyOutput struct {
	Status int
	Body   wire.Readiness
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
