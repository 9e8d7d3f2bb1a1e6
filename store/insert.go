package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Inserted is what became of one task of an Insert.
type Inserted struct {
	Task      task.Task // as stored; the first task when Duplicate
	Duplicate bool      // a task with the same (biz_id, biz_type, dedup_key) was there: nothing was stored
	Err       error
}

// insert is one task on its way through the group commit of its database.
type insert struct {
	ctx   context.Context // of the caller
	task  task.Task
	shard int
	out   *Inserted
	done  *sync.WaitGroup
}

var errNoIDs = errors.New("insert: this store was opened without job_ids to give")

// NewID gives the job_id for a new task of bizID.
func (s *Store) NewID(bizID uint64) uint64 { return s.cfg.IDs.Next(s.layout.Shard(bizID)) }

// Insert stores new pending tasks durably and answers for each, in order. A
// task without a JobID gets one; a JobID that is taken already is replaced.
// What other callers insert at the same time shares the commit.
//
// The error of one task does not touch the others. After an error of the
// connection the outcome is not known: a dedup_key makes it safe to ask again.
// A task whose writing had not begun when ctx ended is not stored: callers that
// left do not pile up before a database that hangs. Once begun it is waited for.
func (s *Store) Insert(ctx context.Context, tasks []task.Task) []Inserted {
	results := make([]Inserted, len(tasks))
	if s.cfg.IDs == nil {
		for i := range results {
			results[i] = Inserted{Task: tasks[i], Err: errNoIDs}
		}
		return results
	}
	reqs := make([]insert, len(tasks))
	var done sync.WaitGroup
	done.Add(len(tasks))
	now := task.CeilMilli(s.cfg.Now())
	for i, t := range tasks {
		shard := s.layout.Shard(t.BizID)
		if t.JobID == 0 {
			t.JobID = s.cfg.IDs.Next(shard)
		}
		t.Status, t.Created, t.Modified = task.Pending, now, now
		t.ActionTime = task.CeilMilli(t.ActionTime)
		reqs[i] = insert{ctx: ctx, task: t, shard: shard, out: &results[i], done: &done}
	}
	lists := make([][]*insert, len(s.dbs)) // by database, or by server for a few
	for i := range reqs {
		d := s.layout.Database(reqs[i].shard)
		s.dbs[d].stampsAfter(now) // gmt_modified must not be taken for a move's stamp
		if len(reqs) <= crowd {
			d = s.backend.server(d)
		}
		lists[d] = append(lists[d], &reqs[i])
	}
	for d, list := range lists {
		if len(reqs) <= crowd {
			s.few[d].Add(list...)
		} else {
			s.dbs[d].inserts.Add(list...)
		}
	}

	done.Wait()
	return results
}

// finish answers a request.
func (in *insert) finish(t task.Task, duplicate bool, err error) {
	*in.out = Inserted{Task: t, Duplicate: duplicate, Err: err}
	in.done.Done()
}

// flushInserts writes one batch of a database and answers each of its tasks.
func (s *Store) flushInserts(db *database, batch []*insert) {
	if len(batch) == 0 {
		return
	}
	// The batch belongs to many callers: none of their contexts may end it.
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	s.insertAll(ctx, db, batch)
}

// awaited keeps the inserts whose callers still wait, and answers the others.
func awaited(batch []*insert) []*insert {
	return slices.DeleteFunc(batch, func(in *insert) bool {
		err := in.ctx.Err()
		if err != nil {
			in.finish(in.task, false, notBegun("insert", err))
		}
		return err != nil
	})
}

