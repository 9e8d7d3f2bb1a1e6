package store

import (
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
func (s *databases) Stamp(database int) time.Time {
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

// term is a piece of the SQL of a move: a column that it sets, or a condition, with its parameters.
type term struct {
	sql string
	arg any // none, a pair, or one parameter
}

type (
	none struct{}
	pair [2]any
)

// moveShape is the SQL of a move but for its job_id: moves of one shape are one statement.
type moveShape struct {
	shard int
	stamp time.Time
	to    task.Status
	set   terms
	where terms
}

// terms is a list of terms, and comparable. A move sets each column at most once.
type terms struct {
	list [10]term
	n    int
}

func (t *terms) add(sql string, arg any) {
	t.list[t.n] = term{sql, arg}
	t.n++
}

// shape renders a move.
func (s moves) shape(m *Move, stamp time.Time) (shape moveShape) {
	shape.shard, _ = s.layout.ShardOf(m.JobID)
	shape.to, shape.stamp = m.To, stamp
	set, where := &shape.set, &shape.where
	if m.KeepDue {
		set.add("due_time="+promisedTime, none{}) // MySQL sets one column after the other
	}
	if m.ActionTime != nil {
		set.add("action_time=?", s.backend.timeArg(task.CeilMilli(*m.ActionTime)))
	}
	if m.Restore {
		set.add("action_time="+promisedTime, none{})
	}
	if m.Attempts != nil {
		set.add("attempts=?", int64(min(*m.Attempts, task.MaxAttempts)))
	}
	if m.LastError != nil {
		set.add("last_error=?", *m.LastError)
	}
	if m.recordsFailedRun() {
		set.add("errors="+s.backend.appendTo("errors", maxErrors), m.errorsLine(stamp))
	}
	if m.Attribute != nil {
		set.add("attribute=?", *m.Attribute)
	}
	if m.Timeout != nil {
		set.add("timeout_ms=?", orNull(m.Timeout.Milliseconds()))
	}
	switch {
	case m.NewPromise && m.From == task.Pending && m.ActionTime != nil:
		// A due_time distinguishes this from a redrive if the task has failed, or was redriven.
		set.add("due_time=CASE WHEN last_error='' THEN NULL ELSE ? END", s.backend.timeArg(task.CeilMilli(*m.ActionTime)))
	case m.NewPromise:
		set.add("due_time=NULL", none{})
	case m.Promised != nil:
		set.add("due_time=COALESCE(due_time,?)", s.backend.timeArg(*m.Promised))
	}
	switch {
	case m.Lease != nil:
		set.add("lease=?", s.leaseArg(*m.Lease))
	case m.From != m.To:
		set.add("lease=NULL", none{})
	}

	where.add("status=?", int64(m.From))
	if m.HasLease != nil {
		where.add("lease"+s.backend.nullSafe()+"?", s.leaseArg(*m.HasLease))
	}
	if m.Read != nil {
		s.addAsRead(where, m)
	}
	return shape
}

// addAsRead adds the condition that a row is unchanged since it was read.
func (s moves) addAsRead(where *terms, m *Move) {
	t := m.Read
	at := func(column string, v time.Time) {
		if v.IsZero() {
			where.add(column+" IS NULL", none{})
			return
		}
		where.add(s.backend.isAt(column, v))
	}
	if m.DueBy != nil {
		where.add("action_time<=?", s.backend.timeArg(*m.DueBy))
	} else {
		at("action_time", t.ActionTime)
	}
	same := s.backend.nullSafe() + "?"
	where.add("attempts"+same, int64(t.Attempts))
	if m.Whole {
		where.add("attribute"+same, t.Attribute)
		where.add("last_error"+same, t.LastError)
		where.add("COALESCE(timeout_ms,0)=?", t.Timeout.Milliseconds())
		at("due_time", t.DueTime)
		if !t.Modified.IsZero() { // zero: written by hand in SQLite, and not a time
			at("gmt_modified", t.Modified)
		}
	}
}

// render renders one UPDATE … WHERE job_id IN (…) per table and shape. They count their rows unless a task is moved
// twice: the rows then do not show what was done.
func (s moves) render(db *database, batch []*moveRequest, name tableNamer) transaction[*moveRequest] {
	type group struct {
		moveShape
		list []*moveRequest
	}
	index := make(map[moveShape]int, len(batch))
	seen := make(map[uint64]struct{}, len(batch))
	var groups []group
	for _, r := range batch {
		shape := s.shape(r.move, r.stamp)
		g, ok := index[shape]
		if !ok {
			g = len(groups)
			index[shape] = g
			groups = append(groups, group{moveShape: shape})
		}
		groups[g].list = append(groups[g].list, r)
		seen[r.id()] = struct{}{}
	}
	// All writers take their locks in the same order, so they do not deadlock with each other.
	slices.SortStableFunc(groups, func(a, b group) int { return a.shard - b.shard })
	t := transaction[*moveRequest]{db: db, statements: make([]statement, len(groups)), groups: make([][]*moveRequest, len(groups))}
	for i := range groups {
		g := &groups[i]
		t.groups[i] = g.list
		t.statements[i] = s.moveStatement(db, name, &g.moveShape, g.list, len(seen) == len(batch))
	}
	return t
}

func (s moves) moveStatement(db *database, name tableNamer, shape *moveShape, list []*moveRequest, counts bool) (st statement) {
	table := s.layout.Table(shape.shard)
	status := strconv.Itoa(int(shape.to))
	if counts {
		status = s.backend.countingExpr(db.index, status)
		st.maxRows = int64(len(list))
	}
	var b strings.Builder
	b.Grow(160 + 2*len(list))
	st.args = make([]any, 0, 8+len(list))
	write := func(before string, t *terms) {
		for _, one := range t.list[:t.n] {
			b.WriteString(before)
			b.WriteString(one.sql)
			switch arg := one.arg.(type) {
			case none:
			case pair:
				st.args = append(st.args, arg[:]...)
			default:
				st.args = append(st.args, arg)
			}
		}
	}
	b.WriteString("UPDATE " + name(db.index, table) + s.backend.hint(indexPrimary, table) + " SET status=" + status + ",gmt_modified=?")
	st.args = append(st.args, s.backend.timeArg(shape.stamp))
	write(",", &shape.set)
	b.WriteString(" WHERE job_id IN (" + placeholders(len(list)) + ")")
	for _, r := range list {
		st.args = append(st.args, s.backend.idArg(r.id()))
	}
	write(" AND ", &shape.where)
	st.sql = b.String()
	return st
}

// leaseArg converts a lease to a parameter.
func (s moves) leaseArg(lease uint64) any {
	if lease == 0 {
		return nil
	}
	return s.backend.idArg(lease)
}
