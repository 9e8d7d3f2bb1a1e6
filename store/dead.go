package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/timeoutcenter/toc/task"
)

// deadShards is the number of tables in one statement of ListDead.
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
	where, which := s.isDead(bizType)
	var u union
	for shard := first; shard < end; shard++ {
		q, args := "SELECT "+columns+" FROM "+s.indexed(shard, indexDue)+where, slices.Clone(which)
		if shard == first && after != 0 {
			q += " AND job_id>?"
			args = append(args, s.backend.idArg(after))
		}
		u.add(s.backend.unionMember(q+" ORDER BY job_id LIMIT ?"), append(args, int64(limit))...)
	}
	page, err := s.query(ctx, database, u.text.String(), u.args, nil)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(page, func(a, b task.Task) int {
		x, _ := s.layout.ShardOf(a.JobID)
		y, _ := s.layout.ShardOf(b.JobID)
		return cmp.Or(x-y, cmp.Compare(a.JobID, b.JobID))
	})
	return page[:min(limit, len(page))], nil
}

// isDead is the condition of dead tasks, of a biz_type or of all (nil).
func (s *Store) isDead(bizType *uint64) (where string, args []any) {
	if bizType == nil {
		return " WHERE status=4", nil
	}
	return " WHERE status=4 AND biz_type=?", []any{s.backend.idArg(*bizType)}
}

// CountDead counts the dead tasks of a biz_type, or of all (nil).
func (s *Store) CountDead(ctx context.Context, bizType *uint64) (int, error) {
	var total atomic.Int64
	where, args := s.isDead(bizType)
	errs := make([]error, len(s.dbs))
	s.eachDatabase(func(d int) {
		first := d * s.layout.TablesPerDatabase
		err := s.scanShards(ctx, first, first+s.layout.TablesPerDatabase, maxMembers, func(u *union, shard int) {
			u.add("SELECT COUNT(*) FROM "+s.indexed(shard, indexDue)+where, args...)
		}, func(rows *sql.Rows) error {
			var n int64
			err := rows.Scan(&n)
			total.Add(n)
			return err
		})
		errs[d] = s.wrap(d, "count dead tasks", err)
	})
	return int(total.Load()), errors.Join(errs...)
}
