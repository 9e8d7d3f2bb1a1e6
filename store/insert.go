package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Inserted is the result of one task of an Insert.
type Inserted struct {
	Task      task.Task // as stored; the first task when Duplicate
	Duplicate bool      // a task with the same (biz_id, biz_type, dedup_key) existed: nothing was stored
	Err       error
}

// insert is one task on its way through the group commit of its database.
type insert struct {
	ctx   context.Context // of the caller
	task  task.Task
	shard int
	again bool   // it may take the dedup_key of a first task that has ended
	over  uint64 // the job_id of that task; 0: none was found
	out   *Inserted
	done  *sync.WaitGroup
	waiting
}

var errNoIDs = errors.New("insert: this store was opened without job_ids to give")

// NewID returns the job_id for a new task of bizID.
func (s *Store) NewID(bizID uint64) uint64 { return s.cfg.IDs.Next(s.layout.Shard(bizID)) }

// Insert stores new pending tasks durably and returns a result for each, in order. A task without a JobID gets
// one; a JobID that exists already is replaced. Concurrent inserts share the commit.
//
// The error of one task does not affect the others. After an error of the connection the outcome is unknown:
// with a dedup_key it is safe to repeat the call. A task whose writing had not begun when ctx ended is not
// stored (task.ErrNotBegun), so callers that left do not pile up before a database that hangs. Once begun, a
// write is waited for. No write begins while its database is known to be down.
func (s *Store) Insert(ctx context.Context, tasks []task.Task) []Inserted {
	return s.InsertAgain(ctx, tasks, func(int) bool { return false })
}

// InsertAgain is Insert, but for the tasks at whose index again is true, a first task that has ended is no duplicate:
// its row stays, without its dedup_key, and the new task has the key. Both are one transaction, so of concurrent
// calls one stores its task, and the others return that as a duplicate. A repeated call is not safe: when the new task
// has ended, it stores another one.
func (s *Store) InsertAgain(ctx context.Context, tasks []task.Task, again func(i int) bool) []Inserted {
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
		reqs[i] = insert{ctx: ctx, task: t, shard: shard, again: again(i), out: &results[i], done: &done}
	}
	lists := make(map[*groupcommit.Group[*insert]][]*insert)
	for i := range reqs {
		d := s.layout.Database(reqs[i].shard)
		// It would wait for the time-out, and could be written after its caller got an error.
		if down := cmp.Or(s.isDown(d), s.refusesChanges(d)); down != nil {
			reqs[i].finish(reqs[i].task, false, s.wrap(d, "insert", notBegun("insert", down)))
			continue
		}
		s.dbs[d].stampsAfter(now) // gmt_modified must differ from the stamp of any move
		group := s.dbs[d].inserts
		if len(reqs) <= burst {
			group = s.shared[d]
		}
		lists[group] = append(lists[group], &reqs[i])
	}
	for group, list := range lists {
		group.Add(list...)
	}
	done.Wait()
	return results
}

// finish sets the result of a request.
func (in *insert) finish(t task.Task, duplicate bool, err error) {
	*in.out = Inserted{Task: t, Duplicate: duplicate, Err: err}
	in.done.Done()
}

// finishAll sets the same error for several requests.
func finishAll(list []*insert, err error) {
	for _, in := range list {
		in.finish(in.task, false, err)
	}
}

// flushInserts writes one batch of a database. It answers each of its tasks, or has them wait for a lock.
func (s *Store) flushInserts(db *database, batch []*insert) {
	if len(batch) == 0 {
		return
	}
	// The batch belongs to many callers: none of their contexts may end it.
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	db.unresponsive.Store(s.insertAll(ctx, db, batch, s.transact))
}

// keepAwaited keeps the inserts whose callers still wait, and finishes the others.
func keepAwaited(batch []*insert) []*insert {
	return slices.DeleteFunc(batch, func(in *insert) bool {
		err := in.ctx.Err()
		if err != nil {
			in.finish(in.task, false, notBegun("insert", err))
		}
		return err != nil
	})
}

