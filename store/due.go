package store

import (
	"context"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Due says which pending tasks of a partition to read.
type Due struct {
	Until   time.Time // action_time at most this
	From    task.Key  // not before this place; the zero Key reads from the start
	Only    *uint64   // this biz_type alone; nil reads all
	Except  []uint64  // not these biz_types
	PerPage int       // rows a page, about
}

// DuePages reads the due tasks of one partition page by page. Each table keeps
// its own place, so no row is read twice and none is read only to be thrown
// away. Within a table the order is by Key; a page takes some rows of each table
// that has more.
type DuePages struct {
	store    *Store
	database int
	query    Due
	tables   []dueTable // those that may have more
}

type dueTable struct {
	table int
	after task.Key // the last row read
}

// DuePages starts reading a partition.
func (s *Store) DuePages(partition int, q Due) *DuePages {
	first, end := s.layout.PartitionShards(partition)
	p := &DuePages{store: s, database: s.layout.PartitionDatabase(partition), query: q}
	for shard := first; shard < end; shard++ {
		p.tables = append(p.tables, dueTable{table: s.layout.Table(shard)})
	}
	return p
}

// Except leaves further biz_types out of the pages to come.
func (p *DuePages) Except(bizType uint64) { p.query.Except = append(p.query.Except, bizType) }

// minPerTable keeps pages of many tables from becoming crumbs.
const minPerTable = 16

// Next reads one page, in one statement. An empty page is the end.
func (p *DuePages) Next(ctx context.Context) ([]task.Task, error) {
	if len(p.tables) == 0 {
		return nil, nil
	}
	perTable := max(p.query.PerPage/len(p.tables), min(minPerTable, p.query.PerPage))
	var page []task.Task
	var more []dueTable
	for tables := p.tables; len(tables) > 0; {
		n := min(maxMembers, len(tables))
		rows, err := p.read(ctx, tables[:n], perTable)
		if err != nil {
			return nil, p.store.wrap(p.database, "read due tasks", err)
		}
		more = p.advance(more, tables[:n], rows, perTable)
		page = append(page, rows...)
		tables = tables[n:]
	}
	p.tables = more
	return page, nil
}

func (p *DuePages) read(ctx context.Context, tables []dueTable, perTable int) ([]task.Task, error) {
	ctx, cancel := p.store.bound(ctx)
	defer cancel()
	b := p.store.backend
	var q strings.Builder
	q.Grow(len(tables) * 320)
	args := make([]any, 0, 6*len(tables))
	for i, t := range tables {
		if i > 0 {
			q.WriteString(" UNION ALL ")
		}
		var m strings.Builder
		m.WriteString("SELECT " + columns + " FROM " + sharding.TableName(t.table) + b.hint(indexDue, t.table) + " WHERE status=0 AND action_time<=?")
		args = append(args, b.at(p.query.Until))
		if from := p.query.From; !from.ActionTime.IsZero() && t.after.JobID == 0 {
			m.WriteString(" AND action_time>=? AND (action_time>? OR job_id>=?)")
			args = append(args, b.at(from.ActionTime), b.at(from.ActionTime), b.id(from.JobID))
		}
		if t.after.JobID != 0 {
			m.WriteString(" AND action_time>=? AND (action_time>? OR job_id>?)")
			args = append(args, b.at(t.after.ActionTime), b.at(t.after.ActionTime), b.id(t.after.JobID))
		}
		if p.query.Only != nil {
			m.WriteString(" AND biz_type=?")
			args = append(args, b.id(*p.query.Only))
		}
		if n := len(p.query.Except); n > 0 {
			m.WriteString(" AND biz_type NOT IN (" + placeholders(n) + ")")
			for _, id := range p.query.Except {
				args = append(args, b.id(id))
			}
		}
		m.WriteString(" ORDER BY action_time,job_id LIMIT ?")
		args = append(args, int64(perTable))
		q.WriteString(b.member(m.String()))
	}
	return p.store.query(ctx, p.database, q.String(), args, nil)
}

// advance moves each table's place on and keeps the tables that filled their
// share, since they may have more.
func (p *DuePages) advance(more, tables []dueTable, rows []task.Task, perTable int) []dueTable {
	count := make(map[int]int, len(tables))
	last := make(map[int]task.Key, len(tables))
	for i := range rows {
		shard, _ := p.store.layout.ShardOf(rows[i].JobID)
		table := p.store.layout.Table(shard)
		count[table]++
		if k := task.KeyOf(&rows[i]); last[table].Before(k) {
			last[table] = k
		}
	}
	for _, t := range tables {
		if count[t.table] >= perTable {
			more = append(more, dueTable{table: t.table, after: last[t.table]})
		}
	}
	return more
}
