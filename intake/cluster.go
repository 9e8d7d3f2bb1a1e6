package intake

import (
	"context"
	"fmt"

	"github.com/timeoutcenter/toc/task"
)

// Cluster tells who decides about the tasks of a partition: the node that owns
// it, because only that node's queue knows what runs.
type Cluster interface {
	// Term is 0 while another node decides. While this one does it is a number that is
	// another one each time the partition comes back to this node.
	Term(partition int) uint64
	// Owner gives the desk of the node that does. The error, a
	// task.ErrUnavailable, means that nobody owns the partition or that it is not
	// known who does.
	Owner(partition int) (Peer, error)
}

// Peer is another node's desk. Its answers are those of Desk.
type Peer interface {
	CancelIf(ctx context.Context, jobID uint64, ifMatch []string) error
	Reschedule(ctx context.Context, jobID uint64, c Change) (task.Task, error)
	RedriveIf(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error)
	// Running asks the owner whether a task runs. After an error it is not known.
	Running(ctx context.Context, jobID uint64) (Running, bool, error)
}

// alone is the cluster of a node that decides everything.
type alone struct{}

func (alone) Term(int) uint64 { return 1 }
func (alone) Owner(partition int) (Peer, error) {
	return nil, Unavailable("there is no other node to ask about partition %d", partition)
}

// Unavailable makes a task.ErrUnavailable that says why.
func Unavailable(why string, args ...any) error { return unavailable(fmt.Sprintf(why, args...)) }

type unavailable string

func (u unavailable) Error() string      { return string(u) }
func (unavailable) Is(target error) bool { return target == task.ErrUnavailable }

type forwardedKey struct{}

// Forwarded marks a request that another node has handed on. It is decided here
// or not at all, so that it never goes round in a circle.
func Forwarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, forwardedKey{}, true)
}

func isForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// owner gives the desk that decides about a partition that is not ours.
func (d *Desk) owner(ctx context.Context, partition int) (Peer, error) {
	if isForwarded(ctx) {
		return nil, Unavailable("partition %d is not this node's, and the request was forwarded already", partition)
	}
	return d.cfg.Cluster.Owner(partition)
}

// owns tells whether this node decides about a partition's tasks.
func (d *Desk) owns(partition int) bool { return d.cfg.Cluster.Term(partition) != 0 }

// stillOurs is asked when a move was made that was begun in a term. If the partition
// was lost since (this process was paused, say), even if it has come back, another
// owner may have started the task: the answer can then be neither yes nor no.
func (d *Desk) stillOurs(partition int, term uint64, jobID uint64) error {
	if d.cfg.Cluster.Term(partition) == term {
		return nil
	}
	return Unavailable("partition %d was lost while task %d was being changed: it may or may not be changed", partition, jobID)
}

// dropLost takes what was just put into the queue for a partition out again,
// should it be lost: its new owner must not have to wait for it.
func (d *Desk) dropLost(partition int) (lost bool) {
	if d.owns(partition) {
		return false
	}
	d.cfg.Queue.DropPartitions(func(p int) bool { return !d.owns(p) })
	return true
}
