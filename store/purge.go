package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// purgeRows is about the maximum number of rows of a status in a Purge: to delete them takes about as long as an outcome may wait.
const purgeRows = 1000

// Clock returns the time of a database's server, for actions that must not be too early. A SQLite file has no
// server: there it is the time at which the store was opened plus the time that has passed since. A change of
// this machine's clock does not affect it.
func (s *databases) Clock(ctx context.Context, database int) (time.Time, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if s.cfg.Driver == SQLite {
		return s.opened.Add(time.Since(s.openedAt)), nil
	}
	var now time.Time
	err := s.dbs[database].read.ConnPool.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(3)").Scan(&now)
	return now, s.wrap(database, "ask the time", err)
}

// Purged is what became of a batch. None was deleted if none are left, or if they are locked.
type Purged struct {
	Processed, Cancelled, Dead int
	Entries                    int       // of the audit
	Locked                     int       // rows that another transaction has locked, or that no time was left for
	More                       bool      // a table may have more
	Oldest                     time.Time // when the oldest row of the batch was due, or has changed later; zero: there is none
}

// Rows is the number of deleted rows.
func (p Purged) Rows() int { return p.Processed + p.Cancelled + p.Dead + p.Entries }

func (p *Purged) add(status task.Status, rows int) {
	switch status {
	case task.Processed:
		p.Processed += rows
	case task.Cancelled:
		p.Cancelled += rows
	case task.Dead:
		p.Dead += rows
	}
}

// Purge deletes processed and cancelled tasks of a partition whose action_time and last change are both before
// the given time: a batch, in each table the oldest first. Dead tasks stay; see PurgeDead.
func (s retention) Purge(ctx context.Context, partition int, before time.Time) (Purged, error) {
	at := s.backend.timeArg(before)
	const where = " AND action_time<? AND gmt_modified<?"
	return s.purge(ctx, partition, []finishedBefore{{task.Processed, where, []any{at, at}}, {task.Cancelled, where, []any{at, at}}}, before)
}

// PurgeEarly deletes tasks like Purge, but tasks that were cancelled so long before their time that only their
// action_time is not before the given time. It reads the index entries of all cancelled tasks that Purge
// leaves, so it is for rarer use. (A job_id, which is also in the index, excludes most of the younger ones.)
func (s retention) PurgeEarly(ctx context.Context, partition int, before time.Time) (Purged, error) {
	created, err := sharding.JobID(before, 0, 0)
	if err != nil {
		return Purged{}, nil // no task is so old
	}
	at := s.backend.timeArg(before)
	return s.purge(ctx, partition, []finishedBefore{{task.Cancelled, " AND action_time>=? AND job_id<? AND gmt_modified<?",
		[]any{at, s.backend.idArg(created), at}}}, before)
}

// PurgeDead deletes dead tasks like Purge.
func (s retention) PurgeDead(ctx context.Context, partition int, before time.Time) (Purged, error) {
	at := s.backend.timeArg(before)
	return s.purge(ctx, partition, []finishedBefore{{task.Dead, " AND action_time<? AND gmt_modified<?", []any{at, at}}}, before)
}

// finishedBefore is a condition on finished rows of a status.
type finishedBefore struct {
	status task.Status
	where  string
	args   []any
}

// finishedRow is a row of a table with a status.
type finishedRow struct {
	table  int
	status task.Status
	id     any // as the backend takes it
}

func (s retention) purge(ctx context.Context, partition int, kinds []finishedBefore, before time.Time) (p Purged, err error) {
	finished, oldest, more, err := s.finished(ctx, partition, kinds)
	database := s.layout.PartitionDatabase(partition)
	if err == nil && len(finished) > 0 {
		p, err = s.deleteFinished(ctx, database, finished, before)
	}
	p.Oldest, p.More = oldest, more
	return p, s.wrap(database, "purge", err)
}

// finished returns a batch, the time of the oldest, and whether a table may have more.
func (s retention) finished(ctx context.Context, partition int,
	kinds []finishedBefore) (finished []finishedRow, oldest time.Time, more bool, err error) {
	first, end := s.layout.PartitionShards(partition)
	perTable := max(1, purgeRows/(end-first))
	type kind struct {
		table  int
		status task.Status
	}
	found := make(map[kind]int)
	err = s.scanShards(ctx, first, end, maxMembers/2, func(u *union, shard int) {
		for _, k := range kinds {
			u.add(s.backend.unionMember("SELECT job_id,status,action_time,gmt_modified FROM "+s.indexed(shard, indexDue)+
				" WHERE status=?"+k.where+" ORDER BY action_time LIMIT ?"),
				append([]any{int64(k.status)}, k.args...)...)
			u.args = append(u.args, int64(perTable))
		}
	}, func(rows *sql.Rows) error {
		var id unsigned
		var status task.Status
		var due, modified utc
		err := rows.Scan(&id, &status, &due, &modified)
		shard, _ := s.layout.ShardOf(uint64(id))
		of := kind{s.layout.Table(shard), status}
		finished = append(finished, finishedRow{of.table, status, s.backend.idArg(uint64(id))})
		found[of]++
		more = more || found[of] == perTable
		at := time.Time(due)
		if at.Before(time.Time(modified)) {
			at = time.Time(modified)
		}
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
		return err
	})
	slices.SortStableFunc(finished, func(a, b finishedRow) int {
		return cmp.Or(a.table-b.table, cmp.Compare(a.status, b.status))
	})
	return finished, oldest, more, err
}

// deleteFinished deletes rows that still have their status and have not changed since they were read. If some are locked, it splits
// the batch until they are alone.
func (s retention) deleteFinished(ctx context.Context, database int, finished []finishedRow, before time.Time) (p Purged, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	parts, transact, isRefused := [][]finishedRow{finished}, s.transact, false
	for ; len(parts) > 0; parts = parts[1:] {
		part := parts[0]
		if isRefused && s.isOutOfTime(ctx) {
			p.Locked += len(part) // maybe not all of them
			continue
		}
		err := s.deletePart(ctx, database, part, before, transact, &p)
		why := s.backend.refusal(err)
		isRefused = isRefused || why == refusedLocked
		switch {
		case why == refusedConflict: // the next round will delete them
		case why == refusedLocked && len(part) > 1:
			parts = slices.AppendSeq(parts, slices.Chunk(part, (len(part)+splitParts-1)/splitParts))
			transact = s.transactNow
		case why == refusedLocked:
			p.Locked++
		case err != nil:
			return p, err
		}
	}
	return p, nil
}

// deletePart deletes rows, which are sorted by table and status, in one transaction.
func (s retention) deletePart(ctx context.Context, database int, part []finishedRow, before time.Time, transact transactor,
	p *Purged) error {
	var statements []statement
	var of []task.Status
	for len(part) > 0 {
		first, n := part[0], 0
		var args []any
		for ; n < len(part) && part[n].table == first.table && part[n].status == first.status; n++ {
			args = append(args, part[n].id)
		}
		statements = append(statements, statement{
			sql:  s.backend.deleteFrom(first.table) + " WHERE t.job_id IN (" + placeholders(n) + ") AND t.status=? AND t.gmt_modified<?",
			args: append(args, int64(first.status), s.backend.timeArg(before)),
		})
		of, part = append(of, first.status), part[n:]
	}
	affected, err := transact(ctx, database, statements)
	for i, n := range affected {
		p.add(of[i], int(n))
	}
	return err
}
