package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/task"
)

// moveRequest is a Move on its way through the writer of moves.
type moveRequest struct {
	request
	move    *Move
	stamp   time.Time
	applied bool
	err     error
	done    *sync.WaitGroup

	// later gets the result in place of done; see ApplyLater.
	later func(applied bool, err error)
	// keepsStamp: an earlier try may have been made, with its stamp.
	keepsStamp bool
}

func (r *moveRequest) id() uint64 { return r.move.JobID }

func (r *moveRequest) fail(err error) { r.finish(false, err) }

func (r *moveRequest) finish(applied bool, err error) {
	if r.later != nil {
		r.later(applied, err)
		return
	}
	r.applied, r.err = applied, err
	r.done.Done()
}

func (r *moveRequest) isSeenIn(row *task.Task) bool {
	m := r.move
	return row.Modified.Equal(r.stamp) && row.Status == m.To && (m.Attempts == nil || row.Attempts == *m.Attempts) &&
		(m.Lease == nil || row.Lease == *m.Lease) && (m.ActionTime == nil || row.ActionTime.UnixMilli() == m.ActionTime.UnixMilli())
}

func notBegun(op string, why error) error { return fmt.Errorf("%s: %w: %w", op, task.ErrNotBegun, why) }

// Moved is the result of one of many moves.
type Moved struct {
	Applied bool
	Err     error
}

// Move makes one move durably and reports whether it applied. Concurrent moves share the commit. It waits two
// seconds for a locked row, then it returns a LockedError. It returns task.ErrNotBegun if ctx had ended before
// writing began; once begun, the write is waited for.
func (s *Store) Move(ctx context.Context, m Move) (applied bool, err error) {
	r := s.MoveAll(ctx, []Move{m})[0]
	return r.Applied, r.Err
}

// MoveAll is Move for tasks of any databases, all at the same time: two moves of one task may be made in either order.
func (s *Store) MoveAll(ctx context.Context, moves []Move) []Moved {
	results, requests := make([]Moved, len(moves)), make([]moveRequest, len(moves))
	lists := make(map[*groupcommit.Group[*moveRequest]][]*moveRequest)
	var done sync.WaitGroup
	for i := range moves {
		shard, ok := s.layout.ShardOf(moves[i].JobID)
		if results[i].Err = moves[i].validate(); results[i].Err != nil || !ok {
			continue
		}
		d := s.layout.Database(shard)
		if why := s.refusesChanges(d); why != nil {
			results[i].Err = s.wrap(d, "update", notBegun("update", why))
			continue
		}
		requests[i] = moveRequest{request: request{ctx: ctx, shard: shard}, move: &moves[i], done: &done}
		group := s.moves.shared[d]
		if len(moves) > burst {
			group = s.moves.lanes[d].own
		}
		lists[group] = append(lists[group], &requests[i])
	}
	for group, list := range lists {
		done.Add(len(list))
		group.Add(list...)
	}
	done.Wait()
	for i := range requests {
		if r := &requests[i]; r.move != nil {
			results[i] = Moved{r.applied, r.err}
		}
	}
	return results
}

// Apply makes moves of one database in one transaction and returns which of them applied. A LockedError names
// tasks whose rows another transaction has locked: these are unchanged, and the other results are valid. After
// any other error the outcome is unknown. The same moves with the same stamp may then be tried again. The
// result is right even if the first try was committed, as long as each task is moved once.
//
// (Two processes that make the same change of the same task in the same millisecond have the same stamp, and
// both may see it as applied.)
func (s *Store) Apply(ctx context.Context, database int, stamp time.Time, moves []Move) ([]bool, error) {
	requests, list := make([]moveRequest, len(moves)), make([]*moveRequest, len(moves))
	var done sync.WaitGroup
	done.Add(len(moves))
	for i := range moves {
		if err := moves[i].validate(); err != nil {
			return nil, err
		}
		shard, _ := s.layout.ShardOf(moves[i].JobID)
		requests[i] = moveRequest{request: request{shard: shard, ofApply: true}, move: &moves[i], stamp: stamp, done: &done}
		list[i] = &requests[i]
	}
	if len(moves) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	_ = s.moves.write(ctx, s.dbs[database], list, s.transact, nil) // each move has its own error
	applied, locked := make([]bool, len(moves)), make(map[uint64]error)
	for i := range requests {
		r := &requests[i]
		if why, is := errors.AsType[*LockedError](r.err); is {
			locked[r.id()] = why.Tasks[r.id()]
		} else if r.err != nil {
			return nil, r.err
		}
		applied[i] = r.applied
	}
	if len(locked) > 0 {
		return applied, s.wrap(database, "update", &LockedError{locked})
	}
	return applied, nil
}

