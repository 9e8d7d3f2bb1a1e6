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
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Inserted is the result of one task of an Insert.
type Inserted struct {
	Task      task.Task // as stored; the first task when Duplicate
	Duplicate bool      // a task with the same (biz_id, biz_type, dedup_key) existed: nothing was stored
	Err       error
}

// insert is one task on its way into its database.
type insert struct {
	request
	task  task.Task
	again bool   // it may take the dedup_key of a first task that has ended
	over  uint64 // the job_id of that task; 0: none was found
	out   *Inserted
	index int // in its call
	call  *insertCall
}

// insertCall is a call of InsertAgain.
type insertCall struct {
	mu      sync.Mutex
	decided []int // indexes of the tasks whose results are known since the last take
	left    int
	over    chan struct{} // closed when the results of all are known
}

func (c *insertCall) take() (decided []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	decided, c.decided = c.decided, nil
	return decided
}

// wait waits until all results are known. Meanwhile it calls early for the tasks whose results are known, unless that is nil.
func (c *insertCall) wait(early func(decided []int)) {
	for early != nil {
		select {
		case <-c.over:
			return
		case <-time.After(earlyAfter):
			if decided := c.take(); decided != nil {
				early(decided)
			}
		}
	}
	<-c.over
}

// earlyAfter is the time after which an insert does not keep tasks waiting any more for those of slower databases.
const earlyAfter = 100 * time.Millisecond

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
	return s.InsertAgain(ctx, tasks, func(int) bool { return false }, nil)
}

// InsertAgain is Insert, but for the tasks at whose index again is true, a first task that has ended is no duplicate:
// its row stays, without its dedup_key, and the new task has the key. Both are one transaction, so of concurrent
// calls one stores its task, and the others return that as a duplicate. A repeated call is not safe: when the new task
// has ended, it stores another one.
//
// While a database takes long, early is called with the indexes and the results of tasks of others, each once; nil: it is not.
func (s *Store) InsertAgain(ctx context.Context, tasks []task.Task, again func(i int) bool,
	early func(decided []int, results []Inserted)) []Inserted {
	results := make([]Inserted, len(tasks))
	if len(tasks) == 0 {
		return results
	}
	if s.cfg.IDs == nil {
		for i := range results {
			results[i] = Inserted{Task: tasks[i], Err: errNoIDs}
		}
		return results
	}
	reqs := make([]insert, len(tasks))
	call := &insertCall{decided: make([]int, 0, len(tasks)), left: len(tasks), over: make(chan struct{})}
	now := task.CeilMilli(s.cfg.Now())
	for i, t := range tasks {
		shard := s.layout.Shard(t.BizID)
		if t.JobID == 0 {
			t.JobID = s.cfg.IDs.Next(shard)
		}
		t.Status, t.Created, t.Modified = task.Pending, now, now
		t.ActionTime = task.CeilMilli(t.ActionTime)
		reqs[i] = insert{request: request{ctx: ctx, shard: shard, ofTable: true},
			task: t, again: again(i), out: &results[i], index: i, call: call}
	}
	lists := make(map[*groupcommit.Group[*insert]][]*insert)
	// First tasks are looked up in their own database.
	few := len(reqs) <= burst && !slices.ContainsFunc(tasks, func(t task.Task) bool { return t.DedupKey != "" })
	for i := range reqs {
		d := s.layout.Database(reqs[i].shard)
		// It would wait for the time-out, and could be written after its caller got an error.
		if down := cmp.Or(s.isDown(d), s.refusesChanges(d)); down != nil {
			reqs[i].fail(s.wrap(d, "insert", notBegun("insert", down)))
			continue
		}
		s.dbs[d].stampsAfter(now) // gmt_modified must differ from the stamp of any move
		group := s.inserts.lanes[d].own
		if few {
			group = s.inserts.shared[d]
		}
		lists[group] = append(lists[group], &reqs[i])
	}
	for group, list := range lists {
		group.Add(list...)
	}
	if early == nil || len(tasks) == 1 {
		call.wait(nil)
	} else {
		call.wait(func(decided []int) { early(decided, results) })
	}
	return results
}

// finish sets the result of a request.
func (in *insert) finish(t task.Task, duplicate bool, err error) {
	*in.out = Inserted{Task: t, Duplicate: duplicate, Err: err}
	in.call.mu.Lock()
	defer in.call.mu.Unlock()
	in.call.decided = append(in.call.decided, in.index)
	if in.call.left--; in.call.left == 0 {
		close(in.call.over)
	}
}

func (in *insert) id() uint64 { return in.task.JobID }

func (in *insert) fail(err error) { in.finish(in.task, false, err) }

func (in *insert) isSeenIn(row *task.Task) bool {
	return row.BizID == in.task.BizID && row.BizType == in.task.BizType && row.Created.Equal(in.task.Created)
}

// inserts is the kind of work of a writer of new tasks.
type inserts struct{ *databases }

func (inserts) begin(*database, []*insert) {}

// render returns the statements that free dedup_keys, and one INSERT or two for each table.
func (s inserts) render(db *database, batch []*insert, name tableNamer) transaction[*insert] {
	statements, groups := s.insertStatements(batch, name)
	if releases := s.releaseStatements(batch); len(releases) > 0 {
		statements, groups = append(releases, statements...), append(make([][]*insert, len(releases)), groups...)
	}
	return transaction[*insert]{db, statements, groups}
}

// answer returns the inserts that need another job_id, or that take the dedup_key of a task that has ended.
func (s inserts) answer(ctx context.Context, t transaction[*insert], affected []int64) (again []*insert) {
	for i, group := range t.groups {
		if int(affected[i]) == len(group) || len(group) == 0 {
			for _, in := range group {
				in.finish(in.task, false, nil)
			}
			continue
		}
		kept, err := s.resolveDuplicates(ctx, t.db, group)
		if err != nil { // the rows are stored or existed before, only the answer is missing
			failAll(group, s.wrap(t.db.index, "insert", err))
		}
		again = append(again, kept...)
	}
	return again
}

// prepareAgain draws new ids. Only a job_id can be the refused key: that of a process that used milliseconds of the future
// and was restarted.
func (s inserts) prepareAgain(ctx context.Context, db *database, open []*insert, refused error) error {
	if refused == nil && !slices.ContainsFunc(open, func(in *insert) bool { return in.over == 0 }) {
		return nil // their ids are free
	}
	return s.renewIDs(ctx, db, open)
}

// hasExtraColumns reports whether a task has rare columns: its own time-out, a text as biz_id, or a trace.
func (in *insert) hasExtraColumns() bool {
	return in.task.Timeout != 0 || in.task.BizKey != "" || in.task.Trace != ""
}

// insertStatements renders one multi-row INSERT per table, and one more for the rows with a dedup_key, which
// ignores existing rows. Rows with extra columns are apart, too.
func (s inserts) insertStatements(batch []*insert, table tableNamer) ([]statement, [][]*insert) {
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
func (s inserts) releaseStatements(batch []*insert) (statements []statement) {
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

func (s inserts) insertStatement(group []*insert, table string) statement {
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
