package intake

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// node is this node as all parts of a Service use it: its partitions, the tasks that it holds, and the names in requests.
type node struct {
	cfg  Config
	lane lane
}

// Types returns the business types in force.
func (s *node) Types() *task.Types { return s.cfg.Catalog.Load() }

// named returns the business type of a request's field biz_type, or a task.FieldError.
func (s *node) named(name string) (task.BizType, error) {
	b, err := s.Types().Find(name)
	if unknown, is := errors.AsType[*task.UnknownTypeError](err); is {
		err = &task.FieldError{Field: "biz_type", Message: unknown.Message()}
	}
	return b, err
}

// typeFilter turns a name into an id; an empty name into nil.
func (s *node) typeFilter(name string) (*uint64, error) {
	if name == "" {
		return nil, nil
	}
	b, err := s.named(name)
	if err != nil {
		return nil, err
	}
	return &b.ID, nil
}

// shown is a task as callers see it.
func (s *node) shown(t task.Task, err error) (api.Task, error) {
	if err != nil {
		return api.Task{}, err
	}
	shown := api.From(t, s.Types().NameOf(t.BizType))
	shown.ETag = api.ETag(&t)
	return shown, nil
}

// page is a page of tasks as callers see them.
func (s *node) page(list []task.Task, next string, err error) (api.Page, error) {
	if err != nil {
		return api.Page{}, err
	}
	types := s.Types()
	p := api.Page{Tasks: make([]api.Task, len(list)), NextCursor: next}
	for i := range list {
		p.Tasks[i] = api.From(list[i], types.NameOf(list[i].BizType))
	}
	return p, nil
}

// partition returns the partition of a task, or task.ErrNotFound for an impossible job_id.
func (s *node) partition(jobID uint64) (int, error) {
	shard, ok := s.cfg.Layout.ShardOf(jobID)
	if !ok {
		return 0, task.ErrNotFound
	}
	return s.cfg.Layout.Partition(shard), nil
}

// owns reports whether this node decides about a partition's tasks.
func (s *node) owns(partition int) bool { return s.cfg.Cluster.Term(partition) != 0 }

// owner returns the node that decides about a partition which this node does not own.
func (s *node) owner(ctx context.Context, partition int) (Peer, error) {
	if IsForwarded(ctx) {
		return nil, NotBegun("partition %d is not this node's, and the request was forwarded already", partition)
	}
	return s.cfg.Cluster.Owner(partition)
}

// checkTerm is called after a move that began in the given term. If this node has lost the partition since (it
// was paused, say), another owner may have started the task, even if the partition has come back. The outcome
// is then unknown.
func (s *node) checkTerm(partition int, term uint64, jobID uint64) error {
	if s.cfg.Cluster.Term(partition) == term {
		return nil
	}
	return Unavailable("partition %d was lost while task %d was being changed: it may or may not be changed", partition, jobID)
}

// Wake queues or arms tasks that another node has just stored, so they do not wait for the next tick: it is the
// receiving side of dispatch.Nodes. It returns the number of queued tasks. It ignores tasks that are not
// pending, or not in a partition of this node.
func (s *node) Wake(_ context.Context, jobIDs []uint64) (queued int) {
	changes := make([]dispatch.Change, 0, len(jobIDs))
	for _, id := range jobIDs {
		if p, err := s.partition(id); err == nil && s.owns(p) {
			changes = append(changes, dispatch.Change{JobID: id, Status: task.Pending})
		}
	}
	return s.cfg.Dispatch.Moved(changes...)
}

// byKey reads the task that was submitted under a key, or returns task.ErrNotFound.
func (s *node) byKey(ctx context.Context, k api.Key) (task.Task, error) {
	b, err := s.named(k.BizType)
	if err != nil {
		return task.Task{}, err
	}
	bizID, bizKey, err := task.BizIDOf(k.BizID, k.BizKey)
	if err != nil {
		return task.Task{}, err
	}
	if k.DedupKey == "" {
		return task.Task{}, task.Wrong("dedup_key", "is missing; give the dedup_key of the submit")
	}
	if err := checkText("dedup_key", k.DedupKey, task.MaxDedupKey); err != nil {
		return task.Task{}, err
	}
	return s.cfg.Store.First(ctx, bizID, bizKey, b.ID, k.DedupKey)
}

