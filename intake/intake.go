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
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

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
	InsertAgain(ctx context.Context, tasks []task.Task, again func(i int) bool,
		early func(decided []int, results []store.Inserted)) []store.Inserted
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

// Status returns what the nodes know besides the store.
type Status interface {
	// AddFacts adds this node's facts about a task to its row, for Why.
	AddFacts(f *why.Facts)
	// LoadOf returns a business type with its load on all nodes, as Pause answers it.
	LoadOf(ctx context.Context, b task.BizType) api.BizType
}

type noStatus struct{}

func (noStatus) AddFacts(*why.Facts)                                  {}
func (noStatus) LoadOf(context.Context, task.BizType) (b api.BizType) { return b }

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
	// Status has what the store does not: this node's facts, and the load of all nodes. Defaults to nothing.
	Status Status
	// Decisions takes pauses.
	Decisions Decisions
	// Tracer makes the spans of submits; nil: there are none.
	Tracer *tracing.Tracer
	Now    func() time.Time
	// Logger gets what the audit does not take. Defaults to none.
	Logger *slog.Logger
}

// Service serves requests. It is safe for concurrent use.
type Service struct {
	*node
	submits
	changes
	lookups
	operations
	pauses
	leases
}

// The methods of a Service, by what they are about.
type (
	// submits store new tasks.
	submits struct {
		*node
		changes changes
		moving  sync.Map // by job_id of a first task that a submit moves: a channel that is closed when that is done
	}
	// changes change one task, at the owner of its partition.
	changes struct{ *node }
	// lookups answer questions.
	lookups struct{ *node }
	// operations change many tasks, at once or at a rate.
	operations struct{ *node }
	// pauses keep the tasks of a business type from starting.
	pauses struct{ *node }
	// leases hand out tasks to consumers, and settle them.
	leases struct {
		*node
		waiters *waiters
	}
)

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Dispatch == nil {
		cfg.Dispatch = dispatch.New(dispatch.Config{Layout: cfg.Layout, Queue: cfg.Queue, Store: cfg.Store})
	}
	cfg.Cluster = cmp.Or[Cluster](cfg.Cluster, SingleNode{always{}})
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Status, cfg.Puller = cmp.Or[Status](cfg.Status, noStatus{}), cmp.Or[Puller](cfg.Puller, noPuller{})
	n := &node{cfg, lane{turns: semaphore.NewWeighted(laneRuns)}}
	return &Service{node: n, submits: submits{node: n, changes: changes{n}}, changes: changes{n}, lookups: lookups{n},
		operations: operations{n}, pauses: pauses{n}, leases: leases{n, newWaiters(cfg.Cluster.Peers)}}
}

var _ api.Center = (*Service)(nil)
