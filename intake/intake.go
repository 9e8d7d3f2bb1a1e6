// Package intake accepts tasks, changes them and answers questions about them.
//
// Requests come in and are checked. Rows and moves go out to the store, and tasks that are due soon go straight
// into the queue. Each refusal has a type: task.FieldError (bad input), task.ConflictError, task.ChangedError,
// task.ErrNotFound, task.ErrUnavailable.
//
// A cancel or a reschedule holds the task in the queue (queue.Hold) while the store decides. A held task cannot
// start, and for a task that has started the answer is "running". Only the queue of the partition's owner can decide
// this, so in a cluster these requests go to the owner, and so do settlements of leases and the questions whether a task
// runs and why it waits. Lease asks all nodes for their due tasks. Each node answers all other requests itself.
//
// The package depends on neither HTTP nor the engines.
package intake

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake/why"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Store is the part of the task store that a Service uses; see store.Store.
type Store interface {
	NewID(bizID uint64) uint64
	InsertAgain(ctx context.Context, tasks []task.Task, again func(i int) bool) []store.Inserted
	Move(ctx context.Context, m store.Move) (applied bool, err error)
	MoveAll(ctx context.Context, moves []store.Move) []store.Moved
	Get(ctx context.Context, jobID uint64) (task.Task, error)
	FailedRuns(ctx context.Context, jobID uint64) ([]task.FailedRun, error)
	Load(ctx context.Context, jobIDs []uint64) ([]task.Task, error)
	First(ctx context.Context, bizID uint64, bizKey string, bizType uint64, dedupKey string) (task.Task, error)
	List(ctx context.Context, bizID uint64, f store.Filter) ([]task.Task, error)
	Walk(ctx context.Context, f store.WalkFilter, after store.Place, limit int) (list []task.Task, next store.Place, more bool, err error)
	Upcoming(ctx context.Context, shards []int, from, to time.Time, rows int) (list []store.Upcoming, scale float64, exact bool, err error)
	ListDead(ctx context.Context, f store.DeadFilter, after uint64, limit int) (list []task.Task, next uint64, err error)
	CountDead(ctx context.Context, f store.DeadFilter) (int, error)
	DeadGroups(ctx context.Context, bizType *uint64) (list []store.DeadGroup, partial bool, err error)
	StartOperation(ctx context.Context, o *store.Operation) error
	Operations(ctx context.Context, id uint64, limit int) ([]store.Operation, error)
	RunningOperations(ctx context.Context, limit int) ([]store.Operation, error)
	StopOperation(ctx context.Context, id uint64, at time.Time) (stopped bool, err error)
	StartUndo(ctx context.Context, o *store.Operation) error
	UndoStep(ctx context.Context, database int, o *store.Operation, list, skip []store.OperationTask) error
	Record(ctx context.Context, e store.AuditEntry) error
	Audit(ctx context.Context, f store.AuditFilter) (list []store.AuditEntry, last store.AuditKey, err error)
}

// Observer counts submitted tasks for the metrics.
type Observer interface {
	Submitted(b task.BizType, tasks int)
}

// Config is the configuration of a Service.
type Config struct {
	Node     string // this node's name, as answers show it
	Store    Store
	Queue    *queue.Queue
	Layout   sharding.Layout
	Catalog  *task.Catalog
	Observer Observer
	// Cluster returns the owners of partitions. Defaults to a single node that owns all.
	Cluster Cluster
	// Dispatch takes the changes of rows. Defaults to one without engines, for which every task waits in the store.
	Dispatch *dispatch.Dispatcher
	// Puller hands out tasks of pull types. Defaults to none.
	Puller Puller
	// Facts adds this node's facts about a task to its row, for Why. Defaults to nothing.
	Facts func(f *why.Facts)
	// Decisions takes pauses, and Load returns the load of a business type on all nodes, as Pause answers it.
	Decisions Decisions
	Load      func(ctx context.Context, b task.BizType) api.BizType
	// Tracer makes the spans of submits; nil: there are none.
	Tracer *tracing.Tracer
	Now    func() time.Time
	// Logger gets what the audit does not take. Defaults to none.
	Logger *slog.Logger
}

// Service serves requests. It is safe for concurrent use.
type Service struct {
	cfg     Config
	lane    *lane
	waiters *waiters
	moving  sync.Map // by job_id of a first task that a submit moves: a channel that is closed when that is done
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Dispatch == nil {
		cfg.Dispatch = dispatch.New(dispatch.Config{Layout: cfg.Layout, Queue: cfg.Queue, Store: cfg.Store})
	}
	if cfg.Cluster == nil {
		cfg.Cluster = singleNode{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Facts == nil {
		cfg.Facts = func(*why.Facts) {}
	}
	if cfg.Puller == nil {
		cfg.Puller = noPuller{}
	}
	return &Service{cfg: cfg, lane: newLane(), waiters: newWaiters(cfg.Cluster.Peers)}
}

var _ api.Center = (*Service)(nil)

// Types returns the business types in force.
func (s *Service) Types() *task.Types { return s.cfg.Catalog.Load() }

// shown is a task as callers see it.
func (s *Service) shown(t task.Task, err error) (api.Task, error) {
	if err != nil {
		return api.Task{}, err
	}
	shown := api.From(t, s.Types().NameOf(t.BizType))
	shown.ETag = api.ETag(&t)
	return shown, nil
}

// partition returns the partition of a task, or task.ErrNotFound for an impossible job_id.
func (s *Service) partition(jobID uint64) (int, error) {
	shard, ok := s.cfg.Layout.ShardOf(jobID)
	if !ok {
		return 0, task.ErrNotFound
	}
	return s.cfg.Layout.Partition(shard), nil
}

// hold keeps a task of this node from starting until the hold ends. If the partition is lost before that, the
// hold is undone. With tags a changed task gives ChangedError even if it runs: that error says more to the caller.
func (s *Service) hold(ctx context.Context, jobID uint64, partition int, term uint64, ifMatch []string) (*queue.Hold, error) {
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

// awaitRecorded waits until the queue has learned of an outcome that the store has already: who has read it there may change the task
// now. It reports whether that was so.
func (s *Service) awaitRecorded(ctx context.Context, jobID uint64) bool {
	ended := s.cfg.Queue.Ended(jobID)
	t, err := s.cfg.Store.Get(ctx, jobID)
	if err != nil || t.Status == task.Pending {
		return false
	}
	if ended == nil {
		return true
	}
	select {
	case <-ended:
		return true
	case <-time.After(recordedPatience): // a hand has written this status, and the task runs
	case <-ctx.Done():
	}
	return false
}

// recordedPatience is how long the queue may take to learn of an outcome.
const recordedPatience = time.Second
