package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Superseded returns which tasks, all of one database, have a later one of the same business type and biz_id. Rivals were promised for
// now or before, and are processed, or pending and promised for expired or later: an earlier one is too late to run itself.
//
// Of the rivals exactly one is the latest. The one that was promised for the latest time is it, of several the one with the greatest
// job_id. Leases, and pauses after failed runs, do not move what was promised. A redrive does, so a redriven task counts by its
// job_id: it is the latest if no other task of the biz_id was submitted after it, and else it is superseded.
func (s *Store) Superseded(ctx context.Context, database int, tasks []task.Task, now, expired time.Time) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	for part := range slices.Chunk(tasks, maxMembers) {
		var u union
		for i := range part {
			s.addSuperseded(&u, i, &part[i], now, expired)
		}
		bound, cancel := s.bound(ctx)
		err := s.scan(bound, database, u.text.String(), u.args, func(rows *sql.Rows) error {
			var i int
			var is bool
			err := rows.Scan(&i, &is)
			if is {
				found[part[i].JobID] = true
			}
			return err
		})
		cancel()
		if err != nil {
			return nil, s.wrap(database, "look for later tasks", err)
		}
	}
	return found, nil
}

func (s *Store) addSuperseded(u *union, i int, t *task.Task, now, expired time.Time) {
	shard, _ := s.layout.ShardOf(t.JobID)
	key, of := "biz_key IS NULL", []any{s.backend.idArg(t.BizID), s.backend.idArg(t.BizType)}
	if t.BizKey != "" {
		key, of = "biz_key=?", append(of, t.BizKey)
	}
	of = append(of, int64(task.Processed), int64(task.Pending), s.backend.timeArg(expired), s.backend.timeArg(now))
	rivals := " FROM " + s.indexed(shard, indexBiz) + " WHERE biz_id=? AND biz_type=? AND " + key +
		" AND (status=? OR status=? AND " + promisedTime + ">=?) AND " + promisedTime + "<=?"
	id := s.backend.idArg(t.JobID)
	if isRedriven(t) {
		u.add("SELECT "+strconv.Itoa(i)+",EXISTS(SELECT 1"+rivals+" AND job_id>?)", append(of, id)...)
		return
	}
	const redriven = "(due_time IS NULL AND last_error<>'')"
	at := s.backend.timeArg(t.Promised())
	args := append(slices.Clone(of), at, at, id, id)
	u.add("SELECT "+strconv.Itoa(i)+",EXISTS(SELECT 1"+rivals+" AND NOT "+redriven+" AND ("+promisedTime+">? OR "+promisedTime+"=? AND job_id>?))"+
		" OR COALESCE((SELECT "+redriven+" AND job_id>?"+rivals+" ORDER BY job_id DESC LIMIT 1),0)", append(args, of...)...)
}

// isRedriven reports whether a task was redriven, and nobody has given it a new time or run it since: its promised time is that of the
// redrive then. One that has failed and was moved by SQL looks the same.
func isRedriven(t *task.Task) bool { return t.DueTime.IsZero() && t.LastError != "" }
