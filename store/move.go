package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Move is one change of a task: a compare-and-set of its status. It applies
// only if the row still has status From; then it sets status To and whatever
// else is given. All changes of stored tasks are Moves.
type Move struct {
	JobID    uint64
	From, To task.Status
	Set
}

func (m *Move) validate() error {
	if !m.From.CanBecome(m.To) {
		return fmt.Errorf("update: a task that is %s never becomes %s", m.From, m.To)
	}
	return nil
}

// Set names the other columns that a Move writes; what is nil stays.
type Set struct {
	ActionTime *time.Time
	Attempts   *int
	LastError  *string
	Attribute  *string
}

// Stamp gives the gmt_modified of a batch of moves: the time now, but never the
// same for two batches of one database. Apply recognises by it what an earlier
// try of the same batch has already done.
func (s *Store) Stamp(database int) time.Time {
	now := task.CeilMilli(s.cfg.Now()).UnixMilli()
	for last := &s.dbs[database].stamp; ; {
		seen := last.Load()
		ms := max(now, seen+1)
		if last.CompareAndSwap(seen, ms) {
			return time.UnixMilli(ms).UTC()
		}
	}
}

// stampsAfter makes the stamps to come later than a time that was given to rows.
func (db *database) stampsAfter(at time.Time) {
	for ms := at.UnixMilli(); ; {
		seen := db.stamp.Load()
		if seen >= ms || db.stamp.CompareAndSwap(seen, ms) {
			return
		}
	}
}

// Apply makes moves of one database in one transaction and tells which applied.
// After an error nothing is known; the same moves with the same stamp may be
// tried again and give the right answer, also when the first try had been
// committed, as long as each task is moved once.
//
// (Two processes that make the same change of the same task in the same
// millisecond have the same stamp, and may both be told that it applied.)
func (s *Store) Apply(ctx context.Context, database int, stamp time.Time, moves []Move) ([]bool, error) {
	for i := range moves {
		if err := moves[i].validate(); err != nil {
			return nil, err
		}
	}
	if len(moves) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	applied, err := s.apply(ctx, database, stamp, moves)
	return applied, s.wrap(database, "update", err)
}

func (s *Store) apply(ctx context.Context, database int, stamp time.Time, moves []Move) ([]bool, error) {
	statements, groups := s.moveStatements(database, stamp, moves)
	affected, err := s.backend.transact(ctx, database, statements)
	for s.backend.isConflict(err) {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
		affected, err = s.backend.transact(ctx, database, statements)
	}
	if err != nil {
		return nil, err
	}
	applied := make([]bool, len(moves))
	var unclear []moveGroup
	for i, group := range groups {
		if int(affected[i]) != len(group.moves) {
			unclear = append(unclear, group)
			continue
		}
		for _, m := range group.moves {
			applied[m] = true
		}
	}
	return applied, s.findApplied(ctx, database, stamp, moves, unclear, applied)
}

// moveGroup is the moves of one UPDATE: one table, the same change.
type moveGroup struct {
	shard int
	moves []int // indexes
}

// moveShape is what makes two moves the same change.
type moveShape struct {
	shard              int
	from, to           task.Status
	actionTime         int64
	attempts           int
	lastErr, attribute string
	has                [4]bool
}

func (s *Store) shape(m *Move) moveShape {
	shard, _ := s.layout.ShardOf(m.JobID)
	k := moveShape{shard: shard, from: m.From, to: m.To,
		has: [4]bool{m.ActionTime != nil, m.Attempts != nil, m.LastError != nil, m.Attribute != nil}}
	if m.ActionTime != nil {
		k.actionTime = task.CeilMilli(*m.ActionTime).UnixMilli()
	}
	if m.Attempts != nil {
		k.attempts = *m.Attempts
	}
	if m.LastError != nil {
		k.lastErr = *m.LastError
	}
	if m.Attribute != nil {
		k.attribute = *m.Attribute
	}
	return k
}

