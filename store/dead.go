package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// deadShards is how many tables one statement of ListDead reads.
const deadShards = 32

// ListDead reads dead tasks of all shards, in the order of shard and job_id:
// at most limit, after the task with the given job_id (0: from the start).
// bizType nil lists all.
func (s *Store) ListDead(ctx context.Context, bizType *uint64, after uint64, limit int) ([]task.Task, error) {
	var list []task.Task
	shard := 0
	if after != 0 {
		var ok bool
		if shard, ok = s.layout.ShardOf(after); !ok {
			return nil, nil
		}
	}
	for shard < s.layout.Shards() && len(list) < limit {
		database := s.layout.Database(shard)
		end := min(shard+deadShards, (database+1)*s.layout.TablesPerDatabase)
		page, err := s.deadPage(ctx, database, shard, end, bizType, after, limit-len(list))
		if err != nil {
			return nil, s.wrap(database, "list dead tasks", err)
		}
		list = append(list, page...)
		shard, after = end, 0
	}
	return list, nil
}

func (s *Store) deadPage(ctx context.Context, database, first, end int, bizType *uint64, after uint64, limit int) ([]task.Task, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var members []string
	var args []any
	for shard := first; shard < end; shard++ {
		table := s.layout.Table(shard)
		q := "SELECT " + columns + " FROM " + sharding.TableName(table) + s.backend.hint(indexDue, table) + " WHERE status=4"
		if shard == first && after != 0 {
			q += " AND job_id>?"
			args = append(args, s.backend.id(after))
		}
		if bizType != nil {
			q += " AND biz_type=?"
			args = append(args, s.backend.id(*bizType))
		}
		members = append(members, s.backend.member(q+" ORDER BY job_id LIMIT ?"))
		args = append(args, int64(limit))
	}
	page, err := s.query(ctx, database, strings.Join(members, " UNION ALL "), args, nil)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(page, func(a, b task.Task) int {
		x, _ := s.layout.ShardOf(a.JobID)
		y, _ := s.layout.ShardOf(b.JobID)
		if x != y {
			return x - y
		}
		if a.JobID < b.JobID {
			return -1
		}
		return 1
	})
	return page[:min(limit, len(page))], nil
}

// CountDead counts the dead tasks of a biz_type, or of all (nil).
func (s *Store) CountDead(ctx context.Context, bizType *uint64) (int, error) {
	var total atomic.Int64
	errs := make([]error, len(s.dbs))
	s.eachDatabase(func(d int) {
		errs[d] = s.wrap(d, "count dead tasks", s.countDead(ctx, d, bizType, &total))
	})
	return int(total.Load()), errors.Join(errs...)
}

func (s *Store) countDead(ctx context.Context, database int, bizType *uint64, total *atomic.Int64) error {
	for tables := range slices.Chunk(s.allTables(), maxMembers) {
		var members []string
		var args []any
		for _, table := range tables {
			q := "SELECT COUNT(*) FROM " + sharding.TableName(table) + s.backend.hint(indexDue, table) + " WHERE status=4"
			if bizType != nil {
				q += " AND biz_type=?"
				args = append(args, s.backend.id(*bizType))
			}
			members = append(members, q)
		}
		ctx, cancel := s.bound(ctx)
		rows, err := s.dbs[database].read.ConnPool.QueryContext(ctx, strings.Join(members, " UNION ALL "), args...)
		if err != nil {
			cancel()
			return err
		}
		for rows.Next() {
			var n int64
			if err = rows.Scan(&n); err != nil {
				break
			}
			total.Add(n)
		}
		err = errors.Join(err, rows.Err(), rows.Close())
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) allTables() []int {
	tables := make([]int, s.layout.TablesPerDatabase)
	for i := range tables {
		tables[i] = i
	}
	return tables
}
