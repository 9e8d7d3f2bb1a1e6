package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/timeoutcenter/toc/task"
)

// moveRequest is a Move on its way through the group commit of its database.
type moveRequest struct {
	ctx     context.Context // of the caller
	move    Move
	applied bool
	err     error
	done    sync.WaitGroup
	waiting
}

func notBegun(op string, why error) error { return fmt.Errorf("%s: %w: %w", op, task.ErrNotBegun, why) }

// Move makes one move durably and reports whether it applied. Concurrent moves share the commit. It waits two
// seconds for a locked row, then it returns a LockedError. It returns task.ErrNotBegun if ctx had ended before
// writing began; once begun, the write is waited for.
func (s *Store) Move(ctx context.Context, m Move) (applied bool, err error) {
	if err := m.validate(); err != nil {
		return false, err
	}
	shard, ok := s.layout.ShardOf(m.JobID)
	if !ok {
		return false, nil
	}
	req := &moveRequest{ctx: ctx, move: m}
	req.done.Add(1)
	s.dbs[s.layout.Database(shard)].moves.Add(req)
	req.done.Wait()
	return req.applied, req.err
}

// Moved is the result of one of many moves.
type Moved struct {
	Applied bool
	Err     error
}

// MoveAll is Move for tasks of any databases, all at the same time: each database writes those of a call together.
func (s *Store) MoveAll(ctx context.Context, moves []Move) []Moved {
	results := make([]Moved, len(moves))
	requests := make([]*moveRequest, len(moves))
	byDatabase := make([][]*moveRequest, len(s.dbs))
	for i, m := range moves {
		shard, ok := s.layout.ShardOf(m.JobID)
		if results[i].Err = m.validate(); results[i].Err != nil || !ok {
			continue
		}
		req := &moveRequest{ctx: ctx, move: m}
		req.done.Add(1)
		requests[i] = req
		d := s.layout.Database(shard)
		byDatabase[d] = append(byDatabase[d], req)
	}
	for d, list := range byDatabase {
		s.dbs[d].moves.Add(list...)
	}
	for i, req := range requests {
		if req != nil {
			req.done.Wait()
			results[i] = Moved{req.applied, req.err}
		}
	}
	return results
}

func (s *Store) flushMoves(db *database, batch []*moveRequest) {
	batch = slices.DeleteFunc(batch, func(r *moveRequest) bool {
		err := r.ctx.Err()
		if err != nil {
			r.err = notBegun("update", err)
			r.done.Done()
		}
		return err != nil
	})
	moves := make([]Move, len(batch))
	for i, r := range batch {
		moves[i] = r.move
	}
	stamp := s.Stamp(db.index)
	// The batch belongs to many callers: none of their contexts may end it.
	applied, err := s.Apply(context.Background(), db.index, stamp, moves)
	var held map[uint64]error
	if locked, is := errors.AsType[*LockedError](err); is {
		held, err = locked.Tasks, nil
	}
	for i, r := range batch {
		table, isHeld := held[r.move.JobID]
		switch {
		case err != nil:
			r.err = err
		case isHeld && table == nil && r.retryLater(func() { db.movesAside.Add(r) }):
			continue
		case isHeld:
			r.err = s.wrap(db.index, "update", &LockedError{map[uint64]error{r.move.JobID: table}})
		default:
			r.applied = applied[i]
		}
		r.done.Done()
	}
}
