package worker

import (
	"context"
	"slices"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// recheck reads the rows of tasks that waited in memory again, right before they run, so that a cancel or a
// move by plain SQL is honoured. One statement per database is under way; the next one takes all that became
// due meanwhile. A database that does not answer holds up its own tasks only.
func (r *Runner) recheck(ctx context.Context) error {
	groups := make([]*groupcommit.Group[*queue.Entry], r.cfg.Layout.Databases)
	for d := range groups {
		groups[d] = groupcommit.New(maxFlush, 1, func(batch []*queue.Entry) { r.recheckBatch(ctx, d, batch) })
		defer groups[d].Wait()
	}
	byDatabase := make([][]*queue.Entry, len(groups))
	for {
		entries, err := r.cfg.Queue.NextChecks(ctx)
		if err != nil {
			return err
		}
		for _, e := range entries {
			d := r.cfg.Layout.PartitionDatabase(e.Partition)
			byDatabase[d] = append(byDatabase[d], e)
		}
		for d, list := range byDatabase {
			groups[d].Add(list...) // together: else the first one is read alone
			clear(list)
			byDatabase[d] = list[:0]
		}
	}
}

func (r *Runner) recheckBatch(ctx context.Context, database int, batch []*queue.Entry) {
	rows, err := loadRows(ctx, r.cfg.Store, batch)
	if err != nil {
		isRead := func(e *queue.Entry) bool { _, read := rows[e.ID()]; return read }
		unread := slices.DeleteFunc(slices.Clone(batch), isRead)
		batch = slices.DeleteFunc(batch, func(e *queue.Entry) bool { return !isRead(e) })
		if ctx.Err() == nil && r.cfg.Store.Writable(database) { // else another log line says so
			r.cfg.Logger.Warn("rows not checked before their run; they stay in the store", "tasks", len(unread), "error", err)
		}
		r.cfg.Queue.FailChecks(unread)
	}
	r.cfg.Queue.ApplyChecks(batch, rows)
}

// loadRows reads the rows of tasks and returns them by job_id.
func loadRows(ctx context.Context, s Store, entries []*queue.Entry) (map[uint64]task.Task, error) {
	ids := make([]uint64, len(entries))
	for i, e := range entries {
		ids[i] = e.ID()
	}
	found, err := s.Load(ctx, ids)
	rows := make(map[uint64]task.Task, len(found))
	for _, t := range found {
		rows[t.JobID] = t
	}
	return rows, err
}
