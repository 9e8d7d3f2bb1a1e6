package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Superseded returns which tasks, all of one database, have a later one of the same business type and biz_id that was
// promised for now or before and is pending or processed. Of two that were promised for the same time the one with the greater
// job_id is later. Leases, pauses after failed runs and redrives make no task later: a task that was redriven counts by its job_id.
func (s *Store) Superseded(ctx context.Context, database int, tasks []task.Task, now time.Time) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	for part := range slices.Chunk(tasks, maxMembers) {
		var u union
		for i := range part {
			s.addSuperseded(&u, i, &part[i], now)
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

func (s *Store) addSuperseded(u *union, i int, t *task.Task, now time.Time) {
	shard, _ := s.layout.ShardOf(t.JobID)
	at := s.backend.timeArg(t.Promised())
	key, args := "biz_key IS NULL", []any{s.backend.idArg(t.BizID), s.backend.idArg(t.BizType)}
	if t.BizKey != "" {
		key, args = "biz_key=?", append(args, t.BizKey)
	}
	args = append(args, int64(task.Pending), int64(task.Processed), s.backend.timeArg(now), s.backend.idArg(t.JobID))
	isLater := "job_id>?"
	if !isRedriven(t) {
		const redriven = "(attempts=0 AND due_time IS NULL AND last_error<>'')"
		isLater = "(" + isLater + " AND " + promisedTime + "=? OR " + promisedTime + ">? AND NOT (" + redriven + " AND job_id<?))"
		args = append(args, at, at, s.backend.idArg(t.JobID))
	}
	u.add("SELECT "+strconv.Itoa(i)+",EXISTS(SELECT 1 FROM "+s.indexed(shard, indexBiz)+" WHERE biz_id=? AND biz_type=? AND "+key+
		" AND status IN (?,?) AND "+promisedTime+"<=? AND "+isLater+")", args...)
}

// isRedriven reports whether a task was redriven and has not failed since: its promised time is that of the redrive then.
func isRedriven(t *task.Task) bool { return t.Attempts == 0 && t.DueTime.IsZero() && t.LastError != "" }
