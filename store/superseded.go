package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Rivals says which tasks may be later than others of their biz_id.
type Rivals struct {
	Now        time.Time // they were promised for this time or before
	Expired    time.Time // if they are pending, they were promised for this time or later: others are too late to run themselves
	MaxRetries int       // of the business type
}

// Superseded returns which tasks, all of one database and business type, have a later one of the same biz_id. Rivals are pending or
// processed.
//
// Of the rivals exactly one is the latest. The one that was promised for the latest time is it, of several the one with the greatest
// job_id. Leases, and pauses after failed runs, do not move what was promised. A redrive does, so a redriven task counts by its
// job_id: it is the latest if no other task of the biz_id was submitted after it, and else it is superseded.
func (s *queries) Superseded(ctx context.Context, database int, tasks []task.Task, of Rivals) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	for part := range slices.Chunk(tasks, maxMembers) {
		var u union
		for i := range part {
			s.addSuperseded(&u, i, &part[i], of)
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

func (s *queries) addSuperseded(u *union, i int, t *task.Task, of Rivals) {
	shard, _ := s.layout.ShardOf(t.JobID)
	key, args := "biz_key IS NULL", []any{s.backend.idArg(t.BizID), s.backend.idArg(t.BizType)}
	if t.BizKey != "" {
		key, args = "biz_key=?", append(args, t.BizKey)
	}
	args = append(args, int64(task.Processed), int64(task.Pending), s.backend.timeArg(of.Expired), s.backend.timeArg(of.Now))
	rivals := " FROM " + s.indexed(shard, indexBiz) + " WHERE biz_id=? AND biz_type=? AND " + key +
		" AND (status=? OR status=? AND " + promisedTime + ">=?) AND " + promisedTime + "<=?"
	id := s.backend.idArg(t.JobID)
	if of.isRedriven(t) {
		u.add("SELECT "+strconv.Itoa(i)+",EXISTS(SELECT 1"+rivals+" AND job_id>?)", append(args, id)...)
		return
	}
	const redriven = "(due_time IS NULL AND last_error<>'' AND (attempts=0 OR attempts>?))"
	at, retries := s.backend.timeArg(t.Promised()), int64(of.MaxRetries)
	u.add("SELECT "+strconv.Itoa(i)+",EXISTS(SELECT 1"+rivals+" AND NOT "+redriven+" AND ("+promisedTime+">? OR "+promisedTime+"=? AND job_id>?))"+
		" OR COALESCE((SELECT "+redriven+" AND job_id>?"+rivals+" ORDER BY job_id DESC LIMIT 1),0)",
		slices.Concat(args, []any{retries, at, at, id, retries, id}, args)...)
}

// isRedriven reports whether a task was redriven, and has neither failed nor got a time over the API since: its promised time is that of
// the redrive then. SQL may have redriven it with the attempts of which it died.
func (of *Rivals) isRedriven(t *task.Task) bool {
	return t.DueTime.IsZero() && t.LastError != "" && (t.Attempts == 0 || t.Attempts > of.MaxRetries)
}
