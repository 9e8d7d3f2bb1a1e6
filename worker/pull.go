package worker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// The tasks of a pull type are not run here: consumers lease them. A lease is in the task's row: one compare-and-set
// moves action_time to the end of the lease and sets the column lease, and every settlement names both. So it outlives this
// process, the engines find a lease that is over like any task that is due, and who sets another action_time by hand takes the
// task away. (Google Cloud Tasks fences its leases by their time in the same way; the number makes two leases in one
// millisecond differ.)

// pulls is the state of the pull types of a Runner.
type pulls struct {
	mu      sync.Mutex
	lanes   map[uint64]*pool         // by biz_type
	lent    map[uint64]grantedLease  // by job_id: the leases that this process has given or read, until some time after their end
	count   map[uint64]int           // the same, and what is reserved for leases that are being recorded, by biz_type
	swept   time.Time                // when lent was last searched for leases that are over
	known   wait.Mutex               // held while leases of other processes are read
	terms   map[inTerm]bool          // the terms whose leases were read
	read    map[uint64]time.Time     // when that was last looked after, by biz_type
	freed   chan struct{}            // closed when a lease ends; nil: no caller waits
	bizType map[uint64]*task.BizType // of all lanes
	stopped bool
}

// grantedLease is a lease that this process has given, or read.
type grantedLease struct {
	task   task.Task // as it is in the store
	since  time.Time
	isGone func() bool // reports whether the node that has passed it on is gone, or has given it back; nil: this node gave it

	elsewhere bool      // another process has given it
	roomless  bool      // it takes no room: it is over, or nobody has it
	extends   time.Time // its end if an extension takes effect that is under way, or whose outcome is unknown
}

// inTerm is a business type in a partition's term.
type inTerm struct {
	bizType   uint64
	partition int
	term      uint64
}

// ErrStopped is returned by Lease when this node stops.
var ErrStopped = errors.New("this node stops")

// errLeaseOver is the error of a run whose consumer did not settle in time.
var errLeaseOver = errors.New("the lease is over: its consumer has not settled it in time")

// errNotGiven is the error of a lease whose giver has ended or is silent, or has given it back.
var errNotGiven = errors.New("the lease is over, and maybe no consumer had it")

// setLanes replaces the set of lanes.
func (p *pulls) setLanes(lanes map[uint64]*Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bizType = make(map[uint64]*task.BizType, len(lanes))
	for id, l := range lanes {
		p.bizType[id] = &l.BizType
		if !l.BizType.Pull {
			delete(p.lanes, id)
		}
	}
	for id := range p.lanes {
		if lanes[id] == nil {
			delete(p.lanes, id)
		}
	}
}

func (p *pulls) open(c *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lanes[c.bizType.ID] = c
}

func (p *pulls) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// lane returns the lane of a pull type. queue.ErrClosed: there is none now.
func (p *pulls) lane(bizType uint64) (*pool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c := p.lanes[bizType]; {
	case p.stopped:
		return nil, ErrStopped
	case c == nil:
		return nil, queue.ErrClosed
	default:
		return c, nil
	}
}

// room is the queue.Room of a pull type: max_in_flight.
type room struct {
	*pulls
	bizType *task.BizType
	now     func() time.Time
}

// Reserve implements queue.Room.
func (r room) Reserve(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked(r.now())
	n := max(0, min(most, r.bizType.MaxInFlight-r.count[r.bizType.ID]))
	r.count[r.bizType.ID] += n
	return n
}

// Free implements queue.Room.
func (r room) Free(n int) { r.free(r.bizType.ID, n) }

// sweepLocked frees the room of leases that are over, once a second: their ends may be recorded late, or by another node. They are
// remembered for as long as a database may be away, for an end that is recorded late is still no attempt if nobody had the lease.
func (p *pulls) sweepLocked(now time.Time) {
	if now.Sub(p.swept) <= time.Second {
		return
	}
	p.swept = now
	for id, l := range p.lent {
		switch over := now.Sub(l.task.ActionTime); {
		case over > rememberEnds:
			p.removeLocked(id)
		case over > 0 && now.After(l.extends) && !l.roomless:
			l.roomless = true
			p.lent[id] = l
			p.freeLocked(l.task.BizType, 1)
		}
	}
}

