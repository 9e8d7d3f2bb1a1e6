package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// journal has the starts of tasks by processes that have ended, and records starts for the next process
// (toc_running).
//
// A process that is killed, or that a task ends, leaves starts without an end: cuts. The next owner of the
// partition must not start the same task for ever. Recording each start before the run would double the work of
// every task, so nothing is recorded while processes end in order. If a process did not, each task that was due
// by then may have been started. The journal records these tasks before they start; the next owner finds the
// records and counts them. Once none of these tasks is pending, the partition is settled, and its next owner
// needs no records.
type journal struct {
	cfg      Config
	known    []atomic.Pointer[history] // by partition
	dbs      []journalDB
	repairs  sync.WaitGroup
	work     context.Context    // of repairs and settlers
	stop     context.CancelFunc // cancels work
	settlers sync.WaitGroup

	mu     sync.Mutex
	closed bool                    // no more repairs
	rows   map[uint64]journalWrite // by job_id: the rows of this process in the journal, to be removed
	count  atomic.Int64            // len(rows)
}

type journalDB struct {
	writes  *groupcommit.Group[journalWrite]
	mu      wait.Mutex            // one call reads the journal, the others wait
	failing atomic.Pointer[error] // why it does not work; nil: it works
	unended []store.Running       // ended starts that could not be removed yet; for flush alone
}

// history is what is known, in one term of a partition, about starts before the term.
type history struct {
	term   uint64
	before time.Time // tasks due by then may have been started; zero: none were
	read   time.Time // when the journal was read
	clean  bool      // there were no such starts

	mu     sync.Mutex
	starts map[uint64]store.Running // by job_id: starts without an end
}

// journalWrite is a start to record, or, without err, a start to remove.
type journalWrite struct {
	row    store.Running
	err    *error          // receives the result
	wait   *sync.WaitGroup // nil: no caller waits
	onDone func()          // called when the write is durable or has failed; may be nil
}

// journalTimeout bounds one call.
const journalTimeout = 2 * time.Second

func (j *journal) start(ctx context.Context) {
	j.work, j.stop = context.WithCancel(ctx)
	for d := range j.dbs {
		j.dbs[d].writes = groupcommit.New(maxFlush, 1, func(batch []journalWrite) { j.flush(d, batch) })
		j.settlers.Go(func() { j.settle(j.work, d) })
	}
}

// wait writes the rest and ends. Do not add anything at the same time.
func (j *journal) wait() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.stop()
	j.repairs.Wait()
	j.settlers.Wait()
	for d := range j.dbs {
		j.dbs[d].writes.Wait()
	}
}

// historyOf returns the starts before a term of a partition. It returns nil if the journal cannot be read now,
// or the term is over.
func (j *journal) historyOf(ctx context.Context, partition int, term uint64) *history {
	current := func() *history {
		if p := j.known[partition].Load(); p != nil && p.term == term {
			return p
		}
		return nil
	}
	if p := current(); p != nil {
		return p
	}
	d := j.cfg.Layout.PartitionDatabase(partition)
	db := &j.dbs[d]
	db.mu.Lock()
	defer db.mu.Unlock()
	if p := current(); p != nil || db.failing.Load() != nil {
		return p
	}
	if err := j.read(ctx, d); err != nil {
		j.recordFailure(d, err)
	}
	return current()
}

// read reads the journal of a database for all partitions in a new term. It removes rows whose tasks are over,
// or whose runs ended and were retried: they mean nothing any more.
func (j *journal) read(ctx context.Context, database int) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	fresh := j.newTerms(database)
	all, err := j.cfg.Store.Journaled(ctx, database)
	if errors.Is(err, task.ErrLocked) {
		// Partitions that were handed over in order have no starts without an end: they can go on.
		maps.DeleteFunc(fresh, func(_ int, p *history) bool { return !p.before.IsZero() })
		j.publish(fresh)
	}
	if err != nil {
		return err
	}
	rows := make(map[uint64]store.Running)
	for _, r := range all {
		if p := j.partition(r.JobID); p >= 0 && fresh[p] != nil && r.Instance != j.cfg.Instance {
			rows[r.JobID] = r
		}
	}
	unended, err := j.withoutEnd(ctx, rows)
	if err != nil {
		return err
	}
	for id, r := range rows {
		if unended[id] {
			fresh[j.partition(id)].starts[id] = r
		} else {
			j.dbs[database].writes.Add(journalWrite{row: r})
		}
	}
	j.publish(fresh)
	return nil
}

