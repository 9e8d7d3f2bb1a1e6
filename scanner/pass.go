package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// roomTimeout is how long a pass waits for room in the full queue of a business type. If the workers make
// progress, there is room within that time. If they stand still, the pass goes on with the other types.
const roomTimeout = 100 * time.Millisecond

// overdueAfter is how long after its time a pending row counts as overdue.
const overdueAfter = time.Second

// parallelRefills is the number of partitions whose reading is resumed at the same time.
const parallelRefills = 2

// scan is one pass over a database, or a part of it.
type scan struct {
	*Scanner
	db           *database
	types        *task.Types
	until        time.Time
	fullTypes    []uint64     // business types whose full queue made no room; they are read later
	unknownTypes []uint64     // business types that are not configured
	late         map[int]bool // partitions with overdue rows

	roomWaits map[uint64]time.Duration // time spent waiting for room, by business type
	readAll   bool                     // read every partition from the start
	waited    time.Duration            // the sum of roomWaits
}

// costlyPartition takes long to read because of rows that are skipped: rows of business types that are not
// configured, that the Timer serves, or whose queue is full. Their due rows lie before all others in the index.
type costlyPartition struct {
	readAt     time.Time     // when it was last read from the start
	start      time.Time     // the same, monotonic
	took       time.Duration // the time of that read
	hadOverdue bool          // that read found overdue rows
}

const (
	// costlyShare bounds the time for reading costly partitions from the start: at most one part in
	// costlyShare.
	costlyShare = 10
	// costlyOverlap is how far before the last whole read the partial reads begin.
	costlyOverlap = time.Minute
)

// errNotReadable ends a pass over a database that is known to be down.
var errNotReadable = errors.New("the database is out of reach")

// pass reads all owned partitions of a database once, and returns how many it read. After a pass that gave up,
// the next one begins where that one ended.
func (s *Scanner) pass(ctx context.Context, db *database) (read int, err error) {
	run := &scan{Scanner: s, db: db, types: s.cfg.Catalog.Load(), until: s.until(), roomWaits: map[uint64]time.Duration{},
		late: map[int]bool{}, readAll: db.readAll.Swap(false)}
	if db.types != run.types {
		db.types, db.unknownTypes = run.types, nil // log types that are still unknown once more
	}
	first, end := s.cfg.Layout.DatabasePartitions(db.index)
	var failed []error
	for range end - first {
		p := first + db.nextPartition
		owned := s.cfg.Ownership.Owns(p)
		if owned && !s.cfg.Store.Readable(db.index) {
			failed = append(failed, errNotReadable)
			break
		}
		db.nextPartition = (db.nextPartition + 1) % (end - first)
		if !owned {
			continue
		}
		err := run.partition(ctx, p)
		if ctx.Err() != nil {
			return read, ctx.Err()
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("partition %d: %w", p, err))
			continue
		}
		read++
	}
	if len(failed) > 0 {
		if run.readAll {
			db.readAll.Store(true)
		}
		return read, errors.Join(failed...)
	}
	run.countOverdue(ctx)
	run.countRetrying(ctx)
	return read, nil
}

// waitRoom waits for room in the full queue of a business type, and reports whether there is room. All waits of
// a pass for one type take at most a tenth of the lookahead.
func (r *scan) waitRoom(ctx context.Context, bizType uint64) bool {
	if r.roomWaits[bizType] > r.cfg.Lookahead/10 {
		return false
	}
	start := time.Now() // monotonic: the clock may be set meanwhile
	room := r.cfg.Queue.WaitRoom(ctx, bizType, roomTimeout)
	took := time.Since(start)
	r.roomWaits[bizType] += took
	r.waited += took
	return room
}

// partition reads one partition to its end, page by page. The tasks of a page run while the next one is read.
// If the last pass found no due task in the partition, it first asks when the next one is due. A costly
// partition is only now and then read from the start. The passes between read what has become due since.
func (r *scan) partition(ctx context.Context, p int) error {
	began, start, waitedBefore := r.cfg.Now(), time.Now(), r.waited
	var from task.Key
	c, known := r.db.costly[p]
	if partly := known && !r.readAll && time.Since(c.start) < costlyShare*c.took; partly {
		from.ActionTime = c.readAt.Add(-costlyOverlap)
		if c.hadOverdue {
			r.late[p] = true
		}
	} else {
		r.cfg.Queue.ClearResume(p, r.fullTypes)
	}
	if err := r.readDue(ctx, p, from); err != nil {
		return err
	}
	if from.ActionTime.IsZero() {
		delete(r.db.costly, p)
		if took := time.Since(start) - (r.waited - waitedBefore); took >= r.cfg.Costly {
			r.db.costly[p] = costlyPartition{readAt: began, start: start, took: took, hadOverdue: r.late[p]}
		}
	}
	return nil
}

