package store

import (
	"context"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// purgePerTable is how many rows of one table a Purge takes at most.
const purgePerTable = 100

// Purge deletes processed and cancelled tasks of a partition whose last change is
// before the given time: a small batch, oldest first. It tells how many it deleted;
// 0 means that none are left. Dead tasks stay.
func (s *Store) Purge(ctx context.Context, partition int, before time.Time) (int, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	database := s.layout.PartitionDatabase(partition)
	deleted, err := s.purge(ctx, partition, database, before)
	return deleted, s.wrap(database, "purge", err)
}

func (s *Store) purge(ctx context.Context, partition, database int, before time.Time) (int, error) {
	finished, err := s.finishedBefore(ctx, partition, database, before)
	if err != nil || len(finished) == 0 {
		return 0, err
	}
	var statements []statement
	for table, ids := range finished {
		statements = append(statements, statement{
			sql:  s.backend.deleteFrom(table) + " WHERE t.job_id IN (" + placeholders(len(ids)) + ") AND t.status IN (2,3)",
			args: ids,
		})
	}
	affected, err := s.backend.transact(ctx, database, statements)
	if s.backend.isConflict(err) {
		return 0, nil // the next round will do
	}
	deleted := 0
	for _, n := range affected {
		deleted += int(n)
	}
	return deleted, err
}

func (s *Store) finishedBefore(ctx context.Context, partition, database int, before time.Time) (map[int][]any, error) {
	first, end := s.layout.PartitionShards(partition)
	finished := make(map[int][]any)
	// What was cancelled before its time may be due at any later time. Its job_id,
	// which the index has as well, tells most of those apart that are too young.
	created, err := sharding.JobID(before, 0, 0)
	if err != nil {
		created = 0 // nothing is so old
	}
	for first < end {
		n := min(first+maxMembers/3, end)
		var members []string
		var args []any
		for ; first < n; first++ {
			table := s.layout.Table(first)
			for _, status := range []int64{2, 3} {
				members = append(members, s.backend.member("SELECT job_id FROM "+sharding.TableName(table)+s.backend.hint(indexDue, table)+
					" WHERE status=? AND action_time<? AND gmt_modified<? ORDER BY action_time LIMIT ?"))
				args = append(args, status, s.backend.at(before), s.backend.at(before), int64(purgePerTable))
			}
			members = append(members, s.backend.member("SELECT job_id FROM "+sharding.TableName(table)+s.backend.hint(indexDue, table)+
				" WHERE status=3 AND action_time>=? AND job_id<? AND gmt_modified<? ORDER BY action_time LIMIT ?"))
			args = append(args, s.backend.at(before), s.backend.id(created), s.backend.at(before), int64(purgePerTable))
		}
		rows, err := s.dbs[database].read.ConnPool.QueryContext(ctx, strings.Join(members, " UNION ALL "), args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var id unsigned
			if err := rows.Scan(&id); err != nil {
				_ = rows.Close()
				return nil, err
			}
			shard, _ := s.layout.ShardOf(uint64(id))
			table := s.layout.Table(shard)
			finished[table] = append(finished[table], s.backend.id(uint64(id)))
		}
		_ = rows.Close()
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return finished, nil
}