// newTerms returns the partitions of a database in a term without a history.
func (j *journal) newTerms(database int) map[int]*history {
	fresh := make(map[int]*history)
	first, end := j.cfg.Layout.DatabasePartitions(database)
	for p := first; p < end; p++ {
		term, known := j.cfg.Ownership.Term(p), j.known[p].Load()
		if term == 0 || known != nil && known.term == term {
			continue
		}
		fresh[p] = &history{term: term, read: j.cfg.Now(), starts: make(map[uint64]store.Running)}
		if at, ok := j.cfg.Ownership.TakenUncleanly(p); ok {
			fresh[p].before = at
		}
	}
	return fresh
}

// withoutEnd returns which of these starts had no end: the task is still as it was when it started.
func (j *journal) withoutEnd(ctx context.Context, starts map[uint64]store.Running) (map[uint64]bool, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	found, err := j.cfg.Store.Load(ctx, slices.Collect(maps.Keys(starts)))
	if err != nil && !errors.Is(err, task.ErrLocked) {
		return nil, err
	}
	unended := make(map[uint64]bool, len(starts))
	for id := range starts {
		unended[id] = err != nil // assume the worst of a row that cannot be read
	}
	for _, t := range found {
		unended[t.JobID] = t.Status == task.Pending && t.Attempts == starts[t.JobID].Attempts
	}
	return unended, nil
}

// publish makes the histories of new terms known.
func (j *journal) publish(fresh map[int]*history) {
	for p, known := range fresh {
		known.clean = known.before.IsZero() && len(known.starts) == 0
		j.known[p].Store(known)
	}
}

// settleEvery is the time between two checks of the partitions that were taken uncleanly.
const settleEvery = 2 * time.Second

// settle checks the partitions of a database until ctx ends.
func (j *journal) settle(ctx context.Context, database int) {
	first, end := j.cfg.Layout.DatabasePartitions(database)
	for wait.Poll(ctx, settleEvery) == nil {
		for p := first; p < end; p++ {
			if j.settlePartition(ctx, p) != nil {
				break // try again at the next check
			}
		}
	}
}

// settlePartition checks a partition that was taken uncleanly: it is settled once no task that was due by then
// is pending, and all its permits may be used.
func (j *journal) settlePartition(ctx context.Context, partition int) error {
	term, known := j.cfg.Ownership.Term(partition), j.known[partition].Load()
	if known != nil && known.term != term {
		known = nil
	}
	at, unclean := j.cfg.Ownership.TakenUncleanly(partition)
	if known != nil && !known.before.IsZero() {
		at, unclean = known.before, true
	}
	if term == 0 || !unclean {
		return nil
	}
	if known == nil || !known.clean {
		next, none, err := j.cfg.Store.NextDue(ctx, partition)
		if err != nil || !none && !next.After(at) {
			return err
		}
		if known != nil && known.isEmpty() {
			j.known[partition].CompareAndSwap(known, &history{term: term, clean: true})
		}
	}
	if !j.cfg.Queue.Withholds(partition) {
		j.cfg.Ownership.Settled(partition, term)
	}
	return nil
}

func (p *history) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.starts) == 0
}

// partition returns the partition of a task, -1 for an impossible job_id.
func (j *journal) partition(jobID uint64) int {
	shard, ok := j.cfg.Layout.ShardOf(jobID)
	if !ok {
		return -1
	}
	return j.cfg.Layout.Partition(shard)
}

// startOf is a task about to start, with its number of earlier starts without an end.
type startOf struct {
	entry     *queue.Entry
	cuts      int
	onRemoved func() // called after its row is removed; may be nil
	err       error  // it could not be recorded
}

// errJournal: the start was not recorded.
var errJournal = errors.New("start journal unavailable now")

// write records starts, and returns when that is durable or has failed.
func (j *journal) write(starts []startOf) {
	var written sync.WaitGroup
	now := j.cfg.Now()
	for i := range starts {
		s := &starts[i]
		t := &s.entry.Task
		d := j.cfg.Layout.PartitionDatabase(s.entry.Partition)
		if j.dbs[d].failing.Load() != nil {
			s.err = errJournal
			continue
		}
		row := store.Running{JobID: t.JobID, Instance: j.cfg.Instance, Attempts: t.Attempts, Cuts: s.cuts, Since: now}
		j.track(journalWrite{row: row, onDone: s.onRemoved})
		written.Add(1)
		j.dbs[d].writes.Add(journalWrite{row: row, err: &s.err, wait: &written})
	}
	written.Wait()
}

