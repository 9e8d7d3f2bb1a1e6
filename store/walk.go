package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// WalkFilter selects tasks of all shards.
type WalkFilter struct {
	BizType  *uint64 // nil: all
	Status   task.Status
	From, To time.Time // action_time at or after From, and before To; zero: no bound
	Failed   bool      // only tasks with failed runs
}

// Place is a place in the order of shard, action_time and job_id. A Place without a job_id is the start of its shard.
type Place struct {
	Shard int
	At    time.Time
	JobID uint64
	// AsOf is the moment of the first page. A task that was changed after it is left out of the later pages: it may have
	// been on an earlier one. Zero: this is the first page.
	AsOf time.Time
}

// AsOf returns a time that is not before any change that this process has made, and before all that it will make. It is the
// present, or some milliseconds later if changes have come faster than milliseconds.
func (s *queries) AsOf() time.Time {
	at := task.CeilMilli(s.cfg.Now())
	for _, db := range s.dbs {
		if last := time.UnixMilli(db.stamp.Load()).UTC(); last.After(at) {
			at = last
		}
	}
	for _, db := range s.dbs {
		db.stampsAfter(at)
	}
	return at
}

// maxSkew is how far ahead the clocks of nodes may be. A gmt_modified that is further ahead was written by hand, in a
// session with another time zone, and says nothing.
const maxSkew = time.Minute

// isChangedAfter reports whether a row was changed after a moment, as far as its gmt_modified shows.
func (s *queries) isChangedAfter(modified, asOf time.Time) bool {
	return !asOf.IsZero() && modified.After(asOf) && modified.Before(s.cfg.Now().Add(maxSkew))
}

// The limits of a page of a walk: it is short, or empty, when they are used up. The index does not have biz_type, so rows
// of other types are looked at, too.
const (
	walkStatements = 10     // of up to maxMembers tables
	walkRows       = 20_000 // looked at
	walkFirst      = 4      // tables of the first statement; each further one has four times as many
)

// walked is a row that a walk has looked at.
type walked struct {
	Place
	bizType  uint64
	attempts int
	modified time.Time
}

// Walk reads tasks of all shards in the order of shard, action_time and job_id: at most limit, after a place. more
// reports whether there may be others, after next. A page may be short, or empty, although there are more.
//
// A walk from page to page ends, even if tasks are changed meanwhile. It shows each task at most once, and one that is not
// changed exactly once (see Place.AsOf).
func (s *queries) Walk(ctx context.Context, f WalkFilter, after Place, limit int) (list []task.Task, next Place, more bool, err error) {
	next = after
	asOf := after.AsOf
	if asOf.IsZero() {
		asOf = s.AsOf()
	}
	ids := make([]uint64, 0, limit)
	rows := walkRows
	for statements, tables := walkStatements, walkFirst; len(ids) < limit && next.Shard < s.layout.Shards(); statements-- {
		if statements == 0 || rows <= 0 {
			more = true
			break
		}
		end := min(next.Shard+tables, (s.layout.Database(next.Shard)+1)*s.layout.TablesPerDatabase)
		perTable := min(rows, max(limit, walkRows/walkStatements))
		found, err := s.walk(ctx, f, next, end, perTable)
		if err != nil {
			return nil, after, false, s.wrap(s.layout.Database(next.Shard), "list tasks", err)
		}
		rows -= len(found)
		tables = min(4*tables, maxMembers)
		var cut bool
		if ids, next, cut = s.pick(f, found, ids, limit, perTable, after.AsOf); !cut {
			next = Place{Shard: end}
		}
	}
	next.AsOf = asOf
	more = more || next.Shard < s.layout.Shards()
	if list, err = s.Load(ctx, ids); err != nil {
		return nil, after, false, err
	}
	list = slices.DeleteFunc(list, func(t task.Task) bool { return t.Status != f.Status || f.Failed && t.Attempts == 0 })
	slices.SortFunc(list, func(a, b task.Task) int {
		x, _ := s.layout.ShardOf(a.JobID)
		y, _ := s.layout.ShardOf(b.JobID)
		return cmp.Or(x-y, a.ActionTime.Compare(b.ActionTime), cmp.Compare(a.JobID, b.JobID))
	})
	return list, next, more, nil
}

// pick appends the ids of matching rows up to limit. cut reports that rows of the last table are left, after next.
func (s *queries) pick(f WalkFilter, found []walked, ids []uint64, limit, perTable int, asOf time.Time) (_ []uint64, next Place, cut bool) {
	ofTable := 0
	for i, r := range found {
		if ofTable++; i == 0 || r.Shard != found[i-1].Shard {
			ofTable = 1
		}
		if (f.BizType == nil || r.bizType == *f.BizType) && (!f.Failed || r.attempts > 0) && !s.isChangedAfter(r.modified, asOf) {
			ids = append(ids, r.JobID)
		}
		if len(ids) == limit || ofTable == perTable {
			return ids, r.Place, true
		}
	}
	return ids, next, false
}

// walk looks at rows from a place up to the end of the shard before end, at most perTable of a table.
func (s *queries) walk(ctx context.Context, f WalkFilter, after Place, end, perTable int) (found []walked, err error) {
	where, which := " WHERE status=?", []any{int64(f.Status)}
	if !f.From.IsZero() {
		where, which = where+" AND action_time>=?", append(which, s.backend.timeArg(task.CeilMilli(f.From)))
	}
	if !f.To.IsZero() {
		where, which = where+" AND action_time<?", append(which, s.backend.timeArg(task.CeilMilli(f.To)))
	}
	err = s.scanShards(ctx, after.Shard, end, maxMembers, func(u *union, shard int) {
		q, args := "SELECT job_id,action_time,biz_type,attempts,gmt_modified FROM "+s.indexed(shard, indexDue)+where, slices.Clone(which)
		if shard == after.Shard && after.JobID != 0 {
			at := s.backend.timeArg(after.At)
			q += " AND action_time>=? AND (action_time>? OR job_id>?)"
			args = append(args, at, at, s.backend.idArg(after.JobID))
		}
		u.add(s.backend.unionMember(q+" ORDER BY action_time,job_id LIMIT ?"), append(args, int64(perTable))...)
	}, func(rows *sql.Rows) error {
		var id, bizType unsigned
		var attempts int
		var at, modified utc
		err := rows.Scan(&id, &at, &bizType, &attempts, &modified)
		shard, _ := s.layout.ShardOf(uint64(id))
		found = append(found, walked{Place{Shard: shard, At: time.Time(at), JobID: uint64(id)}, uint64(bizType), attempts, time.Time(modified)})
		return err
	})
	slices.SortFunc(found, func(a, b walked) int {
		return cmp.Or(a.Shard-b.Shard, a.At.Compare(b.At), cmp.Compare(a.JobID, b.JobID))
	})
	return found, err
}
