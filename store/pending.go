package store

import (
	"context"
	"database/sql"
	"time"
)

// Overdue sums up pending tasks whose action_time has passed.
type Overdue struct {
	Count  int       // at most overdueLimit a table are counted
	Oldest time.Time // the earliest action_time
}

// Add combines two sums.
func (o Overdue) Add(p Overdue) Overdue {
	if o.Count == 0 || (p.Count > 0 && p.Oldest.Before(o.Oldest)) {
		o.Oldest = p.Oldest
	}
	o.Count += p.Count
	return o
}

// overdueLimit bounds the count in each table, so that counting does not add to a huge backlog.
const overdueLimit = 10_000

// Overdue sums up the overdue tasks of a partition by biz_type.
func (s *Store) Overdue(ctx context.Context, partition int, now time.Time) (map[uint64]Overdue, error) {
	first, end := s.layout.PartitionShards(partition)
	sums := make(map[uint64]Overdue)
	err := s.scanShards(ctx, first, end, maxMembers, func(u *union, shard int) {
		u.add("SELECT biz_type,COUNT(*),MIN(action_time) FROM (SELECT biz_type,action_time FROM "+s.indexed(shard, indexDue)+
			" WHERE status=0 AND action_time<=? ORDER BY action_time LIMIT ?) AS x GROUP BY biz_type", s.backend.timeArg(now), int64(overdueLimit))
	}, func(rows *sql.Rows) error {
		var bizType unsigned
		var count int
		var oldest utc
		err := rows.Scan(&bizType, &count, &oldest)
		sums[uint64(bizType)] = sums[uint64(bizType)].Add(Overdue{count, time.Time(oldest)})
		return err
	})
	if err != nil {
		return nil, s.wrap(s.layout.PartitionDatabase(partition), "count overdue tasks", err)
	}
	return sums, nil
}

// NextDue is the earliest action_time of a partition's pending tasks, or an earlier time, for example if a
// table is locked. none reports that there is no pending task. It costs half of reading the due rows: the
// optimizer reads one index entry a table, and the text is always the same.
func (s *Store) NextDue(ctx context.Context, partition int) (at time.Time, none bool, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	database := s.layout.PartitionDatabase(partition)
	first, end := s.layout.PartitionShards(partition)
	none = true
	for ; first < end && err == nil; first += maxMembers {
		text := s.nextDueText(first, min(first+maxMembers, end))
		err = s.scan(ctx, database, text, nil, func(rows *sql.Rows) error {
			var earliest sql.Null[utc]
			err := rows.Scan(&earliest)
			if t := time.Time(earliest.V); earliest.Valid && (none || t.Before(at)) {
				at, none = t, false
			}
			return err
		})
	}
	switch {
	case s.isOfTable(err):
		return time.Time{}, false, nil
	case err != nil:
		return time.Time{}, false, s.wrap(database, "look for due tasks", err)
	}
	return at, none, nil
}

// nextDueText returns the statement for some shards of a database. It is made once.
func (s *Store) nextDueText(first, end int) string {
	if text, ok := s.nextDueTexts.Load(first); ok {
		return text.(string)
	}
	var u union
	for shard := first; shard < end; shard++ {
		u.add("SELECT MIN(action_time) FROM " + s.indexed(shard, indexDue) + " WHERE status=0")
	}
	s.nextDueTexts.Store(first, u.text.String())
	return u.text.String()
}
