package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// resolveDuplicates finds out which rows of a group with dedup_keys were stored and which existed before, and
// finishes their requests. It returns the rest for another try: another row has their job_id, or their first task has
// ended and they may take its dedup_key.
func (s inserts) resolveDuplicates(ctx context.Context, db *database, group []*insert) (again []*insert, err error) {
	type identity struct {
		biz, typ uint64
		key      string
	}
	stored := make(map[identity]task.Task, len(group))
	for chunk := range slices.Chunk(group, 100) {
		var u union
		for _, in := range chunk {
			u.add("SELECT "+columns+" FROM "+s.indexed(in.shard, indexBiz)+" WHERE biz_id=? AND biz_type=? AND dedup_key=?",
				s.backend.idArg(in.task.BizID), s.backend.idArg(in.task.BizType), in.task.DedupKey)
		}
		found, err := s.query(ctx, db.index, u.text.String(), u.args, nil)
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			stored[identity{t.BizID, t.BizType, t.DedupKey}] = t
		}
	}
	for _, in := range group {
		t, ok := stored[identity{in.task.BizID, in.task.BizType, in.task.DedupKey}]
		in.over = 0
		switch {
		case !ok:
			again = append(again, in)
		case t.JobID == in.task.JobID:
			in.finish(in.task, false, nil)
		case t.BizKey != in.task.BizKey:
			in.finish(in.task, false, collision(&in.task))
		case in.again && t.Status != task.Pending:
			in.over = t.JobID
			again = append(again, in)
		default:
			in.finish(t, true, nil)
		}
	}
	return again, nil
}

// collision is the error of a task whose text biz_id has the same hash as another one's with the same
// dedup_key.
func collision(t *task.Task) error {
	return &task.FieldError{Field: "dedup_key", Message: fmt.Sprintf(
		"%q is in use by a task of another biz_id with the same hash as %q; give another dedup_key", t.DedupKey, t.BizKey)}
}

// renewIDs draws new job_ids for the batch, later than all ids of this worker in the tables concerned.
func (s inserts) renewIDs(ctx context.Context, db *database, batch []*insert) error {
	seen := map[int]bool{}
	for _, in := range batch {
		if !seen[in.shard] {
			seen[in.shard] = true
			latest, err := s.latestID(ctx, db, in.shard, sharding.WorkerOf(in.task.JobID))
			if err != nil {
				return err
			}
			s.cfg.IDs.Advance(latest)
		}
		in.task.JobID = s.cfg.IDs.Next(in.shard)
	}
	return nil
}

// latestID is the highest job_id of a worker in a table, 0 if it has none.
func (s inserts) latestID(ctx context.Context, db *database, shard, worker int) (uint64, error) {
	var latest []unsigned
	err := db.read.WithContext(ctx).Table(s.indexed(shard, indexPrimary)).
		Where("job_id % 1024 = ?", worker).Order("job_id DESC").Limit(1).Pluck("job_id", &latest).Error
	if err != nil || len(latest) == 0 {
		return 0, err
	}
	return uint64(latest[0]), nil
}
