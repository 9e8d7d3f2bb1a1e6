package redistimer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// A read arms what the slots of a partition lack of the rows that are due within a window. Each partition is read once in a
// cycle, and at once after a surprise. No record says how many of the rows Redis has. So a read does the same after a flushed
// server, a stale replica, a new owner, a new business type and an INSERT by SQL.
//
// Every row that is due later than leastHorizon after its commit comes into a window in time, even if no submit armed it: see
// the proof at leastHorizon. A submit arms rows that are due earlier.
const (
	maxCycle    = time.Minute            // the longest cycle
	readStep    = 250 * time.Millisecond // the shortest time between two reads of a database
	nearAhead   = 3 * time.Second        // after a surprise, tasks that are due within it are armed first
	maxBacklog  = 2000                   // tasks of the backlog that a read arms in a slot
	listedTypes = 100                    // of more business types, the rows of all types are read: a long list costs more than they
	readRetry   = time.Second            // after a failure; it doubles up to maxRetry
	maxRetry    = 4 * time.Second
	clockSlack  = 5 * time.Second // by which clocks may differ, and a tick may be late
	costlyShare = 10              // one part in this of the time is for reads from the first row on that skip many rows of other types
)

// urgency is which rows of a partition are to be read before its turn.
type urgency uint8

const (
	inTurn      urgency = iota // none
	headsOnly                  // claims did not find the heads of slots: the rows that are due at their times
	wholeWindow                // all that are due within the window
	nearFirst                  // Redis may lack any task: the rows that are due within nearAhead, then the whole window
)

// partition is what the slots of a partition have in common, and the state of its reads. The Timer's lock guards it.
type partition struct {
	term     uint64                 // of this node's ownership; 0: it is not this node's
	busy     int                    // number of claims in flight, and of rounds that poll a slot
	lastRead lastRead               // of the whole window; zero: none in this term
	unread   map[*bizTimer]struct{} // business types whose rows it did not read

	nextDue    time.Time // see NextDue
	dueAsOf    time.Time // when NextDue was called, by time.Now
	last       time.Time // begin of the last read of the whole window, by time.Now; zero: none
	urgency    urgency
	after      time.Time // the next read at once is not made before, by time.Now
	failures   int       // in a row
	from, till time.Time // when the heads were due that claims did not find
	wholeAt    time.Time // when the partition was last read from the first row on, by time.Now
	wholeTook  time.Duration
}

// lastRead is a read of a whole window. At its end the slots had each row that was due by until and unchanged since at.
type lastRead struct{ at, until time.Time }

// hasRead reports whether the last read of the whole window has read the rows of a business type.
func (p *partition) hasRead(bt *bizTimer) bool {
	_, unread := p.unread[bt]
	return !p.lastRead.until.IsZero() && !unread
}

// forgetRead makes the rows of business types count as not read.
func (p *partition) forgetRead(types ...*bizTimer) {
	if p.unread == nil {
		p.unread = make(map[*bizTimer]struct{})
	}
	for _, bt := range types {
		p.unread[bt] = struct{}{}
	}
}

// reader reads which rows are due soon, and arms what the slots lack of them.
type reader struct {
	*node
	readNeeded   []wait.Signal  // by database: a partition must be read at once
	gaps         []atomic.Int64 // by database: the longest time between two reads of a partition lately, in nanoseconds
	unreadLogged time.Time      // when a failed read was last logged
	lossLogged   time.Time      // the same of a slot that has lost tasks
}

func newReader(n *node) *reader {
	rd := &reader{node: n, gaps: make([]atomic.Int64, n.cfg.Layout.Databases)}
	for range n.cfg.Layout.Databases {
		rd.readNeeded = append(rd.readNeeded, wait.NewSignal())
	}
	return rd
}

// Differences is the number of tasks in which slots and rows differed, as of the last read.
type Differences struct {
	Missing int // pending tasks that their slot lacked although the read before had left them there
	Ghost   int // claimed tasks that were not pending for longer than a tick
}