// rememberEnds is how long a lease is remembered after its end.
const rememberEnds = time.Hour

// awaitRoom returns a channel that is closed when a lease of the type may be given.
func (p *pulls) awaitRoom(b *task.BizType) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count[b.ID] < b.MaxInFlight {
		now := make(chan struct{})
		close(now)
		return now
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return p.freed
}

// free gives back n reserved leases.
func (p *pulls) free(bizType uint64, n int) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeLocked(bizType, n)
}

func (p *pulls) freeLocked(bizType uint64, n int) {
	if p.count[bizType] -= n; p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// add stores a lease. If it is a new one it takes the place of a reserved one.
func (p *pulls) add(l grantedLease, reserved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.lent[l.task.JobID]
	switch hasRoom := known && !before.roomless; {
	case hasRoom && (reserved || l.roomless):
		p.freeLocked(l.task.BizType, 1)
	case !hasRoom && !reserved && !l.roomless:
		p.count[l.task.BizType]++
	}
	p.lent[l.task.JobID] = l
}

func (p *pulls) remove(jobID uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(jobID)
}

func (p *pulls) removeLocked(jobID uint64) {
	l, known := p.lent[jobID]
	if !known {
		return
	}
	delete(p.lent, jobID)
	if !l.roomless {
		p.freeLocked(l.task.BizType, 1)
	}
}

// find returns the last lease of a task that this process has given or read, and reports whether it is the asked one.
func (p *pulls) find(jobID, lease uint64) (l grantedLease, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, known = p.lent[jobID]
	return l, known && task.IsSameLease(l.task.Lease, lease)
}

// returned notes that a lease is given back. If that cannot be recorded, its end is no attempt.
func (p *pulls) returned(jobID, lease uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, known := p.lent[jobID]; known && task.IsSameLease(l.task.Lease, lease) && l.task.IsLeased(now) {
		l.isGone = nobody
		p.lent[jobID] = l
	}
}

// extending notes that a lease is being extended: it takes its room until then, also while the extension is not stored yet.
func (p *pulls) extending(jobID, lease uint64, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, known := p.lent[jobID]; known && task.IsSameLease(l.task.Lease, lease) && until.After(l.extends) {
		l.extends = until
		p.lent[jobID] = l
	}
}

// nobody is the isGone of a lease that nobody has.
func nobody() bool { return true }

// InFlight is the number of leases of a business type that this process has given and that are not over.
func (r *Runner) InFlight(bizType uint64) int {
	r.pulls.mu.Lock()
	defer r.pulls.mu.Unlock()
	return r.pulls.count[bizType]
}

// Lease gives up to max due tasks of this node's partitions to a consumer. Each is the consumer's until it is settled,
// or for its own Timeout, or else for ttr (0: the TTR of the type). If none is due, Lease waits for one until wait ends;
// nil: not at all. The tasks are as they are in the store: ActionTime is the end of the lease, and Promised the time
// that was asked for. isGone reports whether the caller has ended before it could pass them on; nil: it has not.
//
// A caller whose ctx has ended gets none. Other errors are queue.ErrClosed (the type is not open here now), ErrStopped,
// and those of the store if no task could be leased.
func (r *Runner) Lease(ctx, wait context.Context, bizType uint64, max int, ttr time.Duration, isGone func() bool) ([]task.Task, error) {
	for {
		c, err := r.pulls.lane(bizType)
		if err != nil {
			return nil, err
		}
		c.readLeases(ctx)
		entries, err := c.takeForLease(ctx, wait, max)
		if err != nil || len(entries) == 0 {
			return nil, err
		}
		w, taken := &worker{pool: c}, len(entries)
		entries = w.admit(ctx, entries, r.cfg.Now())
		w.report(ctx)
		c.pulls.free(bizType, taken-len(entries))
		leased, err := c.lease(ctx, entries, ttr, isGone)
		if len(leased) > 0 || err != nil || wait == nil || wait.Err() != nil {
			return leased, err
		}
	}
}

// readLeases counts the leases that other processes have given in partitions which are this node's now. It looks for such
// partitions once a second, and again later for those whose database does not answer. It does not find a lease that ends later
// than pull.ttr from now: the whole future of the type would have to be read for it.
func (c *pool) readLeases(ctx context.Context) {
	if partition, err := c.readNewLeases(ctx); err != nil {
		c.cfg.Logger.Warn("leases not counted yet: max_in_flight may be exceeded", "biz_type", c.bizType.Name, "partition", partition, "error", err)
	}
}

func (c *pool) readNewLeases(ctx context.Context) (partition int, err error) {
	p, b, now := &c.pulls, &c.bizType, c.cfg.Now()
	p.known.Lock()
	defer p.known.Unlock()
	if now.Sub(p.read[b.ID]) < time.Second {
		return 0, nil
	}
	p.read[b.ID] = now
	for partition := range c.cfg.Layout.Partitions {
		at := inTerm{b.ID, partition, c.cfg.Ownership.Term(partition)}
		if at.term == 0 || p.terms[at] {
			continue
		}
		leased, err := c.cfg.Store.Leased(ctx, partition, b.ID, now, now.Add(b.TTR))
		if err != nil {
			return partition, err
		}
		p.terms[at] = true
		delete(p.terms, inTerm{b.ID, partition, at.term - 1})
		for _, t := range leased {
			if _, own := p.find(t.JobID, t.Lease); !own {
				p.add(grantedLease{task: t, since: t.Modified, elsewhere: true}, false)
			}
		}
	}
	return 0, nil
}

// AwaitDue waits until a task of a pull type is due on this node.
func (r *Runner) AwaitDue(ctx context.Context, bizType uint64) error {
	c, err := r.pulls.lane(bizType)
	if err != nil {
		return err
	}
	return c.tasks.AwaitDue(ctx)
}

// rereadPatience is how long a consumer that does not wait waits for rows that are read again: what lies due for a second has
// an old row. Another node waits longer than that for this answer; see intake's lateAnswer.
const rereadPatience = 80 * time.Millisecond

// takeForLease takes due tasks, as many as max_in_flight allows. It returns none when wait ends.
func (c *pool) takeForLease(ctx, wait context.Context, max int) (entries []*queue.Entry, err error) {
	for {
		if wait == nil {
			patience, cancel := context.WithTimeout(ctx, rereadPatience)
			entries, err = c.tasks.TakeDue(patience, max)
			cancel()
		} else {
			entries, err = c.tasks.Take(wait, max)
		}
		switch {
		case !errors.Is(err, queue.ErrFull):
			if wait != nil && wait.Err() != nil {
				err = nil
			}
			return entries, err
		case wait == nil:
			return nil, nil
		}
		select {
		case <-c.pulls.awaitRoom(&c.bizType):
		case <-time.After(time.Second): // for the sweep
		case <-wait.Done():
			return nil, nil
		}
	}
}

// lease records the leases of taken tasks, and returns the tasks whose leases were recorded before they were over.
func (c *pool) lease(ctx context.Context, entries []*queue.Entry, ttr time.Duration, isGone func() bool) ([]task.Task, error) {
	var leased []task.Task
	defer func() { c.pulls.free(c.bizType.ID, len(entries)-len(leased)) }()
	if ctx.Err() != nil { // a consumer that has gone takes none with it
		for _, e := range entries {
			c.cfg.Queue.PutBack(e)
		}
		return nil, ctx.Err()
	}
	now := c.cfg.Now()
	lease := task.NewLease(now)
	moves := make([]store.Move, len(entries))
	for i, e := range entries {
		until := task.CeilMilli(now.Add(cmp.Or(e.Task.Timeout, ttr, c.bizType.TTR)))
		number := task.LeaseUntil(lease, until)
		moves[i] = store.Move{JobID: e.ID(), From: task.Pending, To: task.Pending, Read: &e.Task, DueBy: &now, HasLease: &e.Task.Lease,
			Set: store.Set{ActionTime: &until, KeepDue: true, Lease: &number}}
	}
	var failed error
	for i, m := range c.cfg.Store.MoveAll(ctx, moves) {
		e := entries[i]
		if errors.Is(m.Err, task.ErrNotBegun) && ctx.Err() != nil {
			c.cfg.Queue.PutBack(e)
			continue
		}
		row := e.Task
		row.DueTime, row.ActionTime, row.Lease = row.Promised(), *moves[i].ActionTime, *moves[i].Lease
		given := grantedLease{task: row, since: now, isGone: isGone}
		if !m.Applied { // its row has changed since, or is locked
			if m.Err != nil { // or it is leased, and the answer was lost
				given.isGone, given.roomless = nobody, true
				c.pulls.add(given, false)
			}
			if failed = cmp.Or(failed, m.Err); !e.Claimed {
				defer c.cfg.Queue.SetResume(c.bizType.ID, e.Partition, task.KeyOf(&e.Task))
			}
			c.cfg.Queue.Return(e)
			continue
		}
		if c.grant(e, given) {
			leased = append(leased, row)
		}
	}
	if ctx.Err() != nil {
		c.giveBack(leased)
		return nil, ctx.Err()
	}
	if len(leased) > 0 {
		failed = nil
	}
	return leased, failed
}

// grant counts a lease that was recorded, and puts its task where it waits for the end. It reports whether the lease still runs.
func (c *pool) grant(e *queue.Entry, given grantedLease) bool {
	if late, first := e.Called(given.since); first {
		c.cfg.Observer.Started(c.bizType, late)
	}
	row := given.task
	inTime := row.IsLeased(c.cfg.Now())
	if !inTime {
		given.isGone, given.roomless = nobody, true
	}
	c.pulls.add(given, inTime)
	c.cfg.Dispatch.Moved(dispatch.Change{Row: &row, Entry: e})
	return inTime
}

// giveBack ends leases that no consumer has got.
func (c *pool) giveBack(leased []task.Task) {
	list := make([]Settlement, len(leased))
	for i := range leased {
		list[i] = Settlement{JobID: leased[i].JobID, Lease: leased[i].Lease, Do: Release}
	}
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	c.Settle(ctx, list)
}

// endLeases records the leases that are over as failed runs, and returns the other entries. Where the node that gave a lease, or
// passed it on, has ended meanwhile or is silent, maybe no consumer has got it: that is no attempt. Nor is a lease that ended before
// this node took its partition: nobody could settle it, or give it back, meanwhile.
func (w *worker) endLeases(ctx context.Context, entries []*queue.Entry) []*queue.Entry {
	now, others := w.cfg.Now(), entries[:0]
	for _, e := range entries {
		if !e.Task.HasLease() {
			others = append(others, e)
			continue
		}
		if !w.finisher.isWritable(e) {
			w.cfg.Queue.Return(e)
			continue
		}
		given, known := w.pulls.find(e.ID(), e.Task.Lease)
		if !known {
			given.since = e.Task.Modified
		}
		known = known && !given.elsewhere
		over := processor.RetryAfter(0, errLeaseOver)
		taken, fromDead := w.cfg.Ownership.Taken(e.Partition)
		if known && given.isGone != nil && given.isGone() ||
			!known && (fromDead && given.since.Before(taken) || e.Task.ActionTime.Before(taken)) {
			over = processor.NoAttempt(0, errNotGiven)
		}
		w.pulls.remove(e.ID())
		d := &finish{entry: e, bizType: &w.bizType, ran: now.Sub(given.since), late: max(0, given.since.Sub(e.Task.Promised()))}
		d.outcome, d.move, d.row = w.decideSettled(&w.bizType, e.Task, over, now)
		if d.outcome != Processed {
			w.failed = append(w.failed, failure{d.row, over})
		}
		w.finisher.add(d)
	}
	w.report(ctx)
	return others
}

// decideSettled is decide for a leased task: the lease, with its end, is a condition, too. It ends, and a task that ends gets
// its promised time back.
func (r *Runner) decideSettled(b *task.BizType, t task.Task, err error, now time.Time) (Outcome, store.Move, task.Task) {
	outcome, move, row := decide(b, t, err, now)
	move.Read, move.HasLease, move.Lease, row.Lease = &t, &t.Lease, new(uint64), 0
	if move.To != task.Pending {
		move.Restore, row.ActionTime = true, row.Promised()
	}
	if outcome == Dead {
		r.cfg.Logger.Warn("task is dead", "biz_type", b.Name, "job_id", row.JobID, "biz_id", row.GivenBizID(), "attempts", row.Attempts, "error", row.LastError)
	}
	if outcome != Processed && b.Name != "" {
		r.failures.record(b, func(int) *task.Task { return &t }, []error{err}, now)
	}
	return outcome, move, row
}
