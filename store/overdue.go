package store

import (
	"context"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// Overdue sums up pending tasks whose action_time has passed.
type Overdue struct {
	Count  int       // at most overdueLimit a table are counted
	Oldest time.Time // the earliest action_time
}

// Add puts two sums together.
func (o Overdue) Add(p Overdue) Overdue {
	if o.Count == 0 || (p.Count > 0 && p.Oldest.Before(o.Oldest)) {
		o.Oldest = p.Oldest
	}
	o.Count += p.Count
	return o
}

// overdueLimit bounds the count in each table, so that looking at a huge
// backlog does not add to it.
const overdueLimit = 10_000

// Overdue sums up the overdue tasks of a partition by biz_type.
func (s *Store) Overdue(ctx context.Context, partition int, now time.Time) (map[uint64]Overdue, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	first, end := s.layout.PartitionShards(partition)
	database := s.layout.PartitionDatabase(partition)
	sums := make(map[uint64]Overdue)
	for first < end {
		n := min(first+maxMembers, end)
		var members []string
		var args []any
		for ; first < n; first++ {
			table := s.layout.Table(first)
			members = append(members, "SELECT biz_type,COUNT(*),MIN(action_time) FROM (SELECT biz_type,action_time FROM "+
				sharding.TableName(table)+s.backend.hint(indexDue, table)+
				" WHERE status=0 AND action_time<=? ORDER BY action_time LIMIT ?) AS x GROUP BY biz_type")
			args = append(args, s.backend.at(now), int64(overdueLimit))
		}
		rows, err := s.dbs[database].read.ConnPool.QueryContext(ctx, strings.Join(members, " UNION ALL "), args...)
		if err != nil {
			return nil, s.wrap(database, "count overdue tasks", err)
		}
		for rows.Next() {
			var bizType unsigned
			var count int
			var oldest utc
			if err := rows.Scan(&bizType, &count, &oldest); err != nil {
				_ = rows.Close()
				return nil, s.wrap(database, "count overdue tasks", err)
			}
			sums[uint64(bizType)] = sums[uint64(bizType)].Add(Overdue{count, time.Time(oldest)})
		}
		_ = rows.Close()
		if err := rows.Err(); err != nil {
			return nil, s.wrap(database, "count overdue tasks", err)
		}
	}
	return sums, nil
}
