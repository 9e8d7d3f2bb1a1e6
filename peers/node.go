package peers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/groupcommit"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// node is the desk of another node.
type node struct {
	peers   *Peers
	name    string
	at      atomic.Pointer[place]
	failing atomic.Bool // its last question was not answered

	waiting atomic.Int64 // offers that are not on their way yet
	offers  *groupcommit.Group[uint64]
}

func newNode(p *Peers, name string) *node {
	n := &node{peers: p, name: name}
	n.offers = groupcommit.New(intake.MaxWake, 1, n.wake)
	return n
}

// CancelIf asks the owner to cancel a task.
func (n *node) CancelIf(ctx context.Context, jobID uint64, ifMatch []string) error {
	return n.ask(ctx, jobID, func(ctx context.Context, c *client.Client) error {
		return c.Cancel(ctx, jobID, conditions(ifMatch)...)
	})
}

// Reschedule asks the owner to change a task.
func (n *node) Reschedule(ctx context.Context, jobID uint64, c intake.Change) (task.Task, error) {
	asked := client.Change{Attribute: c.Attribute}
	if c.When != nil {
		asked.ActionTime, _ = c.When.Moment()
		if d, ok := c.When.Delay(); ok {
			asked.Delay = &d
		}
	}
	if c.Timeout != nil {
		asked.Timeout = *c.Timeout
	}
	return n.askForTask(ctx, jobID, func(ctx context.Context, cl *client.Client) (client.Task, error) {
		return cl.Reschedule(ctx, jobID, asked, conditions(c.IfMatch)...)
	})
}

// RedriveIf asks the owner to redrive a dead task.
func (n *node) RedriveIf(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	return n.askForTask(ctx, jobID, func(ctx context.Context, c *client.Client) (client.Task, error) {
		return c.Redrive(ctx, jobID, conditions(ifMatch)...)
	})
}

func conditions(ifMatch []string) []client.ChangeOption {
	if len(ifMatch) == 0 {
		return nil
	}
	return []client.ChangeOption{client.IfMatch(ifMatch...)}
}

// Running asks the owner whether a task runs.
func (n *node) Running(ctx context.Context, jobID uint64) (r intake.Running, runs bool, err error) {
	err = n.ask(ctx, jobID, func(ctx context.Context, c *client.Client) error {
		t, err := c.Get(ctx, jobID)
		if runs = t.Running != nil; runs {
			r = intake.Running{Node: t.Running.Node, Since: t.Running.Since.Time()}
		}
		return err
	})
	return r, runs, err
}

func (n *node) askForTask(ctx context.Context, jobID uint64, call func(context.Context, *client.Client) (client.Task, error)) (t task.Task, err error) {
	err = n.ask(ctx, jobID, func(ctx context.Context, c *client.Client) error {
		answered, err := call(ctx, c)
		if err == nil {
			t, err = n.peers.row(answered, jobID)
		}
		return err
	})
	return t, err
}

// again is the pause before a connection is tried a second time.
const again = 50 * time.Millisecond

// ask asks once, and once more if the node was not reached at all. The error is
// one of the desk's.
func (n *node) ask(ctx context.Context, jobID uint64, call func(context.Context, *client.Client) error) error {
	if !n.peers.begin() {
		return n.unavailable("this node is stopping")
	}
	defer n.peers.end()
	bounded, cancel := context.WithTimeout(ctx, n.peers.cfg.Timeout)
	defer cancel()
	err := call(bounded, n.at.Load().client)
	if notConnected(err) && pause(bounded, again) {
		err = call(bounded, n.at.Load().client)
	}
	answered, err := n.answer(jobID, err)
	if answered || ctx.Err() == nil { // a caller that left says nothing about the node
		n.watch(answered, err)
	}
	return err
}

// pause tells whether there is time left after it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch tells the log when a node stops answering, and when it answers again.
func (n *node) watch(answered bool, err error) {
	log := n.peers.cfg.Logger
	switch failed := n.failing.Swap(!answered); {
	case !answered && !failed:
		log.Warn("node does not answer; changes of its tasks are refused meanwhile", "node", n.name, "error", err)
	case answered && failed:
		log.Info("node answers again", "node", n.name)
	}
}

// maxWaiting is how many offers wait for one node at most.
const maxWaiting = 10_000

// Offer tells the owner of tasks that are due soon: those that wait together go
// out together. Offers that fail, or are too many, are dropped; the owner's scan
// finds the tasks.
func (n *node) Offer(tasks ...task.Task) {
	if !n.peers.begin() {
		return
	}
	defer n.peers.end()
	before := int(n.waiting.Add(int64(len(tasks)))) - len(tasks)
	ids := make([]uint64, min(len(tasks), max(0, maxWaiting-before)))
	if excess := len(tasks) - len(ids); excess > 0 {
		n.waiting.Add(int64(-excess))
		n.dropped(excess, "too many wait")
	}
	for i := range ids {
		ids[i] = tasks[i].JobID
	}
	n.offers.Add(ids...)
}

// wake sends offers.
func (n *node) wake(jobIDs []uint64) {
	n.waiting.Add(int64(-len(jobIDs)))
	ctx, cancel := context.WithTimeout(context.Background(), n.peers.patience())
	defer cancel()
	if _, err := n.at.Load().client.Wake(ctx, jobIDs); err != nil {
		n.dropped(len(jobIDs), reason(err))
	}
}

func (n *node) dropped(offers int, why string) {
	n.peers.cfg.Logger.Debug("offers dropped; the owner's scan finds the tasks", "node", n.name, "tasks", offers, "reason", why)
}
