package store

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// The kinds of an Operation.
const (
	OperationRedrive = "redrive"
	OperationDiscard = "discard"
	OperationRetry   = "retry"
)

// The states of an Operation.
const (
	OperationRunning = "running"
	OperationDone    = "done"
	OperationStopped = "stopped"
)

// Operation redrives or discards, at a rate, the dead tasks that match and that died before it started. A retry makes pending tasks of
// a business type run now that have failed and would run again later, before Filter.Until. One that was moved has a
// new promise, which holds.
type Operation struct {
	ID      uint64     `gorm:"serializer:toc"`
	Kind    string     // OperationRedrive, OperationDiscard, OperationRetry or OperationUndo
	Undoes  uint64     `gorm:"serializer:toc"` // of an undo: the operation that it takes back
	Actor   string     // at most 64 characters
	Filter  DeadFilter `gorm:"embedded"`
	Limit   int        `gorm:"column:most"` // at most this many tasks; 0: all
	Rate    float64    // tasks a second, over all databases
	State   string
	Matched int       // dead tasks that matched when it started
	Done    int       // tasks that it has changed
	Skipped int       // tasks that somebody else changed just before it could
	Started time.Time `gorm:"serializer:toc"`
	Ended   time.Time `gorm:"serializer:toc"` // zero: it runs

	Parts []OperationPart `gorm:"-"` // by database
}

// OperationPart is the row of an operation in one database.
type OperationPart struct {
	State  string // empty: there is no row, or it could not be read
	Walked uint64 // the last job_id that was taken
}

// operationRow is the GORM model of toc_operation.
type operationRow struct {
	Operation
	Walked uint64 `gorm:"serializer:toc"`
}

// Runs reports whether an operation has work left in a database.
func (o *Operation) Runs(database int) bool {
	return o.State == OperationRunning && o.Parts[database].State == OperationRunning
}

// Left is how many more tasks it may change, at most most.
func (o *Operation) Left(most int) int {
	if o.Limit > 0 {
		most = min(most, o.Limit-o.Done)
	}
	return most
}

// MaxOperationStep is the maximum number of tasks of an OperationStep. Each may need three statements.
const MaxOperationStep = 100

// StartOperation writes an operation into all databases, and sets its ID, State and Matched. After an error it is
// stopped wherever it was written.
func (s operations) StartOperation(ctx context.Context, o *Operation) error {
	where, which := o.where(s.backend, o.Started)
	return s.startOperation(ctx, o, func(ctx context.Context, d int) (int, error) { return s.countOf(ctx, d, where, which) })
}

func (s operations) startOperation(ctx context.Context, o *Operation, count func(ctx context.Context, database int) (int, error)) error {
	o.ID = operationID(o.Started, rand.Uint64N(1<<operationBits))
	o.State, o.Matched = OperationRunning, 0
	matched := make([]int, len(s.dbs))
	err := s.eachDatabase("start an operation", func(d int) (err error) {
		if matched[d], err = count(ctx, d); err == nil {
			err = s.insertOperation(ctx, d, o, matched[d])
		}
		return err
	})
	for _, n := range matched {
		o.Matched += n
	}
	if err != nil {
		_, stop := s.StopOperation(context.WithoutCancel(ctx), o.ID, o.Started)
		err = errors.Join(err, stop)
	}
	return err
}

// operationBits are the random bits of an operation's id, behind the time of its start.
const operationBits = 20

func operationID(started time.Time, random uint64) uint64 {
	return uint64(started.UnixMilli())<<operationBits | random
}

func (s operations) insertOperation(ctx context.Context, database int, o *Operation, matched int) error {
	var bizType any
	if o.Filter.BizType != nil {
		bizType = s.backend.idArg(*o.Filter.BizType)
	}
	_, err := s.change(ctx, database, "start an operation", statement{
		sql: "INSERT INTO toc_operation (id,kind,actor,biz_type,error,dead_since,dead_until,most,rate,state,matched,started,undoes) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
		args: []any{s.backend.idArg(o.ID), o.Kind, cut(o.Actor, maxActor), bizType, o.Filter.Error, s.timeOrNull(task.CeilMilli(o.Filter.Since)),
			s.timeOrNull(task.CeilMilli(o.Filter.Until)), int64(o.Limit), o.Rate, o.State, int64(matched),
			s.backend.timeArg(task.CeilMilli(o.Started)), s.backend.idArg(o.Undoes)},
	})
	return err
}

// retrySoon is the time before the next run of a failing task in which a retry leaves it out: a node may have read its row for
// that run, and a retry would be one more.
const retrySoon = 2 * time.Second

