package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// DeadFilter selects dead tasks. A task's death is its last change (gmt_modified).
type DeadFilter struct {
	BizType *uint64   `gorm:"serializer:toc"` // nil: all
	Error   string    // a part of last_error, with its upper and lower case; empty: all
	Since   time.Time `gorm:"column:dead_since;serializer:toc"` // died then or later; zero: no bound
	Until   time.Time `gorm:"column:dead_until;serializer:toc"` // died before; zero: no bound
}

// where is the condition of the tasks that match.
func (f *DeadFilter) where(b backend) (where string, args []any) {
	where = " WHERE status=4"
	add := func(condition string, arg any) { where, args = where+condition, append(args, arg) }
	if f.BizType != nil {
		add(" AND biz_type=?", b.idArg(*f.BizType))
	}
	if !f.Since.IsZero() {
		add(" AND gmt_modified>=?", b.timeArg(task.CeilMilli(f.Since)))
	}
	if !f.Until.IsZero() {
		add(" AND gmt_modified<?", b.timeArg(task.CeilMilli(f.Until)))
	}
	if f.Error != "" {
		add(" AND INSTR(last_error,?)>0", f.Error)
	}
	return where, args
}

// ListDead reads dead tasks of all shards, in the order of shard and job_id: at most limit, after the task with the
// given job_id (0: from the start). next is the last of them if there are more, else 0.
//
// It reads ids first, in several databases at once, and then the rows of the page: a page costs the same whether the
// matching tasks lie together, far apart, or nowhere. Of a large layout it reads a part: then the page may be short, or
// empty, although there are more.
func (s *queries) ListDead(ctx context.Context, f DeadFilter, after uint64, limit int) (list []task.Task, next uint64, err error) {
	first := 0
	if after != 0 {
		var ok bool
		if first, ok = s.layout.ShardOf(after); !ok {
			return nil, 0, nil
		}
	}
	found, errs := make([][]uint64, len(s.dbs)), make([]error, len(s.dbs))
	begin := s.layout.Database(first)
	end := min(len(s.dbs), begin+max(1, deadTables/s.layout.TablesPerDatabase))
	if end < len(s.dbs) {
		next = sharding.LastID(end*s.layout.TablesPerDatabase - 1)
	}
	where, which := f.where(s.backend)
	_ = s.eachDatabase("list dead tasks", func(d int) error { // errors count for the databases that the page needs
		if d >= begin && d < end {
			found[d], errs[d] = s.idsOf(ctx, d, first, where, which, after, limit+1)
		}
		return nil
	})
	var page []uint64
	for d := range found {
		if errs[d] != nil {
			return nil, 0, s.wrap(d, "list dead tasks", errs[d])
		}
		if page = append(page, found[d]...); len(page) > limit {
			page = page[:limit]
			if limit > 0 {
				next = page[limit-1]
			}
			break
		}
	}
	list, err = s.Load(ctx, page)
	if err != nil {
		return nil, 0, err
	}
	list = slices.DeleteFunc(list, func(t task.Task) bool { return t.Status != task.Dead })
	slices.SortFunc(list, func(a, b task.Task) int { return s.compareShards(a.JobID, b.JobID) })
	return list, next, nil
}

// deadTables is the number of tables, about, that a page of ListDead reads.
const deadTables = 2048

// compareShards is the order of shard and job_id.
func (s *databases) compareShards(a, b uint64) int {
	x, _ := s.layout.ShardOf(a)
	y, _ := s.layout.ShardOf(b)
	return cmp.Or(x-y, cmp.Compare(a, b))
}

// idsOf are the first ids of a database that meet a condition, from a shard on.
func (s *databases) idsOf(ctx context.Context, database, from int, where string, which []any, after uint64,
	limit int) (ids []uint64, err error) {
	first := database * s.layout.TablesPerDatabase
	end := first + s.layout.TablesPerDatabase
	for first = max(first, from); first < end && len(ids) < limit; first += maxMembers {
		err := s.scanShards(ctx, first, min(first+maxMembers, end), maxMembers, func(u *union, shard int) {
			q, args := "SELECT job_id FROM "+s.indexed(shard, indexDue)+where, slices.Clone(which)
			if shard == from && after != 0 {
				q += " AND job_id>?"
				args = append(args, s.backend.idArg(after))
			}
			u.add(s.backend.unionMember(q+" ORDER BY job_id LIMIT ?"), append(args, int64(limit))...)
		}, func(rows *sql.Rows) error {
			var id unsigned
			err := rows.Scan(&id)
			ids = append(ids, uint64(id))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(ids, s.compareShards)
	return ids[:min(limit, len(ids))], nil
}

// CountDead counts the dead tasks that match.
func (s *queries) CountDead(ctx context.Context, f DeadFilter) (int, error) {
	var total atomic.Int64
	where, which := f.where(s.backend)
	err := s.eachDatabase("count dead tasks", func(d int) error {
		n, err := s.countOf(ctx, d, where, which)
		total.Add(int64(n))
		return err
	})
	return int(total.Load()), err
}

// countOf counts the tasks of a database that meet a condition.
func (s *databases) countOf(ctx context.Context, database int, where string, which []any) (total int, err error) {
	first := database * s.layout.TablesPerDatabase
	err = s.scanShards(ctx, first, first+s.layout.TablesPerDatabase, maxMembers, func(u *union, shard int) {
		u.add("SELECT COUNT(*) FROM "+s.indexed(shard, indexDue)+where, which...)
	}, func(rows *sql.Rows) error {
		var n int
		err := rows.Scan(&n)
		total += n
		return err
	})
	return total, err
}