// Differences returns what the last reads of this node's slots of a business type have found.
func (t *Timer) Differences(bizType uint64) (sum Differences) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bt := t.bizTimers[bizType]; bt != nil {
		for _, s := range bt.slots {
			sum.Missing += s.differs.Missing
			sum.Ghost += s.differs.Ghost
		}
	}
	return sum
}

// NextDue implements scanner.Timer. A partition in which nothing is due soon is not read in turn.
func (t *Timer) NextDue(partition int, at time.Time, none bool) {
	if none {
		at = forever
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition].nextDue, t.partitions[partition].dueAsOf = at, time.Now()
}

// Reread reads all partitions at once, because Redis may lack tasks: a node died before it armed what it had stored, wake-ups
// were lost, or a business type was resumed.
func (t *Timer) Reread() { t.reader.reread() }

func (rd *reader) reread() {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.requestAll()
}

// requestAll requests that all partitions are read at once. The lock is held.
func (rd *reader) requestAll() {
	for p := range rd.partitions {
		rd.request(p, nearFirst)
	}
}

// request requests that a partition is read before its turn. The lock is held.
func (rd *reader) request(p int, why urgency) {
	r := &rd.partitions[p]
	r.urgency = max(r.urgency, why)
	if why == nearFirst && r.failures == 0 {
		r.after = time.Time{}
	}
	rd.readNeeded[rd.cfg.Layout.PartitionDatabase(p)].Set()
}

// cycle is the time in which each partition is read once.
func (rd *reader) cycle() time.Duration { return min(rd.cfg.Tick*4/5, maxCycle) }

// window is how far a read looks ahead. gap is the time between two reads of a partition.
func window(gap time.Duration) time.Duration { return gap*3/2 + time.Second }

// leastHorizon is the least time ahead for which submits must arm their tasks.
//
// A row that is committed at v and due at d is known to the tick that begins by v+Tick. From then on its partition is read at
// least once in a gap; if no tick comes, because passes take long or the schedule has a longer pause, from v+Tick+clockSlack on.
// A read at t arms it if t ≤ d-ℓ and d ≤ t+window; ℓ, the time until it is in Redis, is less than a second. As window ≥ gap+ℓ,
// there is such a read if d-v ≥ Tick+gap+ℓ. The rest is clockSlack.
func (rd *reader) leastHorizon() time.Duration {
	gap := rd.cycle()
	for i := range rd.gaps {
		gap = max(gap, time.Duration(rd.gaps[i].Load()))
	}
	return min(rd.cfg.Tick, maxCycle) + gap + time.Second + clockSlack
}

// readAll reads the partitions of a database until ctx ends. The reads in turn are spread over the cycle, so that they delay
// no claim.
func (rd *reader) readAll(ctx context.Context, database int) error {
	select {
	case <-rd.hasTypes:
	case <-ctx.Done():
		return ctx.Err()
	}
	first, end := rd.cfg.Layout.DatabasePartitions(database)
	n, cycle := end-first, rd.cycle()
	step := min(n, int(int64(n)*int64(readStep)/int64(cycle))+1) // partitions that are read one right after the other
	longest, before := time.Duration(0), time.Duration(0)        // gaps of this cycle and the last
	next := time.Now()
	for i := 0; ; {
		p, why, pause := rd.urgentRead(database)
		if why == inTurn {
			if wait := time.Until(next); wait > 0 {
				if rd.awaitRead(ctx, database, min(wait, pause)); ctx.Err() != nil {
					return ctx.Err()
				}
				continue
			}
			p = first + i
			if i = (i + 1) % n; i == 0 {
				longest, before = 0, longest
			}
			if i%step == 0 {
				next = next.Add(cycle * time.Duration(step) / time.Duration(n))
				if now := time.Now(); next.Before(now) {
					next = now
				}
			}
		}
		longest = max(longest, rd.read(ctx, p, why))
		rd.gaps[database].Store(int64(max(longest, before)))
	}
}