// retryFromBlock keeps the inserts that do not delay the others. It passes on those for tables that met a lock recently,
// to the group that waits for locks. From a batch of several databases it also passes on those of a database that takes
// no writes or did not answer its last insert, to that database's own group.
func (s *Store) retryFromBlock(batch []*insert, several bool) []*insert {
	return slices.DeleteFunc(batch, func(in *insert) bool {
		db := s.dbs[s.layout.Database(in.shard)]
		until, locked := db.locked.Load(in.shard)
		if locked && time.Now().After(until.(time.Time)) {
			db.locked.CompareAndDelete(in.shard, until)
			locked = false
		}
		switch {
		case locked:
			db.insertsAside.Add(in)
		case several && (db.unresponsive.Load() || !s.Writable(db.index)):
			db.inserts.Add(in)
		default:
			return false
		}
		return true
	})
}

// flushShared writes one batch of a server: tasks of several databases share a
// commit. If the server refuses it, each database gets its own, so that
// the others are not affected.
func (s *Store) flushShared(batch []*insert) {
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

// insertTogether stores a batch of several databases in one transaction and finishes its requests. If the
// server refuses it, it does neither.
func (s *Store) insertTogether(batch []*insert) (ended bool) {
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	statements, groups := s.insertStatements(batch, s.backend.qualified)
	_, err := s.backend.transact(ctx, s.layout.Database(batch[0].shard), statements) // the retry of each database waits a moment for a lock
	if s.backend.refusal(err) != 0 {
		return false
	}
	if isOver(err) && s.areStored(ctx, s.layout.Database(batch[0].shard), batch[:1]) {
		err = nil
	}
	for _, group := range groups {
		for _, in := range group {
			d := s.layout.Database(in.shard)
			if err != nil { // the next inserts will show which database it was
				s.dbs[d].unresponsive.Store(true)
			}
			in.finish(in.task, false, s.wrap(d, "insert", err))
		}
	}
	return true
}

// insertAll stores the batch. If the database refuses it because of one row, a lock on one, or the size, it
// splits the batch until that row is alone. It reports whether the batch got no answer.
func (s *Store) insertAll(ctx context.Context, db *database, batch []*insert, transact transactor) (mute bool) {
	open, err := s.tryInsert(ctx, db, batch, transact)
	if err == nil {
		return false
	}
	why := s.backend.refusal(err)
	mute = why == 0
	ofSome := why == refusedLocked || why == refusedData || why == refusedTable || why == refusedSize
	switch {
	case len(open) > 1 && ofSome && !s.isOutOfTime(ctx):
		var parts sync.WaitGroup
		for _, part := range split(open, func(in *insert) uint64 { return in.task.JobID }) {
			parts.Go(func() { s.insertAll(ctx, db, part, s.transactNow) })
		}
		parts.Wait()
		return mute
	case why == refusedLocked:
		for _, in := range open {
			s.putAside(db, in)
		}
		return mute
	case why == refusedData && len(open) == 1:
		err = &task.FieldError{Field: "task", Message: err.Error()}
	default:
		err = s.wrap(db.index, "insert", err)
	}
	finishAll(open, err)
	return mute
}

// putAside lets an insert wait for a lock, and also the next ones of its table.
func (s *Store) putAside(db *database, in *insert) {
	db.locked.Store(in.shard, time.Now().Add(lockWait))
	if !in.retryLater(func() { db.insertsAside.Add(in) }) {
		err := &LockedError{map[uint64]error{in.task.JobID: nil}}
		in.finish(in.task, false, s.wrap(db.index, "insert", s.nameBlocked(db.index, err)))
	}
}

// insertTries is how often a batch is tried again after a deadlock or with new ids.
const insertTries = 8

// tryInsert stores the batch in one transaction and finishes its requests. With an error it returns the requests
// that are still open and, as far as is known, not stored.
func (s *Store) tryInsert(ctx context.Context, db *database, batch []*insert, transact transactor) (open []*insert, err error) {
	open = batch
	for range insertTries {
		releases := s.releaseStatements(open)
		statements, groups := s.insertStatements(open, tableName)
		statements = append(releases, statements...)
		affected, err := transact(ctx, db.index, statements)
		if isOver(err) && s.areStored(ctx, db.index, open) {
			affected, err = certainCounts(statements), nil
		}
		switch why := s.backend.refusal(err); {
		case why == refusedConflict:
			if err := wait.For(ctx, conflictPause); err != nil {
				return open, err
			}
			continue
		case why == refusedDuplicate:
			// Only a job_id can collide here: that of a process that used milliseconds of the future and was
			// restarted.
		case err != nil:
			return open, err
		default:
			if open = s.answerStored(ctx, db, groups, affected[len(releases):]); len(open) == 0 {
				return nil, nil
			}
			if !slices.ContainsFunc(open, func(in *insert) bool { return in.over == 0 }) {
				continue // their ids are free
			}
		}
		if err := s.renewIDs(ctx, db, open); err != nil {
			return open, err
		}
	}
	return open, errors.New("no way past conflicting transactions or ids")
}

// answerStored finishes the requests of a committed transaction. It returns the requests that need another try: with
// another job_id, or over a task that has ended.
func (s *Store) answerStored(ctx context.Context, db *database, groups [][]*insert, affected []int64) (again []*insert) {
	for i, group := range groups {
		if int(affected[i]) == len(group) {
			finishAll(group, nil)
			continue
		}
		kept, err := s.resolveDuplicates(ctx, db, group)
		if err != nil { // the rows are stored or existed before, only the answer is missing
			finishAll(group, s.wrap(db.index, "insert", err))
		}
		again = append(again, kept...)
	}
	return again
}

// hasExtraColumns reports whether a task has rare columns: its own time-out, a text as biz_id, or a trace.
func (in *insert) hasExtraColumns() bool {
	return in.task.Timeout != 0 || in.task.BizKey != "" || in.task.Trace != ""
}

// insertStatements renders one multi-row INSERT per table, and one more for the rows with a dedup_key, which
// ignores existing rows. Rows with extra columns are apart, too.
func (s *Store) insertStatements(batch []*insert, table func(database, table int) string) ([]statement, [][]*insert) {
	type key struct {
		shard       int
		dedup, more bool
	}
	index := make(map[key]int, len(batch))
	var groups [][]*insert
	for _, in := range batch {
		k := key{in.shard, in.task.DedupKey != "", in.hasExtraColumns()}
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], in)
	}
	// All writers take their locks in the same order, so they do not deadlock with each other.
	slices.SortFunc(groups, func(a, b []*insert) int { return a[0].shard - b[0].shard })
	statements := make([]statement, len(groups))
	for i, group := range groups {
		shard := group[0].shard
		statements[i] = s.insertStatement(group, table(s.layout.Database(shard), s.layout.Table(shard)))
	}
	return statements, groups
}