// moveStatements renders one UPDATE … WHERE job_id IN (…) per table and change.
// They count their rows unless a task is moved twice: what was done can then not
// be read off the rows.
func (s *Store) moveStatements(database int, stamp time.Time, moves []Move) ([]statement, []moveGroup) {
	index := make(map[moveShape]int, len(moves))
	seen := make(map[uint64]struct{}, len(moves))
	var groups []moveGroup
	for i := range moves {
		k := s.shape(&moves[i])
		g, ok := index[k]
		if !ok {
			g = len(groups)
			index[k] = g
			groups = append(groups, moveGroup{shard: k.shard})
		}
		groups[g].moves = append(groups[g].moves, i)
		seen[moves[i].JobID] = struct{}{}
	}
	// All writers take their locks in the same order: no deadlock among them.
	slices.SortStableFunc(groups, func(a, b moveGroup) int { return a.shard - b.shard })
	statements := make([]statement, len(groups))
	for i, g := range groups {
		statements[i] = s.moveStatement(database, stamp, moves, g, len(seen) == len(moves))
	}
	return statements, groups
}

func (s *Store) moveStatement(database int, stamp time.Time, moves []Move, g moveGroup, counts bool) statement {
	m := &moves[g.moves[0]]
	table := s.layout.Table(g.shard)
	var b strings.Builder
	b.Grow(160 + 2*len(g.moves))
	args := make([]any, 0, 8+len(g.moves))
	status := strconv.Itoa(int(m.To))
	if counts {
		status = s.backend.counted(database, status)
	}
	b.WriteString("UPDATE " + sharding.TableName(table) + s.backend.hint(indexPrimary, table) + " SET status=" + status + ",gmt_modified=?")
	args = append(args, s.backend.at(stamp))
	if m.ActionTime != nil {
		b.WriteString(",action_time=?")
		args = append(args, s.backend.at(task.CeilMilli(*m.ActionTime)))
	}
	if m.Attempts != nil {
		b.WriteString(",attempts=?")
		args = append(args, int64(min(*m.Attempts, task.MaxAttempts)))
	}
	if m.LastError != nil {
		b.WriteString(",last_error=?")
		args = append(args, *m.LastError)
	}
	if m.Attribute != nil {
		b.WriteString(",attribute=?")
		args = append(args, *m.Attribute)
	}
	b.WriteString(" WHERE job_id IN (" + placeholders(len(g.moves)) + ") AND status=?")
	for _, i := range g.moves {
		args = append(args, s.backend.id(moves[i].JobID))
	}
	args = append(args, int64(m.From))
	st := statement{sql: b.String(), args: args}
	if counts {
		st.most = int64(len(g.moves))
	}
	return st
}

// findApplied tells which moves of groups took place of which not all did, as far
// as is known: those whose row has the new status and this batch's stamp. Of
// several that make the same change of one task, the first one did it.
func (s *Store) findApplied(ctx context.Context, database int, stamp time.Time, moves []Move, groups []moveGroup, applied []bool) error {
	if len(groups) == 0 {
		return nil
	}
	var ids []uint64
	for _, g := range groups {
		for _, m := range g.moves {
			ids = append(ids, moves[m].JobID)
		}
	}
	found, err := s.load(ctx, database, ids)
	if err != nil {
		return err
	}
	stamped := make(map[uint64]task.Status, len(found))
	for _, t := range found {
		if t.Modified.Equal(stamp) {
			stamped[t.JobID] = t.Status
		}
	}
	for _, g := range groups {
		from, to := moves[g.moves[0]].From, moves[g.moves[0]].To
		done := make(map[uint64]bool, len(g.moves))
		for _, m := range g.moves {
			id := moves[m].JobID
			status, ok := stamped[id]
			done[id] = ok && status == to
		}
		if from != to { // a move from a status to itself can be made again
			for i, was := range applied {
				if was && moves[i].From == from && moves[i].To == to {
					done[moves[i].JobID] = false // by a group before
				}
			}
		}
		for _, m := range g.moves {
			id := moves[m].JobID
			applied[m] = done[id]
			done[id] = done[id] && from == to
		}
	}
	return nil
}

// moveRequest is a Move on its way through the group commit of its database.
type moveRequest struct {
	ctx     context.Context // of the caller
	move    Move
	applied bool
	err     error
	done    sync.WaitGroup
}

// ErrNotBegun is the error of a change whose caller left before writing it began:
// it is not made. Callers that left do not pile up before a database that hangs.
var ErrNotBegun = errors.New("it was not begun")

func notBegun(op string, why error) error { return fmt.Errorf("%s: %w: %w", op, ErrNotBegun, why) }

// Move makes one move durably and tells whether it applied. Moves asked for at
// the same time share the commit. It answers ErrNotBegun if ctx had ended by then;
// once begun it is waited for.
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
	for i, r := range batch {
		if err != nil {
			r.err = err
		} else {
			r.applied = applied[i]
		}
		r.done.Done()
	}
}
