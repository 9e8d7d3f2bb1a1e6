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
	if why := s.refusesChanges(s.layout.Database(shard)); why != nil {
		return false, s.wrap(s.layout.Database(shard), "update", notBegun("update", why))
	}
	req := &moveRequest{ctx: ctx, move: m}
	req.done.Add(1)
	s.sharedMoves[s.layout.Database(shard)].Add(req)
	req.done.Wait()
	return req.applied, req.err
}

// Moved is the result of one of many moves.
type Moved struct {
	Applied bool
	Err     error
}

// MoveAll is Move for tasks of any databases, all at the same time: two moves of one task may be made in either order.
func (s *Store) MoveAll(ctx context.Context, moves []Move) []Moved {
	results := make([]Moved, len(moves))
	requests := make([]*moveRequest, len(moves))
	lists := make(map[*groupcommit.Group[*moveRequest]][]*moveRequest)
	for i, m := range moves {
		shard, ok := s.layout.ShardOf(m.JobID)
		if results[i].Err = m.validate(); results[i].Err != nil || !ok {
			continue
		}
		if why := s.refusesChanges(s.layout.Database(shard)); why != nil {
			results[i].Err = s.wrap(s.layout.Database(shard), "update", notBegun("update", why))
			continue
		}
		req := &moveRequest{ctx: ctx, move: m}
		req.done.Add(1)
		requests[i] = req
		group := s.sharedMoves[s.layout.Database(shard)]
		if len(moves) > burst {
			group = s.dbs[s.layout.Database(shard)].moves
		}
		lists[group] = append(lists[group], req)
	}
	for group, list := range lists {
		group.Add(list...)
	}
	for i, req := range requests {
		if req != nil {
			req.done.Wait()
			results[i] = Moved{req.applied, req.err}
		}
	}
	return results
}

// flushSharedMoves writes one batch of a server: moves of several databases share a commit. If the server rejects it, each
// database writes its own part, so that the others are not affected. A database that did not answer the last time, or that
// cannot be written, always does so.
func (s *Store) flushSharedMoves(batch []*moveRequest) {
	byDB := make([]movePart, len(s.dbs))
	for _, r := range batch {
		shard, _ := s.layout.ShardOf(r.move.JobID)
		d := s.layout.Database(shard)
		if s.dbs[d].unansweredMoves.Load() || !s.Writable(d) {
			s.dbs[d].moves.Add(r)
			continue
		}
		byDB[d].db, byDB[d].requests = s.dbs[d], append(byDB[d].requests, r)
	}
	parts := slices.DeleteFunc(byDB, func(p movePart) bool { return p.db == nil })
	if len(parts) > 1 {
		for i := range parts {
			parts[i].requests = keepMovesAwaited(parts[i].requests)
		}
		parts = slices.DeleteFunc(parts, func(p movePart) bool { return len(p.requests) == 0 })
	}
	if len(parts) > 1 && s.moveTogether(parts) {
		return
	}
	for _, p := range parts {
		p.db.moves.Add(p.requests...)
	}
}

// movePart is the moves of one database in a batch of a server.
type movePart struct {
	db       *database
	requests []*moveRequest

	stamp    time.Time
	moves    []Move
	groups   []moveGroup
	affected []int64 // by group
}

// moveTogether makes the moves of several databases in one transaction and answers them. If nothing was done it does
// neither.
func (s *Store) moveTogether(parts []movePart) (ended bool) {
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	var statements []statement
	for i := range parts {
		p := &parts[i]
		p.stamp, p.moves = s.Stamp(p.db.index), movesOf(p.requests)
		var more []statement
		more, p.groups = s.moveStatements(p.db.index, p.stamp, p.moves, s.backend.qualified)
		statements = append(statements, more...)
	}
	began := time.Now()
	affected, err := s.backend.transact(ctx, parts[0].db.index, statements)
	_, unanswered := errors.AsType[*unansweredError](err)
	if err != nil && !unanswered {
		return false
	}
	took := time.Since(began)
	var answers sync.WaitGroup
	for _, p := range parts {
		if err == nil {
			p.affected, affected = affected[:len(p.groups)], affected[len(p.groups):]
		}
		answers.Go(func() { s.answerPart(&p, took, err) })
	}
	answers.Wait()
	return true
}

// answerPart answers the moves of one database after their transaction.
func (s *Store) answerPart(p *movePart, took time.Duration, err error) {
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	p.db.unansweredMoves.Store(err != nil)
	var applied []bool
	switch {
	case err == nil:
		p.db.condition.recordLatency(&p.db.condition.writes, took)
		applied, err = s.readCounts(ctx, p.db.index, p.stamp, p.moves, p.groups, p.affected)
	case isOver(err):
		applied, err = s.settle(ctx, p.db.index, p.stamp, p.moves, err)
	}
	s.answerMoves(p.db, p.requests, applied, s.wrap(p.db.index, "update", err))
}

// flushMoves writes one batch of a database.
func (s *Store) flushMoves(db *database, batch []*moveRequest) {
	if batch = keepMovesAwaited(batch); len(batch) == 0 {
		return
	}
	// The batch belongs to many callers: none of their contexts may end it.
	applied, err := s.applyMoves(context.Background(), db.index, s.Stamp(db.index), movesOf(batch))
	_, locked := errors.AsType[*LockedError](err)
	db.unansweredMoves.Store(err != nil && !locked && s.backend.refusal(err) == 0)
	s.answerMoves(db, batch, applied, err)
}

// keepMovesAwaited keeps the moves whose callers still wait, and answers the others.
func keepMovesAwaited(batch []*moveRequest) []*moveRequest {
	return slices.DeleteFunc(batch, func(r *moveRequest) bool {
		err := r.ctx.Err()
		if err != nil {
			r.err = notBegun("update", err)
			r.done.Done()
		}
		return err != nil
	})
}

func movesOf(batch []*moveRequest) []Move {
	moves := make([]Move, len(batch))
	for i, r := range batch {
		moves[i] = r.move
	}
	return moves
}

// answerMoves answers moves with the result of Apply.
func (s *Store) answerMoves(db *database, batch []*moveRequest, applied []bool, err error) {
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
			r.err = s.wrap(db.index, "update", s.nameBlocked(db.index, &LockedError{map[uint64]error{r.move.JobID: table}}))
		default:
			r.applied = applied[i]
		}
		r.done.Done()
	}
}
