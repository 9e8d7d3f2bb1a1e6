package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/task"
)

// Cluster returns the owner of each partition. The owner decides about the partition's tasks, because only its
// queue has the running ones.
type Cluster interface {
	// Term is 0 while another node owns the partition. Otherwise it is a number that changes each time the
	// partition comes back to this node.
	Term(partition int) uint64
	// Owner returns the Service of the owner. The error is a task.ErrUnavailable: the partition has no owner
	// now, or this node does not know it.
	Owner(partition int) (Peer, error)
	// Peers are the Services of the other nodes, each time the same ones.
	Peers() []Peer
	// Undelivered returns a function that reports whether nobody can have the leases that a node was given in answer to a question.
	Undelivered(node string, question uint64) func() bool
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

// singleNode is the cluster of a node that owns everything.
type singleNode struct{}

func (singleNode) Term(int) uint64                        { return 1 }
func (singleNode) Peers() []Peer                          { return nil }
func (singleNode) Undelivered(string, uint64) func() bool { return nil }
func (singleNode) Owner(partition int) (Peer, error) {
	return nil, NotBegun("there is no other node to ask about partition %d", partition)
}

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

// owner returns the node that decides about a partition which this node does not own.
func (s *Service) owner(ctx context.Context, partition int) (Peer, error) {
	if IsForwarded(ctx) {
		return nil, NotBegun("partition %d is not this node's, and the request was forwarded already", partition)
	}
	return s.cfg.Cluster.Owner(partition)
}

// owns reports whether this node decides about a partition's tasks.
func (s *Service) owns(partition int) bool { return s.cfg.Cluster.Term(partition) != 0 }

// checkTerm is called after a move that began in the given term. If this node has lost the partition since (it
// was paused, say), another owner may have started the task, even if the partition has come back. The outcome
// is then unknown.
func (s *Service) checkTerm(partition int, term uint64, jobID uint64) error {
	if s.cfg.Cluster.Term(partition) == term {
		return nil
	}
	return Unavailable("partition %d was lost while task %d was being changed: it may or may not be changed", partition, jobID)
}

// MaxWake is the maximum number of tasks for one Wake.
const MaxWake = 1000

// Wake queues or arms tasks that another node has just stored, so they do not wait for the next tick: it is the
// receiving side of dispatch.Nodes. It returns the number of queued tasks. It ignores tasks that are not
// pending, or not in a partition of this node.
func (s *Service) Wake(_ context.Context, jobIDs []uint64) (queued int) {
	changes := make([]dispatch.Change, 0, len(jobIDs))
	for _, id := range jobIDs {
		if p, err := s.partition(id); err == nil && s.owns(p) {
			changes = append(changes, dispatch.Change{JobID: id, Status: task.Pending})
		}
	}
	return s.cfg.Dispatch.Moved(changes...)
}