// where is the condition of the tasks that are left at a time. One that dies, or fails, after the operation has started is left to others.
func (o *Operation) where(b backend, now time.Time) (where string, which []any) {
	f := o.Filter
	if o.Kind == OperationRetry {
		at := func(t time.Time) any { return b.timeArg(task.CeilMilli(t)) }
		return " WHERE status=0 AND attempts>0 AND lease IS NULL AND biz_type=? AND due_time<=? AND action_time>? AND action_time<=? AND gmt_modified<?",
			[]any{b.idArg(*f.BizType), at(now), at(now.Add(retrySoon)), at(f.Until), at(o.Started)}
	}
	if f.Until.IsZero() || f.Until.After(o.Started) {
		f.Until = o.Started
	}
	return f.where(b)
}

// Operations reads the latest operations of all databases, at most limit, the latest first. id is the one that is
// asked for; 0: all. If a database does not answer, what the others know comes with its error.
func (s operations) Operations(ctx context.Context, id uint64, limit int) ([]Operation, error) {
	return s.operations(ctx, latestFirst, limit, "id=? OR ?=0", s.backend.idArg(id), s.backend.idArg(id))
}

// RunningOperations reads the operations that run in some database, at most limit, the oldest first.
func (s operations) RunningOperations(ctx context.Context, limit int) ([]Operation, error) {
	list, err := s.operations(ctx, oldestFirst, limit, "state='running'")
	if len(list) == 0 {
		return nil, err
	}
	ids := make([]any, len(list))
	for i := range list { // a database may have stopped or ended it
		ids[i] = s.backend.idArg(list[i].ID)
	}
	list, more := s.operations(ctx, oldestFirst, len(ids), "id IN ?", ids)
	return list, errors.Join(err, more)
}

// The orders of operations.
const (
	latestFirst = "id DESC"
	oldestFirst = "id"
)