// applyEvery is the time between two tries of ApplyLater.
const applyEvery = time.Second

// ApplyLater makes a move whose row is locked, or whose table cannot be written. It tries each second, apart from the moves
// of others, and calls done once: with the result, or when ctx has ended.
func (s *Store) ApplyLater(ctx context.Context, database int, m Move, done func(applied bool, err error)) {
	shard, _ := s.layout.ShardOf(m.JobID)
	r := &moveRequest{request: request{ctx: ctx, shard: shard, ofApply: true}, move: &m}
	tryAgain := func() { time.AfterFunc(applyEvery, func() { s.moves.lanes[database].aside.Add(r) }) }
	r.later = func(applied bool, err error) {
		if err == nil || ctx.Err() != nil {
			done(applied, err)
			return
		}
		_, untouched := errors.AsType[*LockedError](err)
		r.begun, r.keepsStamp = false, r.keepsStamp || !untouched
		tryAgain()
	}
	tryAgain()
}

// moves is the kind of work of a writer of moves.
type moves struct{ *databases }

func (s moves) begin(db *database, batch []*moveRequest) {
	stamp := s.Stamp(db.index)
	for _, r := range batch {
		if !r.keepsStamp {
			r.stamp = stamp
		}
	}
}

func (moves) prepareAgain(_ context.Context, _ *database, _ []*moveRequest, refused error) error {
	return refused
}

// answer reads the rows of the statements that have changed fewer rows than they have moves.
func (s moves) answer(ctx context.Context, t transaction[*moveRequest], affected []int64) (again []*moveRequest) {
	var unclear [][]*moveRequest
	for i, group := range t.groups {
		if int(affected[i]) != len(group) {
			unclear = append(unclear, group)
			continue
		}
		for _, r := range group {
			r.applied = true
		}
	}
	err := s.wrap(t.db.index, "update", s.findApplied(ctx, t, unclear))
	for _, group := range t.groups {
		for _, r := range group {
			r.finish(err == nil && r.applied, err)
		}
	}
	return nil
}

// findApplied finds the applied moves of groups that were applied in part, as far as can be known: their rows
// have the new status, time and attempts, and this batch's stamp. The stamp alone is not enough: an edit by SQL in
// that very millisecond has it, too. If several moves make the same change of one task, the first one counts.
func (s moves) findApplied(ctx context.Context, t transaction[*moveRequest], unclear [][]*moveRequest) error {
	if len(unclear) == 0 {
		return nil
	}
	var ids []uint64
	for _, group := range unclear {
		for _, r := range group {
			ids = append(ids, r.id())
		}
	}
	found, err := s.load(ctx, t.db.index, ids)
	if err != nil {
		return err
	}
	rows := make(map[uint64]*task.Task, len(found))
	for i := range found {
		rows[found[i].JobID] = &found[i]
	}
	for _, group := range unclear {
		markApplied(group, rows, t.groups)
	}
	return nil
}

// markApplied marks the moves of a group that the rows show. all is the groups of its transaction.
func markApplied(group []*moveRequest, rows map[uint64]*task.Task, all [][]*moveRequest) {
	from, to := group[0].move.From, group[0].move.To
	done := make(map[uint64]bool, len(group))
	for _, r := range group {
		row := rows[r.id()]
		done[r.id()] = row != nil && r.isSeenIn(row)
	}
	if from != to { // a move to the same status can be made again
		for _, r := range slices.Concat(all...) {
			if r.applied && r.move.From == from && r.move.To == to {
				done[r.id()] = false
			}
		}
	}
	for _, r := range group {
		r.applied = done[r.id()]
		done[r.id()] = r.applied && from == to
	}
}