// releaseStatements take the dedup_keys from first tasks that have ended, for the inserts behind them. A task that was
// redriven meanwhile keeps its key. Its last change (gmt_modified) stays, because retention counts from it.
func (s *Store) releaseStatements(batch []*insert) (statements []statement) {
	seen := make(map[uint64]bool)
	for _, in := range batch {
		if in.over == 0 || seen[in.over] {
			continue
		}
		seen[in.over] = true
		statements = append(statements, statement{
			sql: "UPDATE " + s.indexed(in.shard, indexPrimary) +
				" SET dedup_key=NULL,gmt_modified=gmt_modified WHERE job_id=? AND status<>0 AND dedup_key=?",
			args: []any{s.backend.idArg(in.over), in.task.DedupKey},
		})
	}
	return statements
}

func tableName(_, table int) string { return sharding.TableName(table) }

func (s *Store) insertStatement(group []*insert, table string) statement {
	dedup, more := group[0].task.DedupKey != "", group[0].hasExtraColumns()
	head, one := " (job_id,gmt_create,gmt_modified,biz_id,biz_type,action_time,attribute,dedup_key) VALUES ", "(?,?,?,?,?,?,?,?)"
	if more {
		head, one = " (job_id,gmt_create,gmt_modified,biz_id,biz_type,action_time,attribute,dedup_key,timeout_ms,trace,biz_key) VALUES ", "(?,?,?,?,?,?,?,?,?,?,?)"
	}
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
		created := s.backend.timeArg(t.Created)
		args = append(args, s.backend.idArg(t.JobID), created, created, s.backend.idArg(t.BizID), s.backend.idArg(t.BizType),
			s.backend.timeArg(t.ActionTime), t.Attribute, dedupKey)
		if more {
			args = append(args, orNull(t.Timeout.Milliseconds()), orNull(t.Trace), orNull(t.BizKey))
		}
	}
	if dedup {
		b.WriteString(s.backend.ignoreDuplicates())
		return statement{sql: b.String(), args: args}
	}
	return statement{sql: b.String(), args: args, exactRows: int64(len(group))}
}

// orNull returns a value as a parameter, NULL for the zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
