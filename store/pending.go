package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Overdue sums up pending tasks whose action_time has passed.
type Overdue struct {
	Count    int       // at most pendingLimit a table are counted
	Oldest   time.Time // the earliest action_time
	Promised time.Time // the earliest promised time
}

// Add combines two sums.
func (o Overdue) Add(p Overdue) Overdue {
	return Overdue{o.Count + p.Count, earlier(o.Oldest, p.Oldest), earlier(o.Promised, p.Promised)}
}

// Retrying sums up pending tasks that have failed and run again: those with a promised time that has passed. Who moves such a task
// gives it a new promise.
type Retrying struct {
	Count    int       // of the earliest pendingLimit pending tasks of each table
	Later    int       // of these, the tasks that OperationRetry makes run now: the next run is later, and no consumer has the task
	Promised time.Time // the earliest promised time
	Last     time.Time // the latest action_time
}

// Add combines two sums.
func (r Retrying) Add(p Retrying) Retrying {
	if p.Last.After(r.Last) {
		r.Last = p.Last
	}
	return Retrying{r.Count + p.Count, r.Later + p.Later, earlier(r.Promised, p.Promised), r.Last}
}

// earlier returns the earlier one of two times that are not zero, or the one that is not.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// pendingLimit bounds the counts in each table, so that counting does not add to a huge backlog.
const pendingLimit = 10_000

// promisedTime is the time that was promised for a task, also if it was moved since.
const promisedTime = "COALESCE(due_time,action_time)"

// Overdue sums up the overdue tasks of a partition by biz_type.
func (s *queries) Overdue(ctx context.Context, partition int, now time.Time) (map[uint64]Overdue, error) {
	sums := make(map[uint64]Overdue)
	err := s.sumPending(ctx, partition, "0,MIN(action_time)", nil, now, "", nil, func(bizType uint64, count, _ int, earliest, promised time.Time) {
		sums[bizType] = sums[bizType].Add(Overdue{count, earliest, promised})
	})
	return sums, s.wrap(s.layout.PartitionDatabase(partition), "count overdue tasks", err)
}

// Retrying sums up the tasks of a partition that have failed and run again until a time, by biz_type.
func (s *queries) Retrying(ctx context.Context, partition int, now, until time.Time) (map[uint64]Retrying, error) {
	sums := make(map[uint64]Retrying)
	later := []any{s.backend.timeArg(task.CeilMilli(now.Add(retrySoon)))}
	err := s.sumPending(ctx, partition, "COUNT(CASE WHEN lease IS NULL AND action_time>? THEN 1 END),MAX(action_time)", later, until,
		" WHERE attempts>0 AND due_time<=?", []any{s.backend.timeArg(now)},
		func(bizType uint64, count, later int, last, promised time.Time) {
			sums[bizType] = sums[bizType].Add(Retrying{count, later, promised, last})
		})
	return sums, s.wrap(s.layout.PartitionDatabase(partition), "count tasks that run again", err)
}

// sumPending counts those of the earliest pending tasks of a partition until a time that meet a condition. sums are two aggregates, of a
// number and of a time.
func (s *queries) sumPending(ctx context.Context, partition int, sums string, of []any, until time.Time, where string, which []any,
	add func(bizType uint64, count, some int, end, promised time.Time)) error {
	first, last := s.layout.PartitionShards(partition)
	return s.scanShards(ctx, first, last, maxMembers, func(u *union, shard int) {
		u.add("SELECT biz_type,COUNT(*),"+sums+",MIN("+promisedTime+") FROM (SELECT biz_type,action_time,due_time,attempts,lease FROM "+s.indexed(shard, indexDue)+
			" WHERE status=0 AND action_time<=? ORDER BY action_time LIMIT ?) AS x"+where+" GROUP BY biz_type",
			slices.Concat(of, []any{s.backend.timeArg(until), int64(pendingLimit)}, which)...)
	}, func(rows *sql.Rows) error {
		var bizType unsigned
		var count, some int
		var at, promised utc
		err := rows.Scan(&bizType, &count, &some, &at, &promised)
		add(uint64(bizType), count, some, time.Time(at), time.Time(promised))
		return err
	})
}

// NextDue is the earliest action_time of a partition's pending tasks, or an earlier time, for example if a
// table is locked. none reports that there is no pending task. It costs half of reading the due rows: the
// optimizer reads one index entry a table, and the text is always the same.
func (s *queries) NextDue(ctx context.Context, partition int) (at time.Time, none bool, err error) {
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
func (s *queries) nextDueText(first, end int) string {
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
