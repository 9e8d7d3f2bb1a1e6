package forward

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/groupcommit"
)

// node is another node of the cluster.
type node struct {
	*Forwarder
	name   string
	peer   *peer // the same at other addresses
	owner  *client.Client
	waiter *client.Client // the same, for requests that wait

	waiting atomic.Int64 // offers that are not being sent yet
	offers  *groupcommit.Group[uint64]
}

// newNode makes a node. The caller holds the lock.
func newNode(f *Forwarder, name string, owner *client.Client) *node {
	n := &node{Forwarder: f, name: name, peer: f.peerLocked(name), owner: owner}
	n.offers = groupcommit.New(intake.MaxWake, 1, n.send)
	return n
}

// Cancel asks the owner to cancel a task.
func (n *node) Cancel(ctx context.Context, jobID uint64, opts ...api.ChangeOption) error {
	_, err := ask(ctx, n, jobID, func(ctx context.Context) (none struct{}, _ error) { return none, n.owner.Cancel(ctx, jobID, opts...) })
	return err
}

// Reschedule asks the owner to change a task.
func (n *node) Reschedule(ctx context.Context, jobID uint64, c api.Change, opts ...api.ChangeOption) (api.Task, error) {
	return n.askChanged(ctx, jobID, func(ctx context.Context) (api.Task, error) { return n.owner.Reschedule(ctx, jobID, c, opts...) })
}

// Redrive asks the owner to redrive a dead task.
func (n *node) Redrive(ctx context.Context, jobID uint64, opts ...api.ChangeOption) (api.Task, error) {
	return n.askChanged(ctx, jobID, func(ctx context.Context) (api.Task, error) { return n.owner.Redrive(ctx, jobID, opts...) })
}

// askChanged asks for a change, whose answer is the task.
func (n *node) askChanged(ctx context.Context, jobID uint64, change func(context.Context) (api.Task, error)) (api.Task, error) {
	return ask(ctx, n, jobID, func(ctx context.Context) (api.Task, error) {
		t, err := change(ctx)
		if err == nil {
			err = checkTask(t, jobID)
		}
		return t, err
	})
}

// Get asks the owner for a task, and so whether it runs.
func (n *node) Get(ctx context.Context, jobID uint64) (api.Task, error) {
	return ask(ctx, n, jobID, func(ctx context.Context) (api.Task, error) { return n.owner.Get(ctx, jobID) })
}

// Why asks the owner why a task waits.
func (n *node) Why(ctx context.Context, jobID uint64) (api.Why, error) {
	return ask(ctx, n, jobID, func(ctx context.Context) (api.Why, error) { return n.owner.Why(ctx, jobID) })
}

// Settle asks the node to settle leases.
func (n *node) Settle(ctx context.Context, list ...api.Settlement) ([]api.Settled, error) {
	return ask(ctx, n, 0, func(ctx context.Context) ([]api.Settled, error) { return n.owner.Settle(ctx, list...) })
}

// retryPause is the pause before the second attempt to connect.
const retryPause = 50 * time.Millisecond

// ask calls the owner once, and once more if there was no connection: then nothing was sent. The error is the
// owner's, or a task.ErrUnavailable.
func ask[T any](ctx context.Context, n *node, jobID uint64, call func(context.Context) (T, error)) (said T, err error) {
	return askWithin(ctx, n, jobID, n.cfg.Timeout, call)
}

func askWithin[T any](ctx context.Context, n *node, jobID uint64, timeout time.Duration,
	call func(context.Context) (T, error)) (said T, err error) {
	if !n.begin() {
		return said, n.stopping()
	}
	defer n.inflight.Done()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent := time.Now()
	said, err = call(bounded)
	if notConnected(err) {
		select {
		case <-time.After(retryPause):
			said, err = call(bounded)
		case <-bounded.Done():
		}
	}
	answered, err := n.answer(jobID, err)
	if answered || ctx.Err() == nil { // if the caller left, the node is not to blame
		n.recordAnswer(answered, sent, err)
	}
	return said, err
}

func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// recordAnswer logs when a node stops answering, and when it answers again.
func (n *node) recordAnswer(answered bool, sent time.Time, err error) {
	switch news := n.peer.recordSilence(answered, sent, err); {
	case !news:
	case answered:
		n.cfg.Logger.Info("node answers again", "node", n.name)
	default:
		n.cfg.Logger.Warn("node does not answer; changes of its tasks are refused meanwhile", "node", n.name, "error", err)
	}
}