// readDue reads the due tasks of a partition from a key on.
func (r *scan) readDue(ctx context.Context, p int, from task.Key) error {
	timed, paused, scanned := r.splitTypes(p)
	if r.db.empty[p] || len(timed)+len(paused) > 0 {
		next, none, err := r.nextDue(ctx, p)
		if err == nil && len(timed) > 0 {
			r.cfg.Timer.NextDue(p, next, none)
		}
		if err != nil || none || next.After(r.until) {
			return err
		}
		if len(timed)+len(paused) > 0 && next.Before(r.cfg.Now().Add(-overdueAfter)) {
			r.late[p] = true // perhaps by tasks that are not read
		}
		if !scanned {
			return nil
		}
	}
	return r.offerDue(ctx, p, slices.Concat(timed, paused), from)
}

// offerDue puts the due tasks of a partition into the queue, except those of some business types.
func (r *scan) offerDue(ctx context.Context, p int, except []uint64, from task.Key) error {
	for _, b := range r.fullTypes {
		r.cfg.Queue.SetResume(b, p, task.Key{})
	}
	pages := r.cfg.Store.DuePages(p, store.Due{
		Until:   r.until,
		From:    from,
		Except:  slices.Concat(r.fullTypes, r.unknownTypes, except),
		PerPage: r.cfg.Batch,
	})
	late := len(r.fullTypes) > 0
	known := func(t *task.Task) bool {
		if _, known := r.types.ByID(t.BizType); !known {
			r.skipUnknown(pages, t)
			return false
		}
		late = late || t.ActionTime.Before(r.cfg.Now().Add(-overdueAfter))
		return true
	}
	for first := true; ; first = false {
		full, end, err := r.readPage(ctx, p, pages, known)
		if err != nil {
			return err
		}
		r.db.empty[p] = first && end
		if r.dropIfLost(p) {
			return nil
		}
		if end {
			break
		}
		for _, b := range full {
			if !r.waitRoom(ctx, b) && !slices.Contains(r.fullTypes, b) {
				r.fullTypes = append(r.fullTypes, b)
				pages.Except(b)
				r.setResume(pages, b, p)
			}
		}
	}
	if late {
		r.late[p] = true
	}
	return r.offerFresh(ctx, p, except, from)
}

// offerFresh puts the due tasks that are not late into the queue, of the business types with catch_up whose backlog is
// full.
func (r *scan) offerFresh(ctx context.Context, p int, except []uint64, from task.Key) error {
	due := store.Due{Until: r.until, From: task.Key{ActionTime: r.cfg.Now().Add(-limits.LateAfter)}, PerPage: r.cfg.Batch}
	if due.From.Before(from) {
		due.From = from
	}
	for _, id := range r.fullTypes {
		if b, _ := r.types.ByID(id); b.CatchUp > 0 && !slices.Contains(except, id) {
			due.Only = append(due.Only, id)
		}
	}
	if len(due.Only) == 0 {
		return nil
	}
	pages := r.cfg.Store.DuePages(p, due)
	for {
		full, end, err := r.readPage(ctx, p, pages, anyTask)
		if err != nil || end || len(full) == len(due.Only) {
			return err
		}
	}
}

// skipUnknown skips the further rows of a business type that is not configured.
func (r *scan) skipUnknown(pages *store.DuePages, t *task.Task) {
	if slices.Contains(r.unknownTypes, t.BizType) {
		return
	}
	r.unknownTypes = append(r.unknownTypes, t.BizType)
	pages.Except(t.BizType)
	if slices.Contains(r.db.unknownTypes, t.BizType) {
		return // already logged
	}
	r.logUnknown(t.BizType)
}

