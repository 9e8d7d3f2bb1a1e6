package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Move is one change of a task: a compare-and-set. It applies only if the row still has status From and matches
// Read; then it sets status To and the given columns. All changes of stored tasks are Moves.
type Move struct {
	JobID    uint64
	From, To task.Status
	// Read is the task as it was read: the move applies only if action_time and attempts have not changed
	// since, or, with Whole, any column. nil: they do not matter.
	Read  *task.Task
	Whole bool
	// DueBy takes the place of Read's action_time: the move applies only if the row is due by then. Moves of tasks with
	// different times are then one statement.
	DueBy *time.Time
	// HasLease: the move applies only if the row has this lease; 0: none. nil: it does not matter.
	HasLease *uint64
	Set
}

func (m *Move) validate() error {
	if !m.From.CanBecome(m.To) {
		return fmt.Errorf("update: a task that is %s never becomes %s", m.From, m.To)
	}
	return nil
}

// Set has the other columns that a Move writes; nil columns stay.
type Set struct {
	ActionTime *time.Time
	Attempts   *int
	LastError  *string
	Attribute  *string
	Timeout    *time.Duration // 0: the business type's
	Promised   *time.Time     // due_time, unless the row has one
	KeepDue    bool           // Promised is the row's action_time before the move
	NewPromise bool           // ActionTime is the promised time
	Lease      *uint64        // 0: none, as for each move to or from another status than pending
	Restore    bool           // ActionTime becomes the promised time again
}

// Stamp returns the gmt_modified of a batch of moves: the current time, but different for each batch of a
// database. By it Apply recognises the moves that an earlier try of the same batch has made.
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

// stampsAfter makes the following stamps later than a time that rows already have.
func (db *database) stampsAfter(at time.Time) {
	for ms := at.UnixMilli(); ; {
		seen := db.stamp.Load()
		if seen >= ms || db.stamp.CompareAndSwap(seen, ms) {
			return
		}
	}
}

// Apply makes moves of one database in one transaction and returns which of them applied. A LockedError names
// tasks whose rows another transaction has locked: these are unchanged, and the other results are valid. After
// any other error the outcome is unknown. The same moves with the same stamp may then be tried again. The
// result is right even if the first try was committed, as long as each task is moved once.
//
// (Two processes that make the same change of the same task in the same millisecond have the same stamp, and
// both may see it as applied.)
func (s *Store) Apply(ctx context.Context, database int, stamp time.Time, moves []Move) ([]bool, error) {
	applied, err := s.applyMoves(ctx, database, stamp, moves)
	return applied, s.nameBlocked(database, err)
}

func (s *Store) applyMoves(ctx context.Context, database int, stamp time.Time, moves []Move) ([]bool, error) {
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
	applied, err := s.applyWhole(ctx, database, stamp, moves, s.transact)
	switch {
	case err == nil:
		return applied, nil
	case isOver(err):
		return s.settle(ctx, database, stamp, moves, err)
	case errors.Is(err, errLocked) && len(moves) == 1:
		return make([]bool, 1), &LockedError{map[uint64]error{moves[0].JobID: tableFault(err)}}
	case errors.Is(err, errLocked), s.backend.refusal(err) == refusedSize && len(moves) > 1:
		return s.applyParts(ctx, database, stamp, moves)
	}
	return nil, err
}

// errLocked: the moves were not made, because of some of them. (A look-up after they were made may meet a lock,
// too.)
var errLocked = errors.New("locked by another transaction")

// tableError is an errLocked whose cause is one table, not a lock.
type tableError struct{ error }

func (e *tableError) Unwrap() error        { return e.error }
func (e *tableError) Is(target error) bool { return target == errLocked }

// tableFault returns the error of a table; nil: the cause is a lock.
func tableFault(err error) error {
	if table, is := errors.AsType[*tableError](err); is {
		return table.error
	}
	return nil
}

// applyWhole makes moves in one transaction, or returns errLocked.
func (s *Store) applyWhole(ctx context.Context, database int, stamp time.Time, moves []Move, transact transactor) ([]bool, error) {
	statements, groups := s.moveStatements(database, stamp, moves, tableName)
	affected, err := s.retryConflicts(ctx, database, statements, transact)
	switch why := s.backend.refusal(err); {
	case why == refusedLocked:
		return nil, errLocked
	case why == refusedTable:
		return nil, &tableError{err}
	case err != nil:
		return nil, err
	}
	return s.readCounts(ctx, database, stamp, moves, groups, affected)
}