// flushFew writes one batch of a server: tasks of several databases share a
// commit. If the server refuses it, each database gets its own, so that
// the others do not suffer from one. A database that gave no answer the last time
// is left to its own group, where it holds up nobody else.
func (s *Store) flushFew(batch []*insert) {
	batch = slices.DeleteFunc(batch, func(in *insert) bool {
		db := s.dbs[s.layout.Database(in.shard)]
		mute := db.mute.Load()
		if mute {
			db.inserts.Add(in)
		}
		return mute
	})
	byDB := make([][]*insert, len(s.dbs))
	several, keyed := false, false
	for _, in := range batch {
		d := s.layout.Database(in.shard)
		byDB[d] = append(byDB[d], in)
		several = several || in.shard/s.layout.TablesPerDatabase != batch[0].shard/s.layout.TablesPerDatabase
		keyed = keyed || in.task.DedupKey != ""
	}
	if several && !keyed && s.insertTogether(batch) {
		return
	}
	s.eachDatabase(func(d int) {
		if len(byDB[d]) > 0 {
			s.flushInserts(s.dbs[d], byDB[d])
		}
	})
}

// insertTogether stores a batch of several databases in one transaction. It
// answers false if the server refused it: then nothing is stored.
func (s *Store) insertTogether(batch []*insert) bool {
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	statements, groups := s.insertStatements(batch, s.backend.qualified)
	_, err := s.backend.transact(ctx, s.layout.Database(batch[0].shard), statements)
	if s.backend.isRefused(err) {
		return false
	}
	for _, group := range groups {
		for _, in := range group {
			d := s.layout.Database(in.shard)
			if err != nil { // which of them it was, their next inserts will tell
				s.dbs[d].mute.Store(true)
			}
			in.finish(in.task, false, s.wrap(d, "insert", err))
		}
	}
	return true
}

// insertAll stores the batch. When the database refuses it for the fault of a
// row, the batch is halved until that row stands alone.
func (s *Store) insertAll(ctx context.Context, db *database, batch []*insert) {
	open, err := s.tryInsert(ctx, db, batch)
	db.mute.Store(err != nil && !s.backend.isRefused(err))
	switch {
	case err == nil:
	case s.backend.isData(err) && len(open) > 1:
		half := len(open) / 2
		s.insertAll(ctx, db, open[:half])
		s.insertAll(ctx, db, open[half:])
	case s.backend.isData(err):
		open[0].finish(open[0].task, false, &task.FieldError{Field: "task", Message: err.Error()})
	default:
		for _, in := range open {
			in.finish(in.task, false, s.wrap(db.index, "insert", err))
		}
	}
}

// insertTries bounds how often a batch is tried again after a deadlock or
// after new ids were drawn.
const insertTries = 8

// tryInsert stores the batch in one transaction and answers its tasks. With an
// error it gives back those that are still open: nobody answered them, and as
// far as is known they are not stored.
func (s *Store) tryInsert(ctx context.Context, db *database, batch []*insert) (open []*insert, err error) {
	open = batch
	for range insertTries {
		statements, groups := s.insertStatements(open, tableName)
		affected, err := s.backend.transact(ctx, db.index, statements)
		switch {
		case s.backend.isConflict(err):
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return open, err
			}
			continue
		case s.backend.isDuplicate(err):
			// Only a job_id can collide here: of a process that borrowed
			// milliseconds from the future and was started anew.
			if err := s.renewIDs(ctx, db, open); err != nil {
				return open, err
			}
			continue
		case err != nil:
			return open, err
		}

		var again []*insert
		for i, group := range groups {
			if int(affected[i]) == len(group) {
				for _, in := range group {
					in.finish(in.task, false, nil)
				}
				continue
			}
			kept, err := s.resolveKept(ctx, db, group)
			if err != nil {
				// The rows are stored or were there before, only their answer is missing.
				for _, in := range group {
					in.finish(in.task, false, s.wrap(db.index, "insert", err))
				}
				continue
			}
			again = append(again, kept...)
		}
		if len(again) == 0 {
			return nil, nil
		}
		open = again
		if err := s.renewIDs(ctx, db, open); err != nil {
			return open, err
		}
	}
	return open, errors.New("no way past conflicting transactions or ids")
}

