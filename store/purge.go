package store

import (
	"context"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// purgePerTable is how many rows of one table a Purge takes at most.
const purgePerTable = 100

// Clock gives the time of a database's server. A SQLite file has none: there it is the
// time at which the store was opened, and what has passed since, whatever became of
// this machine's clock. What must not be done too early asks it.
func (s *Store) Clock(ctx context.Context, database int) (time.Time, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if s.cfg.Driver == SQLite {
		return s.opened.Add(time.Since(s.openedAt)), nil
	}
	var now time.Time
	err := s.dbs[database].read.ConnPool.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(3)").Scan(&now)
	return now, s.wrap(database, "ask the time", err)
}

// Purge deletes processed and cancelled tasks of a partition whose action_time
// and last change are both before the given time: a small batch, oldest first.
// It tells how many it deleted; 0 means that none are left. Dead tasks stay.
func (s *Store) Purge(ctx context.Context, partition int, before time.Time) (int, error) {
	at := s.backend.at(before)
	const where = " AND action_time<? AND gmt_modified<?"
	return s.purge(ctx, partition, []over{{"status=2" + where, []any{at, at}}, {"status=3" + where, []any{at, at}}})
}

// PurgeEarly deletes, as Purge does, what was cancelled so long before its time that
// only its action_time is not before the given time. It looks at the index entries of
// all cancelled tasks that Purge leaves, so it is for rarer use. (A job_id, which is in
// the index as well, tells most of those apart that are too young.)
func (s *Store) PurgeEarly(ctx context.Context, partition int, before time.Time) (int, error) {
	created, err := sharding.JobID(before, 0, 0)
	if err != nil {
		return 0, nil // no task is so old
	}
	at := s.backend.at(before)
	return s.purge(ctx, partition, []over{{"status=3 AND action_time>=? AND job_id<? AND gmt_modified<?", []any{at, s.backend.id(created), at}}})
}

// over is a condition that finished rows meet.
type over struct {
	where string
	args  []any
}

func (s *Store) purge(ctx context.Context, partition int, kinds []over) (int, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	database := s.layout.PartitionDatabase(partition)
	deleted, err := s.purgeBatch(ctx, partition, database, kinds)
	return deleted, s.wrap(database, "purge", err)
}

func (s *Store) purgeBatch(ctx context.Context, partition, database int, kinds []over) (int, error) {
	finished, err := s.finished(ctx, partition, database, kinds)
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
	affected, err := s.transact(ctx, database, statements)
	if s.backend.isConflict(err) || s.backend.isLocked(err) {
		return 0, nil // the next round will do
	}
	deleted := 0
	for _, n := range affected {
		deleted += int(n)
	}
	return deleted, err
}

// finished gives the job_ids of a small batch by table.
func (s *Store) finished(ctx context.Context, partition, database int, kinds []over) (map[int][]any, error) {
	first, end := s.layout.PartitionShards(partition)
	finished := make(map[int][]any)
	for first < end {
		n := min(first+maxMembers/2, end)
		var members []string
		var args []any
		for ; first < n; first++ {
			table := s.layout.Table(first)
			for _, k := range kinds {
				members = append(members, s.backend.member("SELECT job_id FROM "+sharding.TableName(table)+s.backend.hint(indexDue, table)+
					" WHERE "+k.where+" ORDER BY action_time LIMIT ?"))
				args = append(append(args, k.args...), int64(purgePerTable))
			}
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
