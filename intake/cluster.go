package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// Cluster returns the owner of each partition. The owner decides about the partition's tasks, because only its
// queue has the running ones.
type Cluster interface {
	Terms
	// Owner returns the Service of the owner. The error is a task.ErrUnavailable: the partition has no owner
	// now, or this node does not know it.
	Owner(partition int) (Peer, error)
	// Peers are the Services of the other nodes, each time the same ones.
	Peers() []Peer
	// Undelivered returns a function that reports whether nobody can have the leases that a node was given in answer to a question.
	Undelivered(node string, question uint64) func() bool
}

// Terms has the partitions of this node.
type Terms interface {
	// Term is 0 while another node owns the partition. Otherwise it is a number that changes each time the
	// partition comes back to this node.
	Term(partition int) uint64
}

// Peer is the Service of another node: the part of an api.Center that only the owner of a task can answer. It returns the same errors.
type Peer interface {
	Cancel(ctx context.Context, jobID uint64, opts ...api.ChangeOption) error
	Reschedule(ctx context.Context, jobID uint64, c api.Change, opts ...api.ChangeOption) (api.Task, error)
	Redrive(ctx context.Context, jobID uint64, opts ...api.ChangeOption) (api.Task, error)
	// Get asks the owner whether a task runs. After an error the answer is unknown.
	Get(ctx context.Context, jobID uint64) (api.Task, error)
	// Why asks the owner why a task waits. After an error the answer is unknown.
	Why(ctx context.Context, jobID uint64) (api.Why, error)
	// Lease asks for tasks of the node itself. With a Wait it returns none, but waits until one is due there.
	Lease(ctx context.Context, bizType string, q api.AskLease) (api.LeaseAnswer, error)
	// Settle settles leases of tasks that the node owns. After an error the results are unknown.
	Settle(ctx context.Context, list ...api.Settlement) ([]api.Settled, error)
}

// SingleNode is the Cluster of a single node. If it has lost a database to another process, it decides nothing about its tasks.
type SingleNode struct{ Terms }

func (SingleNode) Peers() []Peer                          { return nil }
func (SingleNode) Undelivered(string, uint64) func() bool { return nil }
func (SingleNode) Owner(partition int) (Peer, error) {
	return nil, NotBegun("partition %d is not worked now: this node does not hold its database", partition)
}

// always are the Terms of a node that owns everything.
type always struct{}

func (always) Term(int) uint64 { return 1 }

// Unavailable makes a task.ErrUnavailable with a reason. Whether something was changed is not known.
func Unavailable(why string, args ...any) error { return unavailable{fmt.Sprintf(why, args...), nil} }

// NotBegun is Unavailable, and a task.ErrNotBegun: nothing was changed.
func NotBegun(why string, args ...any) error {
	return unavailable{fmt.Sprintf(why, args...), task.ErrNotBegun}
}

// UnavailableAs is Unavailable, and also task.ErrNotBegun or task.ErrLocked if the answer of another node is.
func UnavailableAs(answer error, why string, args ...any) error {
	u := unavailable{why: fmt.Sprintf(why, args...)}
	for _, known := range []error{task.ErrNotBegun, task.ErrLocked} {
		if errors.Is(answer, known) {
			u.known = known
		}
	}
	return u
}

type unavailable struct {
	why   string
	known error // nil: it is not known whether something was changed
}

func (u unavailable) Error() string { return u.why }
func (u unavailable) Is(target error) bool {
	return target == task.ErrUnavailable || u.known != nil && target == u.known
}

type forwardedKey struct{}

// forwarded is the node that has forwarded a request, and its number of the question.
type forwarded struct {
	node     string
	question uint64
}

// Forwarded marks a request that another node, of this name, has forwarded. This node decides it or refuses it, so a request
// never goes round in a circle. A question for leases has a number; others have 0.
func Forwarded(ctx context.Context, node string, question uint64) context.Context {
	return context.WithValue(ctx, forwardedKey{}, forwarded{node, question})
}

// IsForwarded reports whether another node has forwarded the request.
func IsForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// MaxWake is the maximum number of tasks for one Wake.
const MaxWake = 1000