// readCounts returns which moves of a committed transaction applied, by the number of rows that each statement changed.
func (s *Store) readCounts(ctx context.Context, database int, stamp time.Time, moves []Move, groups []moveGroup,
	affected []int64) ([]bool, error) {
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

// moveGroup is the moves of one UPDATE: the same change in one table.
type moveGroup struct {
	shard int
	moves []int // indexes
}

// moveShape identifies the change of a move.
type moveShape struct {
	shard                int
	from, to             task.Status
	readTime             int64
	readAttempts         int
	whole                uint64 // job_id: the change is unique
	actionTime, promised int64
	attempts             int
	lastErr, attribute   string
	timeout              time.Duration
	hasLease, lease      uint64
	dueBy                int64
	has                  [13]bool
}

func (s *Store) shape(m *Move) moveShape {
	shard, _ := s.layout.ShardOf(m.JobID)
	k := moveShape{
		shard: shard, from: m.From, to: m.To,
		actionTime: task.CeilMilli(orZero(m.ActionTime)).UnixMilli(), promised: orZero(m.Promised).UnixMilli(),
		attempts: orZero(m.Attempts), lastErr: orZero(m.LastError), attribute: orZero(m.Attribute), timeout: orZero(m.Timeout),
		hasLease: orZero(m.HasLease), lease: orZero(m.Lease), dueBy: orZero(m.DueBy).UnixMilli(),
		has: [13]bool{m.ActionTime != nil, m.Attempts != nil, m.LastError != nil, m.Attribute != nil,
			m.Timeout != nil, m.Promised != nil, m.NewPromise, m.Read != nil, m.HasLease != nil, m.Lease != nil, m.DueBy != nil, m.KeepDue,
			m.Restore},
	}
	if m.Read != nil {
		k.readAttempts = m.Read.Attempts
		if m.DueBy == nil {
			k.readTime = m.Read.ActionTime.UnixMilli()
		}
	}
	if m.Whole {
		k.whole = m.JobID
	}
	return k
}

// orZero returns *p, or the zero value.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// moveStatements renders one UPDATE … WHERE job_id IN (…) per table and change. They count their rows unless a
// task is moved twice: the rows then do not show what was done.
func (s *Store) moveStatements(database int, stamp time.Time, moves []Move,
	name func(database, table int) string) ([]statement, []moveGroup) {
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
	// All writers take their locks in the same order, so they do not deadlock with each other.
	slices.SortStableFunc(groups, func(a, b moveGroup) int { return a.shard - b.shard })
	statements := make([]statement, len(groups))
	for i, g := range groups {
		statements[i] = s.moveStatement(name(database, s.layout.Table(g.shard)), database, stamp, moves, g, len(seen) == len(moves))
	}
	return statements, groups
}

func (s *Store) moveStatement(name string, database int, stamp time.Time, moves []Move, g moveGroup, counts bool) statement {
	m := &moves[g.moves[0]]
	table := s.layout.Table(g.shard)
	var b strings.Builder
	b.Grow(160 + 2*len(g.moves))
	args := make([]any, 0, 8+len(g.moves))
	status := strconv.Itoa(int(m.To))
	if counts {
		status = s.backend.countingExpr(database, status)
	}
	b.WriteString("UPDATE " + name + s.backend.hint(indexPrimary, table) + " SET status=" + status + ",gmt_modified=?")
	args = append(args, s.backend.timeArg(stamp))
	if m.KeepDue {
		b.WriteString(",due_time=" + promisedTime) // MySQL sets one column after the other
	}
	if m.ActionTime != nil {
		b.WriteString(",action_time=?")
		args = append(args, s.backend.timeArg(task.CeilMilli(*m.ActionTime)))
	}
	if m.Restore {
		b.WriteString(",action_time=" + promisedTime)
	}
	if m.Attempts != nil {
		b.WriteString(",attempts=?")
		args = append(args, int64(min(*m.Attempts, task.MaxAttempts)))
	}
	if m.LastError != nil {
		b.WriteString(",last_error=?")
		args = append(args, *m.LastError)
	}
	if m.recordsFailedRun() {
		b.WriteString(",errors=" + s.backend.appendTo("errors", maxErrors))
		args = append(args, m.errorsLine(stamp))
	}
	if m.Attribute != nil {
		b.WriteString(",attribute=?")
		args = append(args, *m.Attribute)
	}
	if m.Timeout != nil {
		b.WriteString(",timeout_ms=?")
		args = append(args, orNull(m.Timeout.Milliseconds()))
	}
	switch {
	case m.NewPromise && m.From == task.Pending && m.ActionTime != nil:
		// A due_time distinguishes this from a redrive if the task has failed, or was redriven.
		b.WriteString(",due_time=CASE WHEN last_error='' THEN NULL ELSE ? END")
		args = append(args, s.backend.timeArg(task.CeilMilli(*m.ActionTime)))
	case m.NewPromise:
		b.WriteString(",due_time=NULL")
	case m.Promised != nil:
		b.WriteString(",due_time=COALESCE(due_time,?)")
		args = append(args, s.backend.timeArg(*m.Promised))
	}
	switch {
	case m.Lease != nil:
		b.WriteString(",lease=?")
		args = append(args, s.leaseArg(*m.Lease))
	case m.From != m.To:
		b.WriteString(",lease=NULL")
	}
	b.WriteString(" WHERE job_id IN (" + placeholders(len(g.moves)) + ") AND status=?")
	for _, i := range g.moves {
		args = append(args, s.backend.idArg(moves[i].JobID))
	}
	args = append(args, int64(m.From))
	if m.HasLease != nil {
		b.WriteString(" AND lease" + s.backend.nullSafe() + "?")
		args = append(args, s.leaseArg(*m.HasLease))
	}
	if m.Read != nil {
		more, moreArgs := s.asRead(m)
		b.WriteString(more)
		args = append(args, moreArgs...)
	}
	st := statement{sql: b.String(), args: args}
	if counts {
		st.maxRows = int64(len(g.moves))
	}
	return st
}

// leaseArg converts a lease to a parameter.
func (s *Store) leaseArg(lease uint64) any {
	if lease == 0 {
		return nil
	}
	return s.backend.idArg(lease)
}

// isSeenIn reports whether a row looks as the move leaves it.
func (m *Move) isSeenIn(row *task.Task) bool {
	return row.Status == m.To && (m.Attempts == nil || row.Attempts == *m.Attempts) && (m.Lease == nil || row.Lease == *m.Lease) &&
		(m.ActionTime == nil || row.ActionTime.UnixMilli() == m.ActionTime.UnixMilli())
}

// asRead is the condition that a row is unchanged since it was read.
func (s *Store) asRead(m *Move) (condition string, args []any) {
	t := m.Read
	same := func(column string, v any) {
		condition += " AND " + column + s.backend.nullSafe() + "?"
		args = append(args, v)
	}
	at := func(column string, v time.Time) {
		if v.IsZero() {
			condition += " AND " + column + " IS NULL"
			return
		}
		more, moreArgs := s.backend.isAt(column, v)
		condition += " AND " + more
		args = append(args, moreArgs...)
	}
	if m.DueBy != nil {
		condition += " AND action_time<=?"
		args = append(args, s.backend.timeArg(*m.DueBy))
	} else {
		at("action_time", t.ActionTime)
	}
	same("attempts", int64(t.Attempts))
	if m.Whole {
		same("attribute", t.Attribute)
		same("last_error", t.LastError)
		condition += " AND COALESCE(timeout_ms,0)=?"
		args = append(args, t.Timeout.Milliseconds())
		at("due_time", t.DueTime)
		if !t.Modified.IsZero() { // zero: written by hand in SQLite, and not a time
			at("gmt_modified", t.Modified)
		}
	}
	return condition, args
}

// findApplied finds the applied moves of groups that were applied in part, as far as can be known: their rows
// have the new status, time and attempts, and this batch's stamp. The stamp alone is not enough: an edit by SQL in
// that very millisecond has it, too. If several moves make the same change of one task, the first one counts.
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
	stamped := make(map[uint64]*task.Task, len(found))
	for i := range found {
		if found[i].Modified.Equal(stamp) {
			stamped[found[i].JobID] = &found[i]
		}
	}
	for _, g := range groups {
		from, to := moves[g.moves[0]].From, moves[g.moves[0]].To
		done := make(map[uint64]bool, len(g.moves))
		for _, m := range g.moves {
			id := moves[m].JobID
			row := stamped[id]
			done[id] = row != nil && moves[m].isSeenIn(row)
		}
		if from != to { // a move to the same status can be made again
			for i, was := range applied {
				if was && moves[i].From == from && moves[i].To == to {
					done[moves[i].JobID] = false // by an earlier group
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
