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
	"github.com/timeoutcenter/toc/task"
)

// node is another node of the cluster.
type node struct {
	*Forwarder
	name    string
	owner   *client.Client
	waiter  *client.Client // the same, for requests that wait
	failing atomic.Bool    // its last request was not answered
	asked   atomic.Pointer[presence]

	unanswered *unanswered // questions for leases; also of the same node at other addresses

	waiting atomic.Int64 // offers that are not being sent yet
	offers  *groupcommit.Group[uint64]
}

// newNode makes a node. The caller holds the lock.
func newNode(f *Forwarder, name string, owner *client.Client) *node {
	n := &node{Forwarder: f, name: name, owner: owner, unanswered: f.unanswered[name]}
	if n.unanswered == nil {
		n.unanswered = new(unanswered)
		f.unanswered[name] = n.unanswered
	}
	n.offers = groupcommit.New(intake.MaxWake, 1, n.send)
	return n
}

// CancelIf asks the owner to cancel a task.
func (n *node) CancelIf(ctx context.Context, jobID uint64, ifMatch []string) error {
	_, err := ask(ctx, n, jobID, func(ctx context.Context) (none struct{}, _ error) {
		return none, n.owner.Cancel(ctx, jobID, conditions(ifMatch)...)
	})
	return err
}

// Reschedule asks the owner to change a task.
func (n *node) Reschedule(ctx context.Context, jobID uint64, c intake.Change) (task.Task, error) {
	change := client.Change{Attribute: c.Attribute, Past: string(c.Past)}
	if c.When != nil {
		change.ActionTime, _ = c.When.Moment()
		if d, ok := c.When.Delay(); ok {
			change.Delay = &d
		}
	}
	if c.Timeout != nil {
		change.Timeout = *c.Timeout
	}
	return ask(ctx, n, jobID, func(ctx context.Context) (task.Task, error) {
		answered, err := n.owner.Reschedule(ctx, jobID, change, conditions(c.IfMatch)...)
		if err != nil {
			return task.Task{}, err
		}
		return n.row(answered, jobID)
	})
}

// RedriveIf asks the owner to redrive a dead task.
func (n *node) RedriveIf(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	return ask(ctx, n, jobID, func(ctx context.Context) (task.Task, error) {
		answered, err := n.owner.Redrive(ctx, jobID, conditions(ifMatch)...)
		if err != nil {
			return task.Task{}, err
		}
		return n.row(answered, jobID)
	})
}

func conditions(ifMatch []string) []client.ChangeOption {
	if len(ifMatch) == 0 {
		return nil
	}
	return []client.ChangeOption{client.IfMatch(ifMatch...)}
}

// Running asks the owner whether a task runs.
func (n *node) Running(ctx context.Context, jobID uint64) (intake.Running, bool, error) {
	t, err := ask(ctx, n, jobID, func(ctx context.Context) (client.Task, error) { return n.owner.Get(ctx, jobID) })
	if t.Running == nil {
		return intake.Running{}, false, err
	}
	return intake.Running{Node: t.Running.Node, Since: t.Running.Since.Time(), Until: t.Running.Until.Time()}, true, err
}

// Why asks the owner why a task waits.
func (n *node) Why(ctx context.Context, jobID uint64) (api.Why, error) {
	return ask(ctx, n, jobID, func(ctx context.Context) (api.Why, error) { return n.owner.Why(ctx, jobID) })
}

// Settle asks the node to settle leases.
func (n *node) Settle(ctx context.Context, list []api.Settlement) ([]api.Settled, error) {
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
		n.recordAnswer(answered, err)
	}
	return said, err
}

func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// recordAnswer logs when a node stops answering, and when it answers again.
func (n *node) recordAnswer(answered bool, err error) {
	switch failed := n.failing.Swap(!answered); {
	case !answered && !failed:
		n.cfg.Logger.Warn("node does not answer; changes of its tasks are refused meanwhile", "node", n.name, "error", err)
	case answered && failed:
		n.cfg.Logger.Info("node answers again", "node", n.name)
	}
}