func (r *scan) logUnknown(bizType uint64) {
	r.cfg.Logger.Warn("due tasks of a biz_type that is not configured; they stay pending", "biz_type", bizType, "database", r.db.index)
}

// splitTypes returns the business types that the Timer serves in a partition, the paused ones, and whether the
// scanner serves any.
func (r *scan) splitTypes(p int) (timed, paused []uint64, scanned bool) {
	for _, b := range r.types.All() {
		switch {
		case r.cfg.Queue.IsPaused(b.ID):
			paused = append(paused, b.ID)
		case r.serves(b.ID, p):
			scanned = true
		default:
			timed = append(timed, b.ID)
		}
	}
	return timed, paused, scanned
}

// slowPass is the length of a pass from which its database counts as slow.
const slowPass = 2 * time.Second

// acquire takes part in the limit of parallel statements. A slow or failing database is read outside of this limit, so that it delays no
// other.
func (s *Scanner) acquire(ctx context.Context, database int) (done func(), err error) {
	if !s.cfg.Store.Readable(database) || time.Duration(s.dbs[database].lastDuration.Load()) >= slowPass {
		return func() {}, nil
	}
	return func() { s.statements.Release(1) }, s.statements.Acquire(ctx, 1)
}

// nextDue returns when the next task of a partition is due.
func (r *scan) nextDue(ctx context.Context, p int) (at time.Time, none bool, err error) {
	done, err := r.acquire(ctx, r.db.index)
	if err != nil {
		return time.Time{}, false, err
	}
	defer done()
	return r.cfg.Store.NextDue(ctx, p)
}

// refill resumes reading partitions whose tasks did not fit, until ctx ends.
func (s *Scanner) refill(ctx context.Context) error {
	for {
		r, err := s.cfg.Queue.NextRefill(ctx)
		if err != nil {
			return err
		}
		if !s.cfg.Ownership.Owns(r.Partition) || !s.cfg.Store.Readable(s.cfg.Layout.PartitionDatabase(r.Partition)) {
			continue // a tick finds the rows when the database is back
		}
		if err := s.resume(ctx, r); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("partition read interrupted; the next tick resumes it", "partition", r.Partition, "error", err)
		}
	}
}

func (s *Scanner) resume(ctx context.Context, r queue.Refill) error {
	pages := s.cfg.Store.DuePages(r.Partition, store.Due{
		Until: s.until(), From: r.From, Only: []uint64{r.BizType}, PerPage: s.cfg.Batch,
	})
	for {
		full, end, err := s.readPage(ctx, r.Partition, pages, anyTask)
		if err != nil || end || s.dropIfLost(r.Partition) {
			return err
		}
		if len(full) > 0 {
			s.setResume(pages, r.BizType, r.Partition)
			return nil
		}
	}
}

// readPage reads a page, and offers the tasks that keep returns true for. It returns the business types whose queue was full, and whether
// the partition was read to its end.
func (s *Scanner) readPage(ctx context.Context, partition int, pages *store.DuePages,
	keep func(*task.Task) bool) (full []uint64, end bool, err error) {
	read := s.cfg.Queue.BeginRead(partition)
	defer read.End()
	done, err := s.acquire(ctx, s.cfg.Layout.PartitionDatabase(partition))
	if err != nil {
		return nil, true, err
	}
	page, err := pages.Next(ctx)
	done()
	if err != nil || len(page) == 0 {
		return nil, true, err
	}
	items := make([]queue.Item, 0, len(page))
	for i := range page {
		if keep(&page[i]) {
			items = append(items, queue.Item{Task: page[i], Partition: partition})
		}
	}
	return s.cfg.Queue.Offer(read, items...), false, nil
}

// anyTask keeps each task of a page.
func anyTask(*task.Task) bool { return true }

// dropIfLost reports whether a partition was lost while it was read, and clears its resume points. The queue
// already rejects its rows.
func (s *Scanner) dropIfLost(p int) bool {
	if s.cfg.Ownership.Owns(p) {
		return false
	}
	s.dropLostPartitions()
	return true
}

// setResume records where to read on in a partition after the pages read so far. Tasks that did not fit may be
// later than these rows.
func (s *Scanner) setResume(pages *store.DuePages, bizType uint64, p int) {
	if from, more := pages.Rest(); more {
		s.cfg.Queue.SetResume(bizType, p, from)
	}
}
