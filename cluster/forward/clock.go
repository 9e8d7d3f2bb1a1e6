package forward

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/cluster"
)

// Ahead asks another node for its clock, and returns how far this node's clock is ahead of it: from least to
// most, which differ by the time that the answer took.
func (f *Forwarder) Ahead(ctx context.Context, m cluster.Member) (least, most time.Duration, err error) {
	n, err := f.node(m)
	if err != nil {
		return 0, 0, err
	}
	if !n.begin() {
		return 0, 0, n.unavailable("this node is stopping")
	}
	defer n.inflight.Done()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	sent := time.Now()
	said, err := n.owner.Cluster(ctx)
	received := time.Now()
	if err != nil {
		return 0, 0, n.unavailable(reason(err))
	}
	if said.Node != n.name || said.Now.IsZero() {
		return 0, 0, n.unavailable(errAnswer.Error())
	}
	theirs := said.Now.Time()
	return sent.Round(0).Sub(theirs) - time.Millisecond, received.Round(0).Sub(theirs), nil // an answer has whole milliseconds
}
