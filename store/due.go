package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Due selects pending tasks of a partition.
type Due struct {
	Until   time.Time // action_time at or before this
	From    task.Key  // at or after this position; the zero Key reads from the start
	Only    []uint64  // these biz_types only; empty: all
	Except  []uint64  // not these biz_types
	Leased  bool      // only those with a lease, void or not
	Narrow  bool      // tasks have only their JobID, BizType, Status, ActionTime, Attempts and Modified
	PerPage int       // rows per page, approximately
}

// DuePages reads the due tasks of one partition page by page. Each table has a cursor, so no row is read twice
// and none is read in vain. Within a table the order is by Key; a page takes some rows of each table that has
// more.
type DuePages struct {
	store    *queries
	database int
	query    Due
	tables   []dueTable // the tables that may have more rows
	locked   error      // of tables that are left out
}

type dueTable struct {
	table int
	after *rowCursor // the last row read; nil before the first page
}

// rowCursor is the position of a row in the order of its table. The time is the text of the database: SQLite
// orders times as text, and a row made by hand may write the same time differently ("12:00:00" comes before
// "12:00:00.000").
type rowCursor struct {
	actionTime any
	moment     time.Time // the time that actionTime denotes
	jobID      uint64
}

func (p rowCursor) before(q rowCursor) bool {
	order := 0
	switch at := p.actionTime.(type) {
	case string:
		order = strings.Compare(at, q.actionTime.(string))
	case time.Time:
		order = at.Compare(q.actionTime.(time.Time))
	}
	return order < 0 || order == 0 && p.jobID < q.jobID
}

// DuePages starts reading a partition.
func (s *queries) DuePages(partition int, q Due) *DuePages {
	first, end := s.layout.PartitionShards(partition)
	p := &DuePages{store: s, database: s.layout.PartitionDatabase(partition), query: q}
	for shard := first; shard < end; shard++ {
		p.tables = append(p.tables, dueTable{table: s.layout.Table(shard)})
	}
	return p
}

// Except excludes another biz_type from the following pages.
func (p *DuePages) Except(bizType uint64) { p.query.Except = append(p.query.Except, bizType) }

// Rest is the earliest position with unread rows; more is false when all rows were read.
func (p *DuePages) Rest() (from task.Key, more bool) {
	for _, t := range p.tables {
		var k task.Key
		if t.after != nil {
			k = task.Key{ActionTime: t.after.moment, JobID: t.after.jobID + 1}
		}
		if !more || k.Before(from) {
			from, more = k, true
		}
	}
	return from, more
}

// Leased reads the tasks of a partition and a business type whose leases end after now and until then.
func (s *queries) Leased(ctx context.Context, partition int, bizType uint64, now, until time.Time) (leased []task.Task, err error) {
	pages := s.DuePages(partition, Due{From: task.Key{ActionTime: now}, Until: until, Only: []uint64{bizType}, Leased: true, PerPage: 1000})
	for {
		page, err := pages.Next(ctx)
		if err != nil || len(page) == 0 {
			return leased, err
		}
		for _, t := range page {
			if t.IsLeased(now) {
				leased = append(leased, t)
			}
		}
	}
}

// minPerTable keeps pages of many tables from becoming too small.
const minPerTable = 16

// Next reads one page, in one statement. An empty page is the end. After an error the same page may be
// requested again. Locked tables are left out, and their error comes in place of the end.
func (p *DuePages) Next(ctx context.Context) ([]task.Task, error) {
	if len(p.tables) == 0 {
		return nil, p.locked
	}
	perTable := max(1, p.query.PerPage/len(p.tables), min(minPerTable, p.query.PerPage))
	var page []task.Task
	var more []dueTable
	err := readAround(p.store.databases, p.tables, maxMembers, func(tables []dueTable) error {
		rows, left, err := p.read(ctx, tables, perTable)
		if err == nil {
			page, more = append(page, rows...), append(more, left...)
		}
		return err
	})
	err = p.store.wrap(p.database, "read due tasks", err)
	switch {
	case p.store.isOfTable(err):
		p.locked = err
	case err != nil:
		return nil, err
	}
	p.tables = more
	if len(page) == 0 {
		return nil, p.locked
	}
	return page, nil
}