// awaitRead waits until a partition of a database is to be read at once, and no longer than a pause.
func (rd *reader) awaitRead(ctx context.Context, database int, pause time.Duration) {
	pause, roused := rd.pace.Slowed(pause)
	if await(ctx, pause, rd.readNeeded[database], roused) {
		rd.reread()
	}
}

// urgentRead chooses the partition of a database that is to be read at once. If there is none now, it returns inTurn, and
// how long there will be none.
func (rd *reader) urgentRead(database int) (partition int, why urgency, pause time.Duration) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	pause = maxCycle
	now := time.Now()
	for p, end := rd.cfg.Layout.DatabasePartitions(database); p < end; p++ {
		r := &rd.partitions[p]
		switch wait := r.after.Sub(now); {
		case r.urgency == inTurn:
		case wait > 0:
			pause = min(pause, wait)
		case r.urgency > why:
			partition, why = p, r.urgency
		}
	}
	return partition, why, pause
}

// reading is a read of a partition.
type reading struct {
	partition   int
	why         urgency
	began       time.Time
	from, until time.Time // what is due in between is read; from zero: also what is overdue, however long
	types       map[uint64]*bizTimer
	idle        []uint64       // business types whose slots have nothing that is due
	busy        []uint64       // the others
	full        []uint64       // have got as much of their backlog as they may
	backlog     map[uint64]int // how much they have got
	missing     map[*bizTimer]int
	added       int
	failed      error // of slots that could not be armed; their types are not in types any more
}

// read reads a partition, if anything can be due there. It returns the time since the last read, or since the first failure.
func (rd *reader) read(ctx context.Context, p int, why urgency) (gap time.Duration) {
	start := time.Now()
	r, gap := rd.beginReading(p, why, start)
	if r == nil {
		return gap
	}
	err := errNotRead
	if rd.cfg.Store.Readable(rd.cfg.Layout.PartitionDatabase(p)) {
		err = rd.readRows(ctx, r)
	}
	if ctx.Err() == nil {
		rd.endReading(r, start, err)
	}
	return gap
}

// beginReading chooses the rows to read. It returns nil if nothing is to be read.
func (rd *reader) beginReading(p int, why urgency, start time.Time) (_ *reading, gap time.Duration) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	now, s := rd.cfg.Now(), &rd.partitions[p]
	cycle := rd.cycle()
	gap = cycle
	if !s.last.IsZero() {
		gap = max(gap, min(start.Sub(s.last), 4*cycle)) // of a slow database
	}
	if why == inTurn && s.urgency != inTurn {
		why = wholeWindow // nothing may be left out
	}
	r := &reading{partition: p, why: why, began: now, until: now.Add(window(gap)),
		types: make(map[uint64]*bizTimer), backlog: make(map[uint64]int), missing: make(map[*bizTimer]int)}
	switch why {
	case headsOnly:
		s.urgency, r.from, r.until = inTurn, s.from.Add(-time.Millisecond), s.till
		s.from, s.till = time.Time{}, time.Time{}
	case nearFirst:
		s.urgency, r.until = wholeWindow, now.Add(nearAhead)
	default:
		s.urgency, s.last = inTurn, start
		s.from, s.till = time.Time{}, time.Time{}
		if s.nextDue.After(r.until) && why == inTurn && rd.cfg.Tick <= maxCycle && start.Sub(s.dueAsOf) <= rd.cfg.Tick+clockSlack {
			return nil, gap
		}
		first, end := rd.cfg.Layout.DatabasePartitions(rd.cfg.Layout.PartitionDatabase(p))
		if start.Sub(s.wholeAt) < time.Duration(costlyShare*(end-first))*s.wholeTook && why == inTurn {
			r.from = now.Add(-window(gap) - rd.cfg.SweepAfter)
		}
	}
	for id, bt := range rd.bizTimers {
		if !rd.health.isReadable(bt, p) || rd.cfg.Queue.IsPaused(id) {
			continue
		}
		r.types[id] = bt
		if one := bt.slots[p]; one != nil && !one.head.IsZero() && !one.head.After(now) {
			r.busy = append(r.busy, id)
		} else {
			r.idle = append(r.idle, id)
		}
	}
	slices.Sort(r.idle) // so that the statement is mostly the same
	slices.Sort(r.busy)
	if len(r.types) == 0 {
		return nil, gap
	}
	return r, gap
}

