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

// journal knows which tasks were started by processes that are gone, and writes
// down starts for the process after this one (toc_running).
//
// A process that is killed, or that a task ends, leaves starts without an end:
// cuts. The next owner of the partition must not start the same task for ever. It
// cannot know all of them: to write each start down first would double the work of
// every task. So nothing is written as long as processes end in order. Where one
// did not, what was due by then may have been started, and is written down before
// it starts; the next owner finds it and counts. Once none of that is pending any
// more, the partition is settled, and its next owner need not know.
type journal struct {
	cfg      Config
	known    []atomic.Pointer[history] // by partition
	dbs      []journalDB
	repairs  sync.WaitGroup
	work     context.Context    // of mends and looks
	stop     context.CancelFunc // ends it
	settlers sync.WaitGroup

	mu     sync.Mutex
	closed bool                    // no more mends
	rows   map[uint64]journalWrite // by job_id: what this process has in the journal, to be taken out
	count  atomic.Int64            // len(rows)
}

type journalDB struct {
	writes  *groupcommit.Group[journalWrite]
	mu      sync.Mutex            // one reads the journal, the others wait
	failing atomic.Pointer[error] // why it does not work; nil: it does
	unended []store.Running       // not taken out yet; the flush's
}

// past is what is known, in one term of a partition, of starts before it.
type history struct {
	term   uint64
	before time.Time // what was due by then may have been started; zero: nothing was
	read   time.Time // when the journal was
	clean  bool      // there is nothing to tell

	mu     sync.Mutex
	starts map[uint64]store.Running // by job_id: starts that had no end
}

// journalWrite is a start to be written down, or, without err, one that has ended.
type journalWrite struct {
	row    store.Running
	err    *error          // what became of it
	wait   *sync.WaitGroup // nil: nobody waits
	onDone func()          // called once that is durable, or has failed; may be nil
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

// wait writes what is left and ends. Nothing may be added at the same time.
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

// past tells what is known of starts before a term of a partition; nil: the
// journal cannot be read now, or the term is over.
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

// read reads the journal of a database, for all partitions that are in a new term.
// Rows of tasks that are over, or that came to an end and were tried again, say
// nothing any more and are taken out.
func (j *journal) read(ctx context.Context, database int) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	fresh := j.newTerms(database)
	all, err := j.cfg.Store.Journaled(ctx, database)
	if errors.Is(err, task.ErrLocked) {
		// Partitions that were taken in order have no starts without an end: they go on.
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

// newTerms lists the partitions of a database whose term is one of which nothing is known yet.
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

// withoutEnd tells which of these starts had no end: those whose task is as it was when it was started.
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
		unended[id] = err != nil // of what cannot be read now, the worst is supposed
	}
	for _, t := range found {
		unended[t.JobID] = t.Status == task.Pending && t.Attempts == starts[t.JobID].Attempts
	}
	return unended, nil
}

// learn makes known what was found out about new terms.
func (j *journal) publish(fresh map[int]*history) {
	for p, known := range fresh {
		known.clean = known.before.IsZero() && len(known.starts) == 0
		j.known[p].Store(known)
	}
}

// settleEvery is how often partitions that were taken uncleanly are looked at.
const settleEvery = 2 * time.Second

// settle looks after the partitions of a database until ctx ends.
func (j *journal) settle(ctx context.Context, database int) {
	first, end := j.cfg.Layout.DatabasePartitions(database)
	for wait.For(ctx, settleEvery) == nil {
		for p := first; p < end; p++ {
			if j.settlePartition(ctx, p) != nil {
				break // the next time
			}
		}
	}
}

// settlePartition finds out whether a partition that was taken uncleanly has nothing
// pending any more that was due by then.
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
	next, none, err := j.cfg.Store.NextDue(ctx, partition)
	if err == nil && (none || next.After(at)) {
		j.cfg.Ownership.Settled(partition, term)
		if known != nil && known.isEmpty() {
			j.known[partition].CompareAndSwap(known, &history{term: term, clean: true})
		}
	}
	return err
}

func (p *history) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.starts) == 0
}

// partition is the one of a task, -1 for an id that has none.
func (j *journal) partition(jobID uint64) int {
	shard, ok := j.cfg.Layout.ShardOf(jobID)
	if !ok {
		return -1
	}
	return j.cfg.Layout.Partition(shard)
}

// startOf is a task about to start, and how many starts before had no end.
type startOf struct {
	entry     *queue.Entry
	cuts      int
	onRemoved func() // called once it is taken out again; may be nil
	err       error  // it could not be written down
}

// errJournal is a start that was not written down.
var errJournal = errors.New("the journal of what runs cannot be used now")

// write writes starts down and returns when that is durable or has failed.
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

// ended takes a task out whose run has ended, and forgets its starts: should it run
// again they do not count. Nobody waits for it.
func (j *journal) recordEnd(jobID uint64) {
	if j.removeStart(jobID) {
		p := j.known[j.partition(jobID)].Load()
		p.mu.Lock()
		delete(p.starts, jobID)
		p.mu.Unlock()
	}
}

// notStarted takes a task out that was not started after all, and tells whether it
// was in the journal.
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

// abandon takes out what runs here of some partitions, and returns when that is durable
// or has failed: that they are cut off is not their fault. What was known of starts
// before this one stays.
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
		if w.row.Cuts > 0 { // it stands there as before this start
			w.row.Cuts--
			w.err = new(error)
		}
		j.remove(w)
	}
	j.count.Store(int64(len(j.rows)))
	j.mu.Unlock()
	written.Wait()
}

// takeOut lets a row go. mu is held.
func (j *journal) remove(w journalWrite) {
	delete(j.rows, w.row.JobID)
	j.dbs[j.cfg.Layout.PartitionDatabase(j.partition(w.row.JobID))].writes.Add(w)
}

// flush makes writes durable. Of several that concern a task the last one counts.
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

// fail notes that the journal of a database does not work, and looks until it does
// again.
func (j *journal) recordFailure(database int, err error) {
	ctx := j.work
	db := &j.dbs[database]
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || ctx.Err() != nil || db.failing.Swap(&err) != nil {
		return
	}
	j.cfg.Logger.Warn("the journal of what runs cannot be used; what must be written down first does not start", "database", database, "error", err)
	j.repairs.Go(func() {
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 3*time.Second) {
			if wait.For(ctx, pause) != nil {
				return
			}
			call, cancel := context.WithTimeout(ctx, journalTimeout)
			err := j.cfg.Store.Journal(call, database, nil, []store.Running{{Instance: j.cfg.Instance}}) // there is none
			cancel()
			if err == nil {
				break
			}
		}
		db.failing.Store(nil)
		db.writes.Add(journalWrite{}) // what could not be taken out
		j.cfg.Logger.Info("the journal of what runs works again", "database", database)
		j.cfg.Dispatch.Tick() // tasks were left in the store
	})
}