// insertStatements renders one multi-row INSERT per table, and one more for the
// rows with a dedup_key, which keeps the rows that are there already.
func (s *Store) insertStatements(batch []*insert, table func(database, table int) string) ([]statement, [][]*insert) {
	type key struct {
		shard int
		dedup bool
	}
	index := make(map[key]int, len(batch))
	var groups [][]*insert
	for _, in := range batch {
		k := key{in.shard, in.task.DedupKey != ""}
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], in)
	}
	// All writers take their locks in the same order: no deadlock among them.
	slices.SortFunc(groups, func(a, b []*insert) int { return a[0].shard - b[0].shard })
	statements := make([]statement, len(groups))
	for i, group := range groups {
		shard := group[0].shard
		statements[i] = s.insertStatement(group, table(s.layout.Database(shard), s.layout.Table(shard)))
	}
	return statements, groups
}

func tableName(_, table int) string { return sharding.TableName(table) }

func (s *Store) insertStatement(group []*insert, table string) statement {
	dedup := group[0].task.DedupKey != ""
	const head, one = " (job_id,gmt_create,gmt_modified,biz_id,biz_type,action_time,attribute,dedup_key) VALUES ", "(?,?,?,?,?,?,?,?)"
	var b strings.Builder
	b.Grow(64 + len(head) + len(group)*(len(one)+1))
	b.WriteString("INSERT INTO ")
	b.WriteString(table)
	b.WriteString(head)
	args := make([]any, 0, len(group)*8)
	for i, in := range group {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(one)
		t := &in.task
		var dedupKey any
		if dedup {
			dedupKey = t.DedupKey
		}
		created := s.backend.at(t.Created)
		args = append(args, s.backend.id(t.JobID), created, created, s.backend.id(t.BizID), s.backend.id(t.BizType),
			s.backend.at(t.ActionTime), t.Attribute, dedupKey)
	}
	if dedup {
		b.WriteString(s.backend.orKeep())
		return statement{sql: b.String(), args: args}
	}
	return statement{sql: b.String(), args: args, rows: int64(len(group))}
}

// resolveKept finds out which rows of a group with dedup_keys were stored and
// which were there before, and answers them. Those that are neither lost their
// job_id to another row; they are given back for another try.
func (s *Store) resolveKept(ctx context.Context, db *database, group []*insert) (again []*insert, err error) {
	type identity struct {
		biz, typ uint64
		key      string
	}
	stored := make(map[identity]task.Task, len(group))
	for chunk := range slices.Chunk(group, 100) {
		var q strings.Builder
		var args []any
		for i, in := range chunk {
			if i > 0 {
				q.WriteString(" UNION ALL ")
			}
			table := s.layout.Table(in.shard)
			q.WriteString("SELECT " + columns + " FROM " + sharding.TableName(table) + s.backend.hint(indexBiz, table) +
				" WHERE biz_id=? AND biz_type=? AND dedup_key=?")
			args = append(args, s.backend.id(in.task.BizID), s.backend.id(in.task.BizType), in.task.DedupKey)
		}
		found, err := s.query(ctx, db.index, q.String(), args, nil)
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			stored[identity{t.BizID, t.BizType, t.DedupKey}] = t
		}
	}
	for _, in := range group {
		t, ok := stored[identity{in.task.BizID, in.task.BizType, in.task.DedupKey}]
		switch {
		case !ok:
			again = append(again, in)
		case t.JobID == in.task.JobID:
			in.finish(in.task, false, nil)
		default:
			in.finish(t, true, nil)
		}
	}
	return again, nil
}

// renewIDs draws new job_ids for the batch, later than all that this worker has
// in the tables concerned.
func (s *Store) renewIDs(ctx context.Context, db *database, batch []*insert) error {
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
func (s *Store) latestID(ctx context.Context, db *database, shard, worker int) (uint64, error) {
	var latest []unsigned
	err := db.read.WithContext(ctx).Table(s.table(shard)).
		Where("job_id % 1024 = ?", worker).Order("job_id DESC").Limit(1).Pluck("job_id", &latest).Error
	if err != nil || len(latest) == 0 {
		return 0, err
	}
	return uint64(latest[0]), nil
}