func (j *journal) track(w journalWrite) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rows[w.row.JobID] = w
	j.count.Store(int64(len(j.rows)))
}

// recordEnd removes a task whose run has ended, and forgets its earlier starts: they do not count if it runs
// again. It does not wait for the write.
func (j *journal) recordEnd(jobID uint64) {
	if j.removeStart(jobID) {
		p := j.known[j.partition(jobID)].Load()
		p.mu.Lock()
		delete(p.starts, jobID)
		p.mu.Unlock()
	}
}

// removeStart removes a task that did not start after all, and reports whether the journal had it.
func (j *journal) removeStart(jobID uint64) bool {
	if j.count.Load() == 0 {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	w, ok := j.rows[jobID]
	if ok {
		j.remove(w)
		j.count.Store(int64(len(j.rows)))
	}
	return ok
}

// abandon removes the running tasks of some partitions, and returns when that is durable or has failed. These
// runs are cut off without their fault. Earlier starts stay in the journal.
func (j *journal) abandon(which func(partition int) bool) {
	if j.count.Load() == 0 {
		return
	}
	var written sync.WaitGroup
	j.mu.Lock()
	for id, w := range j.rows {
		if !which(j.partition(id)) || w.row.Instance != j.cfg.Instance {
			continue
		}
		written.Add(1)
		w.wait = &written
		if w.row.Cuts > 0 { // restore the row from before this start
			w.row.Cuts--
			w.err = new(error)
		}
		j.remove(w)
	}
	j.count.Store(int64(len(j.rows)))
	j.mu.Unlock()
	written.Wait()
}

// remove queues the removal of a row. The caller holds mu.
func (j *journal) remove(w journalWrite) {
	delete(j.rows, w.row.JobID)
	j.dbs[j.cfg.Layout.PartitionDatabase(j.partition(w.row.JobID))].writes.Add(w)
}

// flush makes writes durable. If several are for one task, the last one counts.
func (j *journal) flush(database int, batch []journalWrite) {
	db := &j.dbs[database]
	var started, ended []store.Running
	last := make(map[uint64]int, len(batch))
	for i := range batch {
		last[batch[i].row.JobID] = i
	}
	for _, r := range db.unended {
		if _, again := last[r.JobID]; !again {
			ended = append(ended, r)
		}
	}
	for i := range batch {
		switch w := &batch[i]; {
		case last[w.row.JobID] != i || w.row.JobID == 0:
		case w.err != nil:
			started = append(started, w.row)
		default:
			ended = append(ended, w.row)
		}
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(j.work), journalTimeout)
	err := j.cfg.Store.Journal(call, database, started, ended)
	cancel()
	db.unended = nil
	if err != nil {
		db.unended = ended
		j.recordFailure(database, err)
	}
	for i := range batch {
		w := &batch[i]
		if w.wait != nil {
			if w.err != nil {
				*w.err = err
			}
			w.wait.Done()
		}
		if w.onDone != nil {
			w.onDone()
		}
	}
}

// recordFailure marks the journal of a database as failed, and checks it until it works again.
func (j *journal) recordFailure(database int, err error) {
	ctx := j.work
	db := &j.dbs[database]
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || ctx.Err() != nil || db.failing.Swap(&err) != nil {
		return
	}
	j.repairs.Go(func() {
		j.cfg.Logger.Warn("start journal unavailable; suspect tasks are not started", "database", database, "error", err) // here no lock is held
		pauses := wait.Backoff{First: 100 * time.Millisecond, Most: 3 * time.Second}
		for pauses.Wait(ctx) == nil {
			call, cancel := context.WithTimeout(ctx, journalTimeout)
			err := j.cfg.Store.Journal(call, database, nil, []store.Running{{Instance: j.cfg.Instance}}) // removes a row that does not exist
			cancel()
			if err == nil {
				db.failing.Store(nil)
				db.writes.Add(journalWrite{}) // triggers the removals that failed
				j.cfg.Logger.Info("the journal of what runs works again", "database", database)
				j.cfg.Dispatch.Tick() // tasks were left in the store
				return
			}
		}
	})
}