// read reads the rows of some tables, and returns the tables that filled their limit: they may have more.
func (p *DuePages) read(ctx context.Context, tables []dueTable, perTable int) (page []task.Task, more []dueTable, err error) {
	ctx, cancel := p.store.bound(ctx)
	defer cancel()
	text, args := p.statement(tables, perTable)
	count := make(map[int]int, len(tables))
	last := make(map[int]rowCursor, len(tables))
	err = p.store.each(ctx, p.database, text, args, func(r *row) {
		page = append(page, r.task())
		shard, _ := p.store.layout.ShardOf(uint64(r.JobID))
		table := p.store.layout.Table(shard)
		count[table]++
		if here := (rowCursor{r.written, time.Time(r.ActionTime), uint64(r.JobID)}); count[table] == 1 || last[table].before(here) {
			last[table] = here
		}
	})
	for _, t := range tables {
		if count[t.table] >= perTable {
			after := last[t.table]
			more = append(more, dueTable{table: t.table, after: &after})
		}
	}
	return page, more, err
}

// types is a condition on biz_type, "" without any. The numbers are part of the text: a thousand types as
// parameters of each of many tables exceed SQLite's limit.
func (p *DuePages) types(condition string, ids []uint64) string {
	if len(ids) == 0 {
		return ""
	}
	text := []byte(condition)
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Append(text, p.store.backend.idArg(id))
	}
	return string(append(text, ')'))
}

// statement is one UNION ALL over the tables.
func (p *DuePages) statement(tables []dueTable, perTable int) (text string, args []any) {
	b := p.store.backend
	only, except := p.types(" AND biz_type IN (", p.query.Only), p.types(" AND biz_type NOT IN (", p.query.Except)
	list := columns
	if p.query.Narrow {
		list = narrowColumns
	}
	limit := " ORDER BY action_time,job_id LIMIT " + strconv.Itoa(perTable) // a literal: see Decisions
	u := union{args: make([]any, 0, 5*len(tables))}
	u.text.Grow(len(tables) * (320 + len(only) + len(except)))
	for _, t := range tables {
		var m strings.Builder
		u.args = append(u.args, b.timeArg(p.query.Until))
		m.WriteString("SELECT " + list + " FROM " + sharding.TableName(t.table) +
			b.hint(indexDue, t.table) + " WHERE status=0 AND action_time<=?")
		// Written so that MySQL makes two ranges of the index of it. Reading all rows of one time for each page
		// would be quadratic, and many tasks share times like midnight. (SQLite has only the first bound.)
		if from := p.query.From; t.after != nil {
			m.WriteString(" AND action_time>=? AND (action_time>? OR (action_time=? AND job_id>?))")
			at := t.after.actionTime
			u.args = append(u.args, at, at, at, b.idArg(t.after.jobID))
		} else if !from.ActionTime.IsZero() {
			// Between the millisecond before and this one are only other notations of this one, made by hand.
			m.WriteString(" AND action_time>?")
			u.args = append(u.args, b.timeArg(from.ActionTime.Add(-time.Millisecond)))
			if from.JobID > 0 {
				m.WriteString(" AND (action_time<? OR action_time>? OR (action_time=? AND job_id>=?))")
				at := b.timeArg(from.ActionTime)
				u.args = append(u.args, at, at, at, b.idArg(from.JobID))
			}
		}
		m.WriteString(only)
		m.WriteString(except)
		if p.query.Leased {
			m.WriteString(" AND lease IS NOT NULL")
		}
		m.WriteString(limit)
		u.add(b.unionMember(m.String()))
	}
	return u.text.String(), u.args
}
