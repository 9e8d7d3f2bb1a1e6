package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// purgePerTable is the maximum number of rows of one table in a Purge.
const purgePerTable = 100

// Clock returns the time of a database's server, for actions that must not be too early. A SQLite file has no
// server: there it is the time at which the store was opened plus the time that has passed since, whatever
// happened to this machine's clock.
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

// Purge deletes processed and cancelled tasks of a partition whose action_time and last change are both before
// the given time: a small batch, oldest first. It returns the number of deleted tasks; 0 means that none are
// left. Dead tasks stay; see PurgeDead.
func (s *Store) Purge(ctx context.Context, partition int, before time.Time) (int, error) {
	at := s.backend.timeArg(before)
	const where = " AND action_time<? AND gmt_modified<?"
	return s.purge(ctx, partition, []finishedBefore{{"status=2" + where, []any{at, at}}, {"status=3" + where, []any{at, at}}}, "2,3", before)
}

// PurgeEarly deletes tasks like Purge, but those that were cancelled so long before their time that only their
// action_time is not before the given time. It reads the index entries of all cancelled tasks that Purge
// leaves, so it is for rarer use. (A job_id, which is also in the index, excludes most of the younger ones.)
func (s *Store) PurgeEarly(ctx context.Context, partition int, before time.Time) (int, error) {
	created, err := sharding.JobID(before, 0, 0)
	if err != nil {
		return 0, nil // no task is so old
	}
	at := s.backend.timeArg(before)
	return s.purge(ctx, partition, []finishedBefore{{"status=3 AND action_time>=? AND job_id<? AND gmt_modified<?", []any{at, s.backend.idArg(created), at}}}, "2,3", before)
}

// PurgeDead deletes dead tasks like Purge.
func (s *Store) PurgeDead(ctx context.Context, partition int, before time.Time) (int, error) {
	at := s.backend.timeArg(before)
	return s.purge(ctx, partition, []finishedBefore{{"status=4 AND action_time<? AND gmt_modified<?", []any{at, at}}}, "4", before)
}

// finishedBefore is a condition on finished rows.
type finishedBefore struct {
	where string
	args  []any
}

func (s *Store) purge(ctx context.Context, partition int, kinds []finishedBefore, statuses string, before time.Time) (deleted int, err error) {
	finished, err := s.finished(ctx, partition, kinds)
	database := s.layout.PartitionDatabase(partition)
	if err == nil && len(finished) > 0 {
		deleted, err = s.deleteFinished(ctx, database, finished, statuses, before)
	}
	return deleted, s.wrap(database, "purge", err)
}

// finished returns the job_ids of a small batch by table.
func (s *Store) finished(ctx context.Context, partition int, kinds []finishedBefore) (map[int][]any, error) {
	first, end := s.layout.PartitionShards(partition)
	finished := make(map[int][]any)
	err := s.scanShards(ctx, first, end, maxMembers/2, func(u *union, shard int) {
		for _, k := range kinds {
			u.add(s.backend.unionMember("SELECT job_id FROM "+s.indexed(shard, indexDue)+" WHERE "+k.where+" ORDER BY action_time LIMIT ?"), k.args...)
			u.args = append(u.args, int64(purgePerTable))
		}
	}, func(rows *sql.Rows) error {
		var id unsigned
		err := rows.Scan(&id)
		shard, _ := s.layout.ShardOf(uint64(id))
		table := s.layout.Table(shard)
		finished[table] = append(finished[table], s.backend.idArg(uint64(id)))
		return err
	})
	return finished, err
}

// deleteFinished deletes rows that still have one of the statuses and have not changed since they were read.
func (s *Store) deleteFinished(ctx context.Context, database int, finished map[int][]any, statuses string, before time.Time) (deleted int, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var statements []statement
	for table, ids := range finished {
		statements = append(statements, statement{
			sql:  s.backend.deleteFrom(table) + " WHERE t.job_id IN (" + placeholders(len(ids)) + ") AND t.status IN (" + statuses + ") AND t.gmt_modified<?",
			args: append(ids, s.backend.timeArg(before)),
		})
	}
	affected, err := s.transact(ctx, database, statements)
	if why := s.backend.refusal(err); why == refusedConflict || why == refusedLocked {
		return 0, nil // the next round will delete them
	}
	for _, n := range affected {
		deleted += int(n)
	}
	return deleted, err
}