// readRows reads the rows and arms them. Of a slot that has due tasks the backlog is not read again.
func (rd *reader) readRows(ctx context.Context, r *reading) error {
	open := rd.cfg.Queue.BeginRead(r.partition)
	defer open.End()
	late := r.began.Add(-rd.cfg.SweepAfter)
	if r.why == headsOnly {
		late = r.from
	}
	if err := rd.readSpan(ctx, r, open, r.idle, r.from); err != nil {
		return err
	}
	err := rd.readSpan(ctx, r, open, slices.Concat(r.busy, r.full), later(late, r.from))
	return cmp.Or(err, r.failed)
}

// readSpan reads the rows of business types that are due from a time on.
func (rd *reader) readSpan(ctx context.Context, r *reading, open *queue.Read, types []uint64, from time.Time) error {
	if len(types) == 0 {
		return nil
	}
	q := store.Due{Narrow: true, Only: types, Until: r.until, PerPage: 1000, From: task.Key{ActionTime: from}}
	if len(types) > listedTypes && !from.IsZero() {
		q.Only = nil
	}
	pages := rd.cfg.Store.DuePages(r.partition, q)
	for {
		page, err := pages.Next(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		full := len(r.full)
		rd.armRows(ctx, r, rd.chooseRows(r, open.Unheld(page)))
		for _, id := range r.full[full:] {
			pages.Except(id)
		}
	}
}

// rowsOf are rows of a business type. reason is why Redis may lack them; "": it need not be counted.
type rowsOf struct {
	bizTimer *bizTimer
	reason   string
}

// chooseRows groups the rows that are to be armed.
func (rd *reader) chooseRows(r *reading, rows []task.Task) map[rowsOf][]slots.Member {
	late, arms := r.began.Add(-rd.cfg.SweepAfter), make(map[rowsOf][]slots.Member)
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for i := range rows {
		row := &rows[i]
		bt := r.types[row.BizType]
		if bt == nil || bt.slots[r.partition].holds(row.JobID) {
			continue
		}
		if row.ActionTime.Before(late) && r.why != headsOnly {
			if n := r.backlog[row.BizType]; n == maxBacklog {
				if !slices.Contains(r.full, row.BizType) {
					r.full = append(r.full, row.BizType)
				}
				continue
			}
			r.backlog[row.BizType]++
		}
		key := rowsOf{bt, rd.reasonOf(r, bt, row)}
		arms[key] = append(arms[key], memberOf(row))
	}
	return arms
}

// reasonOf returns why Redis may lack a row. What has just been written or become due may be on its way into the slot, or out
// of it.
func (rd *reader) reasonOf(r *reading, bt *bizTimer, row *task.Task) string {
	const justNow = time.Second
	isRecent := func(at time.Time) bool { return at.Sub(r.began).Abs() < justNow }
	p := &rd.partitions[r.partition]
	switch {
	case isRecent(row.Modified) || isRecent(row.ActionTime):
		return ""
	case !p.hasRead(bt) || rd.placement.serverAt(bt, r.partition).lost.After(p.lastRead.at):
		return ReasonLost
	case row.ActionTime.After(p.lastRead.until):
		return ReasonHorizon
	case row.Modified.Before(p.lastRead.at.Add(-justNow)):
		return ReasonLost
	}
	return ReasonSweep
}

// armRows arms rows that their slots lack. A slot that fails does not delay the others, whose rows may be on the next page.
func (rd *reader) armRows(ctx context.Context, r *reading, arms map[rowsOf][]slots.Member) {
	keys := make([]rowsOf, 0, len(arms))
	list := make([]slots.ArmRequest, 0, len(arms))
	for key, members := range arms {
		keys, list = append(keys, key), append(list, slots.ArmRequest{
			Slot: slots.Slot{Topic: key.bizTimer.topic, Partition: r.partition}, Members: members, KeepUntil: r.began.Add(time.Second),
		})
	}
	answers := rd.slots.Arm(ctx, list)
	now := rd.cfg.Now()
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for i, got := range answers {
		bt, reason := keys[i].bizTimer, keys[i].reason
		rd.health.recordWrite(rd.placement.serverAt(bt, r.partition), got.Err)
		if got.Err != nil {
			delete(r.types, bt.ID)
			if !rd.health.recordRefusedRows(bt, r.partition, r.began, got.Err) {
				r.failed = got.Err
			}
			continue
		}
		added := len(list[i].Members) - got.Known
		r.added += added
		if reason != "" && added > 0 {
			rd.cfg.Observer.Rearmed(bt.BizType.BizType, reason, added)
		}
		if reason == ReasonLost && rd.partitions[r.partition].hasRead(bt) && added > 0 {
			r.missing[bt] += added
		}
		if got.Claimed > 0 { // this node does not hold these claims
			rd.planner.countOrphans(rd.planner.slotOf(bt, r.partition), now)
		}
		if added == 0 && r.why == headsOnly {
			continue // they are in the slot, at times that the claim has seen: one that was given back waits a moment
		}
		for _, m := range list[i].Members { // if it has just been claimed, the next claim does not find it
			rd.planner.advanceHead(bt, r.partition, m.At)
		}
	}
}

// endReading records how a read ended.
func (rd *reader) endReading(r *reading, start time.Time, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	s := &rd.partitions[r.partition]
	if err != nil {
		s.after = time.Now().Add(min(readRetry<<min(s.failures, 8), maxRetry))
		s.failures++
		rd.request(r.partition, nearFirst)
		rd.logRarely(&rd.unreadLogged, "the rows of slots are not read yet", "partition", r.partition, "error", err)
		return
	}
	s.failures = 0
	for _, bt := range r.types {
		if one := bt.slots[r.partition]; one != nil {
			one.refusesRows = false // its next poll may end its failure
		}
	}
	switch r.why {
	case headsOnly:
		// A head that was cancelled is expected to be gone. A pending one is not.
		s.after = time.Now().Add(9 * time.Since(start))
		if r.added > 0 {
			rd.logRarely(&rd.lossLogged, "Redis lost a slot's tasks (evicted, or removed by hand); they are armed again from the store",
				"partition", r.partition)
			s.after = time.Time{}
			rd.request(r.partition, nearFirst)
		}
		return
	case nearFirst:
		return
	}
	if r.from.IsZero() {
		s.wholeAt, s.wholeTook = start, time.Since(start)
	}
	s.lastRead, s.unread = lastRead{r.began, r.until}, nil
	for id, bt := range rd.bizTimers {
		if r.types[id] != bt {
			s.forgetRead(bt)
			continue
		}
		backlogLeft := slices.Contains(r.full, id) || slices.Contains(r.busy, id)
		if s.term == 0 || bt.slots[r.partition] == nil && !backlogLeft && r.missing[bt] == 0 {
			continue
		}
		one := rd.planner.slotOf(bt, r.partition)
		one.differs, one.ghosts = Differences{Missing: r.missing[bt], Ghost: one.ghosts}, 0
		one.backlogLeft = backlogLeft
		rd.planner.update(one)
	}
}

var errNotRead = errors.New("the database could not be read")

// logEvery is the interval at which partitions with a fault are logged.
const logEvery = 10 * time.Second

// logRarely logs a warning, unless it was logged just before. The lock is held.
func (rd *reader) logRarely(last *time.Time, message string, args ...any) {
	if now := rd.cfg.Now(); now.Sub(*last).Abs() >= logEvery {
		*last = now
		rd.mu.Log(rd.cfg.Logger, slog.LevelWarn, message, args...)
	}
}
