package rest

import (
	"context"
	"net/http"

	"github.com/timeoutcenter/toc/api"
)

func (a *handlers) cluster(ctx context.Context, _ *struct{}) (*output[api.Cluster], error) {
	c, err := a.status.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]api.Node, len(c.Nodes))
	for i, n := range c.Nodes {
		n.Partitions = append([]int{}, n.Partitions...)
		nodes[i] = n
	}
	c.Nodes = nodes
	return &output[api.Cluster]{c}, nil
}

func (a *handlers) pulse(ctx context.Context, _ *struct{}) (*output[api.Pulse], error) {
	return &output[api.Pulse]{a.status.Pulse(ctx)}, nil
}

func (a *handlers) bizTypes(ctx context.Context, _ *struct{}) (*output[api.BizTypes], error) {
	list, err := a.status.BizTypes(ctx)
	if err != nil {
		return nil, err
	}
	return &output[api.BizTypes]{api.BizTypes{BizTypes: append([]api.BizType{}, list...)}}, nil
}

// NamedBizType is embedded by the inputs of routes of one business type.
type NamedBizType struct {
	Name string `path:"name" doc:"Name of a configured business type." example:"order_close"`
}

type pauseInput struct {
	NamedBizType
	body[api.PauseRequest]
}

func (a *handlers) pause(ctx context.Context, in *pauseInput) (*output[api.BizType], error) {
	return bizType(a.cfg.Operator.Pause(ctx, in.Name, in.sent))
}

func (a *handlers) resume(ctx context.Context, in *NamedBizType) (*output[api.BizType], error) {
	return bizType(a.cfg.Operator.Resume(ctx, in.Name))
}

type retryInput struct {
	NamedBizType
	body[api.RetryRequest]
}

func (a *handlers) retry(ctx context.Context, in *retryInput) (*changedOutput[api.Retried], error) {
	r, err := a.desk.RetryFailing(ctx, in.Name, in.sent.Rate)
	if err != nil {
		return nil, err
	}
	return changedDead(r, api.Retried{Matched: r.Matched, Retried: r.Changed, Operation: api.ID(r.Operation)}), nil
}

func bizType(b api.BizType, err error) (*output[api.BizType], error) {
	if err != nil {
		return nil, err
	}
	return &output[api.BizType]{b}, nil
}

// health says that the process lives, nothing more.
func (a *handlers) health(context.Context, *struct{}) (*output[api.Health], error) {
	return &output[api.Health]{api.Health{Status: "ok"}}, nil
}

type readyOutput struct {
	Status int
	Body   api.Readiness
}

func (a *handlers) ready(ctx context.Context, _ *struct{}) (*readyOutput, error) {
	r := a.status.Ready(ctx)
	if ctx.Value(anonymous{}) != nil {
		r.Degraded = r.Reasons
	}
	r.Degraded = append([]string{}, r.Degraded...)
	out := &readyOutput{Status: http.StatusOK, Body: r}
	if !r.Ready {
		out.Status = http.StatusServiceUnavailable
	}
	return out, nil
}
