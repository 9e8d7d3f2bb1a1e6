package forward

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/intake"
)

// Ahead asks another node for its clock, and returns how far this node's clock is ahead of it: from least to
// most, which differ by the time that the answer took.
func (f *Forwarder) Ahead(ctx context.Context, m cluster.Member) (least, most time.Duration, err error) {
	var sent, received time.Time
	said, err := askMember(ctx, f, m, func(ctx context.Context, c *client.Client) (client.Cluster, error) {
		sent = time.Now()
		defer func() { received = time.Now() }()
		return c.Cluster(ctx)
	})
	if err != nil {
		return 0, 0, err
	}
	if said.Node != m.Name || said.Now.IsZero() {
		return 0, 0, intake.Unavailable("node %q: %v", m.Name, errAnswer)
	}
	theirs := said.Now.Time()
	return sent.Round(0).Sub(theirs) - time.Millisecond, received.Round(0).Sub(theirs), nil // an answer has whole milliseconds
}

// ShareLimits asks another node for what it does not use of the limits of business types.
func (f *Forwarder) ShareLimits(ctx context.Context, m cluster.Member, r api.LimitsRequest) (api.LimitsAnswer, error) {
	return askMember(ctx, f, m, func(ctx context.Context, c *client.Client) (api.LimitsAnswer, error) { return c.ShareLimits(ctx, r) })
}

// BizTypes asks another node for its load.
func (f *Forwarder) BizTypes(ctx context.Context, m cluster.Member) ([]api.BizType, error) {
	return askMember(ctx, f, m, func(ctx context.Context, c *client.Client) ([]api.BizType, error) { return c.BizTypes(ctx) })
}

// Pulse asks another node how it is.
func (f *Forwarder) Pulse(ctx context.Context, m cluster.Member) (api.Pulse, error) {
	return askMember(ctx, f, m, func(ctx context.Context, c *client.Client) (api.Pulse, error) { return c.Pulse(ctx) })
}

// askMember asks a node that need not own anything. The error is a task.ErrUnavailable.
func askMember[T any](ctx context.Context, f *Forwarder, m cluster.Member,
	call func(context.Context, *client.Client) (T, error)) (said T, err error) {
	n, err := f.node(m)
	if err != nil {
		return said, err
	}
	if !n.begin() {
		return said, n.stopping()
	}
	defer n.inflight.Done()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	if said, err = call(ctx, n.owner); err != nil {
		return said, intake.Unavailable("node %q: %s", n.name, reason(err))
	}
	return said, nil
}