// hold keeps a task of this node from starting until the hold ends. If the partition is lost before that, the
// hold is undone. With tags a changed task gives ChangedError even if it runs: that error says more to the caller.
func (s *node) hold(ctx context.Context, jobID uint64, partition int, term uint64, ifMatch []string) (*queue.Hold, error) {
	h, err := s.cfg.Queue.Hold(ctx, jobID, partition)
	var runs *task.ConflictError
	if errors.As(err, &runs) && s.awaitRecorded(ctx, jobID) {
		h, err = s.cfg.Queue.Hold(ctx, jobID, partition)
	}
	if errors.As(err, &runs) && len(ifMatch) > 0 {
		var changed *task.ChangedError
		if _, unlike := s.getMatching(ctx, jobID, ifMatch); errors.As(unlike, &changed) {
			return nil, changed
		}
	}
	if err != nil || s.cfg.Cluster.Term(partition) == term {
		return h, err
	}
	h.Restore()
	return nil, NotBegun("partition %d has just been lost; task %d is not changed", partition, jobID)
}

// awaitRecorded waits until the outcome of a run that has ended is recorded, and until the queue has it. It reports whether a caller may
// change the task now.
func (s *node) awaitRecorded(ctx context.Context, jobID uint64) bool {
	ended := s.cfg.Queue.Recorded(jobID)
	if ended == nil {
		ended = s.cfg.Queue.Ended(jobID)
		t, err := s.cfg.Store.Get(ctx, jobID)
		if err != nil || t.Status == task.Pending {
			return false
		}
	}
	if ended == nil {
		return true
	}
	select {
	case <-ended:
		return true
	case <-time.After(recordedPatience): // a hand has written this status, and the task runs; or the database hangs
	case <-ctx.Done():
	}
	return false
}

// recordedPatience is how long an outcome may take to be recorded, and the queue to learn of it: it waits for others for up to a second,
// and then for its flush.
const recordedPatience = 2 * time.Second

// getMatching reads a task that must have one of the tags. If the read fails, the change has not begun.
func (s *node) getMatching(ctx context.Context, jobID uint64, ifMatch []string) (task.Task, error) {
	t, err := s.cfg.Store.Get(ctx, jobID)
	switch {
	case err != nil && !errors.Is(err, task.ErrNotFound):
		err = fmt.Errorf("%w: %w", task.ErrNotBegun, err)
	case err == nil && !t.Matches(ifMatch):
		err = &task.ChangedError{Task: t}
	}
	return t, err
}

// lastRetry is a time after the next run of any task of a business type, or of all (nil), that waits to run again.
func (s *node) lastRetry(bizType *uint64) time.Time {
	longest := retryLeast
	for _, b := range s.Types().All() {
		if bizType == nil || b.ID == *bizType {
			longest = max(longest, b.BackoffMax)
		}
	}
	return s.cfg.Now().Add(longest)
}

// Record writes into the audit what was done, now. What was done stands also if the audit cannot be written; then the
// log has it.
func (s *node) Record(ctx context.Context, e store.AuditEntry) {
	e.At = s.cfg.Now()
	if err := s.cfg.Store.Record(context.WithoutCancel(ctx), e); err != nil {
		s.cfg.Logger.Error("audit not written", "actor", e.Actor, "action", e.Action, "target", e.Target, "count", e.Count, "detail", e.Detail,
			"error", err)
	}
}

// Reads of all tables take turns: each takes a connection to every database, and the tasks that fall due need the others.
const (
	laneRuns  = 2
	laneWaits = 16 // beyond, a read is refused
)

// lane makes the reads of all tables take turns.
type lane struct {
	turns *semaphore.Weighted
	under atomic.Int32 // reads that run or wait
}

// busyError refuses a read of all tables, because too many run and wait.
type busyError struct{}

func (busyError) Error() string { return "too many reads of all tables" }
func (busyError) Unwrap() error { return task.ErrUnavailable }

// Where is shown in the answer.
func (busyError) Where() string { return "too many reads of all tables are under way on this node" }

// read waits for a turn, and reads.
func (l *lane) read(ctx context.Context, read func() error) error {
	defer l.under.Add(-1)
	if l.under.Add(1) > laneRuns+laneWaits {
		return busyError{}
	}
	if err := l.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.turns.Release(1)
	return read()
}
