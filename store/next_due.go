package store

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// NextDue is the earliest action_time of a partition's pending tasks, or a time
// before it, as when a table is locked; none tells that there is no pending task. It costs half of what a
// look at the due rows costs: the optimizer reads one index entry a table, and
// the text is always the same.
func (s *Store) NextDue(ctx context.Context, partition int) (at time.Time, none bool, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	database := s.layout.PartitionDatabase(partition)
	first, end := s.layout.PartitionShards(partition)
	none = true
	for ; first < end; first += maxMembers {
		earliest, empty, err := s.nextDue(ctx, database, first, min(first+maxMembers, end))
		if s.isOfTable(err) {
			return time.Time{}, false, nil
		}
		if err != nil {
			return time.Time{}, false, s.wrap(database, "look for due tasks", err)
		}
		if !empty && (none || earliest.Before(at)) {
			at, none = earliest, false
		}
	}
	return at, none, nil
}

func (s *Store) nextDue(ctx context.Context, database, first, end int) (at time.Time, none bool, err error) {
	rows, err := s.dbs[database].read.ConnPool.QueryContext(ctx, s.nextDueText(first, end))
	if err != nil {
		return time.Time{}, false, err
	}
	defer rows.Close()
	none = true
	for rows.Next() {
		var earliest sql.Null[utc]
		if err := rows.Scan(&earliest); err != nil {
			return time.Time{}, false, err
		}
		if t := time.Time(earliest.V); earliest.Valid && (none || t.Before(at)) {
			at, none = t, false
		}
	}
	return at, none, rows.Err()
}

// nextDueText gives the statement for some shards of a database. It is made once.
func (s *Store) nextDueText(first, end int) string {
	if text, ok := s.nextDueTexts.Load(first); ok {
		return text.(string)
	}
	var q strings.Builder
	for shard := first; shard < end; shard++ {
		if shard > first {
			q.WriteString(" UNION ALL ")
		}
		table := s.layout.Table(shard)
		q.WriteString("SELECT MIN(action_time) FROM " + sharding.TableName(table) + s.backend.hint(indexDue, table) + " WHERE status=0")
	}
	s.nextDueTexts.Store(first, q.String())
	return q.String()
}