func (s operations) operations(ctx context.Context, order string, limit int, where string, args ...any) ([]Operation, error) {
	var mu sync.Mutex
	found := make(map[uint64]*Operation)
	err := s.eachDatabase("read operations", func(d int) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		q := s.table(ctx, d, "toc_operation").Select("*,seen-done AS skipped").Where(where, args...).Order(order).Limit(limit)
		q.Statement.ConnPool = s.dbs[d].unobserved
		var rows []operationRow
		err := q.Find(&rows).Error
		mu.Lock()
		defer mu.Unlock()
		for _, r := range rows {
			part := OperationPart{r.State, r.Walked}
			if sum := found[r.ID]; sum != nil {
				sum.add(&r.Operation)
			} else {
				r.Parts, found[r.ID] = make([]OperationPart, len(s.dbs)), &r.Operation
			}
			found[r.ID].Parts[d] = part
		}
		return err
	})
	list := make([]Operation, 0, len(found))
	for _, o := range found {
		if o.State == OperationRunning {
			o.Ended = time.Time{}
		}
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b Operation) int {
		if order == oldestFirst {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return list[:min(limit, len(list))], err
}

// add adds the row of another database. One that has stopped stops all; otherwise all must be done.
func (o *Operation) add(other *Operation) {
	o.Matched += other.Matched
	o.Done += other.Done
	o.Skipped += other.Skipped
	if other.Ended.After(o.Ended) {
		o.Ended = other.Ended
	}
	for _, state := range []string{OperationStopped, OperationRunning} {
		if o.State == state || other.State == state {
			o.State = state
			return
		}
	}
}

// StopOperation ends an operation in all databases, and reports whether it ran in any of them. One that took it is
// enough.
func (s operations) StopOperation(ctx context.Context, id uint64, at time.Time) (stopped bool, err error) {
	var mu sync.Mutex
	err = s.eachDatabase("stop an operation", func(d int) error {
		affected, err := s.change(ctx, d, "stop an operation", s.endOperation(id, OperationStopped, at))
		mu.Lock()
		defer mu.Unlock()
		stopped = stopped || err == nil && affected[0] > 0
		return err
	})
	if stopped {
		return true, nil
	}
	return false, err
}

func (s operations) endOperation(id uint64, state string, at time.Time) statement {
	return statement{
		sql:  "UPDATE toc_operation SET state=?,ended=? WHERE id=? AND state='running'",
		args: []any{state, s.backend.timeArg(task.CeilMilli(at)), s.backend.idArg(id)},
	}
}

// OperationStep changes the next tasks of an operation in a database, at most most and MaxOperationStep, and returns
// their job_ids: some may have been skipped. Without any it ends the operation in this database.
//
// The tasks and the counts are one transaction. It does nothing if the operation was stopped, or if another node has
// made this step, since the operation was read. After an error the step may have been made: read the operation again.
func (s operations) OperationStep(ctx context.Context, database int, o *Operation, most int) (jobIDs []uint64, err error) {
	walked := o.Parts[database].Walked
	first := database * s.layout.TablesPerDatabase
	if walked != 0 {
		first, _ = s.layout.ShardOf(walked)
	}
	now := s.cfg.Now()
	where, which := o.where(s.backend, now)
	if most = min(o.Left(most), MaxOperationStep); most > 0 {
		if jobIDs, err = s.idsOf(ctx, database, first, where, which, walked, most); err != nil {
			return nil, s.wrap(database, "read the tasks of an operation", err)
		}
	}
	statements := []statement{s.endOperation(o.ID, OperationDone, now)}
	if len(jobIDs) > 0 {
		statements = s.stepStatements(database, o, now, walked, jobIDs)
	}
	affected, err := s.change(ctx, database, "make a step of an operation", statements...)
	switch {
	case err != nil:
		return nil, err
	case affected[0] == 0:
		return nil, nil
	case len(jobIDs) == 0:
		o.Parts[database].State = OperationDone
		return nil, nil
	}
	o.Parts[database].Walked = jobIDs[len(jobIDs)-1]
	o.Done += len(jobIDs) // at most; the next read corrects it
	return jobIDs, nil
}

// stepStatements first take the step, by a random number: the others apply only if that was done.
func (s operations) stepStatements(database int, o *Operation, now time.Time, walked uint64, jobIDs []uint64) []statement {
	id, step := s.backend.idArg(o.ID), s.backend.idArg(rand.Uint64())
	statements := []statement{{
		sql:  "UPDATE toc_operation SET walked=?,step=?,seen=seen+? WHERE id=? AND state='running' AND walked=?",
		args: []any{s.backend.idArg(jobIDs[len(jobIDs)-1]), step, int64(len(jobIDs)), id, s.backend.idArg(walked)},
	}}
	stamp := s.backend.timeArg(s.Stamp(database))
	where, which := o.where(s.backend, now)
	set, to, actionTime, values := "status=0,attempts=0,due_time=NULL,lease=NULL,action_time=?", task.Pending, "?", []any{s.backend.timeArg(task.CeilMilli(now))}
	switch o.Kind {
	case OperationDiscard:
		set, to, actionTime, values = "status=3,lease=NULL", task.Cancelled, "action_time", nil
	case OperationRetry:
		set = "action_time=?" // due_time is the promised time
	}
	shardOf := func(id uint64) int { shard, _ := s.layout.ShardOf(id); return shard }
	for len(jobIDs) > 0 {
		shard, n := shardOf(jobIDs[0]), 1
		for n < len(jobIDs) && shardOf(jobIDs[n]) == shard {
			n++
		}
		ids := make([]any, n)
		for i := range ids {
			ids[i] = s.backend.idArg(jobIDs[i])
		}
		in := " AND job_id IN (" + placeholders(n) + ")"
		taken := " AND EXISTS (SELECT 1 FROM toc_operation WHERE id=? AND step=?)"
		if o.Kind != OperationRetry {
			statements = append(statements, statement{ // for an undo
				sql: "INSERT INTO toc_operation_task (operation,job_id,attempts,due_time,action_time,to_status,to_action_time,stamp) " +
					"SELECT ?,job_id,attempts,due_time,action_time,?," + actionTime + ",? FROM " + s.indexed(shard, indexPrimary) + where + in + taken,
				args: slices.Concat([]any{id, int64(to)}, values, []any{stamp}, which, ids, []any{id, step}),
			})
		}
		statements = append(statements, statement{
			sql:  "UPDATE " + s.indexed(shard, indexPrimary) + " SET " + set + ",gmt_modified=?" + where + in + taken,
			args: slices.Concat(values, []any{stamp}, which, ids, []any{id, step}),
		}, statement{
			sql: "UPDATE toc_operation SET done=done+(SELECT COUNT(*) FROM " + sharding.TableName(s.layout.Table(shard)) +
				s.backend.hint(indexPrimary, s.layout.Table(shard)) + " WHERE status=? AND gmt_modified=?" + in + ") WHERE id=? AND step=?",
			args: slices.Concat([]any{int64(to), stamp}, ids, []any{id, step}),
		})
		jobIDs = jobIDs[n:]
	}
	return statements
}
