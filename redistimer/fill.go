package redistimer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// fillJob fills slots of one partition: a guard alone, or others that lack the same span.
type fillJob struct {
	span
	guard   bool
	targets []target
	err     error // why it failed
}

// span is what the slots of a job lack.
type span struct {
	partition int
	server    *server
	reason    string
	from      time.Time // rows up to then are in the slot
	until     time.Time
	unarmed   bool // some tasks were never armed since the marker was written
	check     bool // only look for the missing head between from and until
}

type target struct {
	biz   *BizType // when the job was made
	slot  *slotState
	check bool // see span
}

const (
	// maxChecks limits how many missing heads are checked at once. Most of them were cancelled.
	maxChecks = 4
	// clockSlack is the difference between the clocks of nodes up to which no warning is logged.
	clockSlack = time.Second
)

// checkEvery is the interval at which the slots of a group without events are checked.
const checkEvery = 10 * time.Second

// findRepairs returns the fills to make now, and the slots that are not quiet any more and need a marker.
func (t *Timer) findRepairs() (list []fillJob, unmarked []*slotState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := survey{timer: t, now: t.cfg.Now(), together: make(map[span]int)}
	for _, srv := range t.servers {
		for _, g := range srv.groups {
			ago, step := v.now.Sub(g.repairsChecked), g.bizTimer.step()
			if g.needsRepair || ago >= checkEvery || step > 0 && ago >= step || ago < 0 {
				g.needsRepair, g.repairsChecked = false, v.now
				for _, s := range g.slots {
					v.check(g, s)
				}
			}
		}
	}
	return v.list, v.unmarked
}

// survey collects repairs. The Timer's lock is held.
type survey struct {
	timer    *Timer
	now      time.Time
	list     []fillJob
	together map[span]int // indexes in list
	unmarked []*slotState
	checks   int // number of missing heads in list
}

// check finds out what a slot lacks.
func (v *survey) check(g *group, s *slotState) {
	if !s.isOwned() || s.foreign {
		return
	}
	if !s.unreachableSince.IsZero() || !s.answered && (s.guard || !s.server.hasAnswered) {
		g.needsRepair = g.needsRepair || s.repairReason != "" // repaired once it is reachable
		return
	}
	until := g.bizTimer.coverUntil(v.now)
	v.timer.clampCovered(s, until)
	if s.repairReason == "" && !s.covered.IsZero() && until.Sub(s.covered) >= g.bizTimer.step() && until.After(s.covered) {
		s.repairReason = ReasonHorizon
	}
	switch {
	case s.repairReason != "":
		v.add(g, s, span{s.slot.Partition, s.server, s.repairReason, s.covered, until, s.unarmed, false})
		s.repairReason, s.unarmed, s.vanishedHead = "", false, time.Time{} // a request during the fill sets them again
	case !s.vanishedHead.IsZero() && v.checks == maxChecks:
		g.needsRepair = true // check it next time
	case !s.vanishedHead.IsZero():
		v.checks++
		v.add(g, s, span{s.slot.Partition, s.server, ReasonLost, s.vanishedHead.Add(-time.Millisecond), s.vanishedHead, false, true})
		s.vanishedHead = time.Time{}
	case s.marker == "" && s.answered && !s.covered.IsZero() && !s.isQuiet(v.now):
		v.unmarked = append(v.unmarked, s)
	}
}

// add adds a fill of the slot, together with other slots that lack the same span.
func (v *survey) add(g *group, s *slotState, lack span) {
	one := target{g.bizTimer.BizType, s, lack.check}
	if s.guard || lack.check {
		v.list = append(v.list, fillJob{span: lack, guard: s.guard, targets: []target{one}})
		return
	}
	i, ok := v.together[lack]
	if !ok {
		i = len(v.list)
		v.together[lack], v.list = i, append(v.list, fillJob{span: lack})
	}
	v.list[i].targets = append(v.list[i].targets, one)
}

// clampCovered limits covered to the horizon. It was beyond if the clock was ahead, here or on the previous
// owner, and the slot would not be filled until the clock gets there again. The lock is held.
func (t *Timer) clampCovered(s *slotState, until time.Time) {
	ahead := s.covered.Sub(until)
	if ahead <= 0 {
		return
	}
	s.covered = until
	if ahead > clockSlack && !t.clockWarned {
		t.clockWarned = true
		t.mu.Log(t.cfg.Logger, slog.LevelWarn, "the clock was ahead, here or on another node; check its time service", "ahead",
			ahead.Round(time.Millisecond))
	}
}

// fillFirst is the time ahead that is filled first, in all lost slots.
const fillFirst = 30 * time.Second

// unfilledEvery is the interval at which unfilled slots are logged.
const unfilledEvery = 10 * time.Second

// parallelFills is the number of jobs that run at the same time.
const parallelFills = 4

var errNotRead = errors.New("the database could not be read")

// fillAll runs jobs: first the tasks that are due within fillFirst in all slots, then the rest.
func (t *Timer) fillAll(ctx context.Context, list []fillJob) {
	near := t.cfg.Now().Add(fillFirst)
	t.fillEach(list, func(f *fillJob) error { return t.fillSoon(ctx, f, near) })
	t.fillEach(list, func(f *fillJob) error { return t.fillRest(ctx, f) })

	t.mu.Lock()
	defer t.mu.Unlock()
	unfilled, why := 0, error(nil)
	for i := range list {
		f := &list[i]
		if f.err == nil {
			continue
		}
		f.scheduleRetry()
		if !errors.Is(f.err, errLostAgain) {
			if unfilled += len(f.targets); why == nil || f.err != errNotRead {
				why = f.err
			}
		}
	}
	if now := t.cfg.Now(); unfilled > 0 && ctx.Err() == nil && now.Sub(t.unfilledLogged) >= unfilledEvery {
		t.unfilledLogged = now
		t.mu.Log(t.cfg.Logger, slog.LevelWarn, "slots not filled from the store yet", "slots", unfilled, "error", why)
	}
}

// fillEach runs a step of all jobs that have not failed, some at a time.
func (t *Timer) fillEach(list []fillJob, step func(*fillJob) error) {
	var g errgroup.Group
	g.SetLimit(parallelFills)
	for i := range list {
		f := &list[i]
		if f.err == nil {
			f.err = t.unreached(f)
		}
		if f.err != nil {
			continue
		}
		g.Go(func() error {
			// If the database hangs, each job would occupy a goroutine for the whole time-out.
			if f.err = errNotRead; t.cfg.Store.Readable(t.cfg.Layout.PartitionDatabase(f.partition)) {
				f.err = step(f)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// unreached is why Redis does not serve slots of a job; nil: it does.
func (t *Timer) unreached(f *fillJob) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range f.targets {
		if !one.slot.unreachableSince.IsZero() {
			return fmt.Errorf("redis %s", one.slot.server.cause())
		}
	}
	return nil
}

// scheduleRetry requests another fill of the slots whose job failed. The Timer's lock is held.
func (f *fillJob) scheduleRetry() {
	if errors.Is(f.err, errMarkerGone) {
		f.server.each((*slotState).markLost) // including slots that were filled meanwhile
	}
	for _, one := range f.targets {
		one.slot.unarmed, one.slot.group.needsRepair = one.slot.unarmed || f.unarmed, true
		switch {
		case errors.Is(f.err, errLostAgain):
			one.slot.markLost()
		case one.slot.repairReason == "":
			one.slot.repairReason = f.reason
		}
	}
}

// fillSoon fills a lost slot with the tasks that are due before near. If its marker can be trusted, because it
// is ours or its previous owner has just handed the slot over, the later tasks are there.
func (t *Timer) fillSoon(ctx context.Context, f *fillJob, near time.Time) error {
	if f.reason != ReasonLost || f.check {
		return nil
	}
	if !f.guard {
		return t.fillSoonTogether(ctx, f, near)
	}
	s := f.targets[0].slot
	text, err := t.slots.Marker(ctx, s.slot)
	if err != nil {
		return err
	}
	m, complete := t.trustsMarker(s, text)
	switch complete = complete && !f.unarmed; {
	case !complete:
		err = t.mark(ctx, s, "", t.newMarker(stateFilling, time.Time{}))
	case m.state == stateHanded:
		err = t.mark(ctx, s, text, t.newMarker(stateServing, m.covered))
	}
	if err != nil {
		return err
	}
	until := f.until
	if near.Before(until) {
		until = near
	}
	if _, err := t.fill(ctx, f, time.Time{}, until); err != nil {
		return err
	}
	f.from = until
	if complete && m.covered.After(until) {
		f.from = m.covered
	}
	if f.from.After(f.until) {
		f.from = f.until
	}
	return nil
}

// fillSoonTogether is fillSoon for slots that are not guards. A quiet slot without a marker has its later
// tasks, too.
func (t *Timer) fillSoonTogether(ctx context.Context, f *fillJob, near time.Time) error {
	list := make([]slots.Slot, len(f.targets))
	for i, one := range f.targets {
		list[i] = one.slot.slot
	}
	texts, err := t.slots.Markers(ctx, list)
	if err != nil {
		return err
	}
	until := f.until
	if near.Before(until) {
		until = near
	}
	if _, err := t.fill(ctx, f, time.Time{}, until); err != nil {
		return err
	}
	f.from = until
	var rest []target
	for i, one := range f.targets {
		s := one.slot
		m, complete := t.trustsMarker(s, texts[i])
		t.mu.Lock()
		if isQuiet := texts[i] == "" && s.marker == "" && !s.covered.IsZero(); isQuiet {
			m.covered, complete = s.covered, true
		} else if complete {
			s.pollNow = true // this node does not know its head
			s.group.planAgain()
		}
		switch complete = complete && !f.unarmed; {
		case !complete:
			rest = append(rest, one)
		case s.repairReason == "" && s.isOwned():
			s.covered = latest(m.covered, until)
		}
		t.mu.Unlock()
	}
	f.targets = rest
	t.replan.Set()
	return nil
}

var (
	errLostAgain  = errors.New("the slot was lost again while it was filled")
	errMarkerGone = fmt.Errorf("%w: its marker is gone", errLostAgain)
)

// fillRest fills slots up to the horizon, and marks a guard.
func (t *Timer) fillRest(ctx context.Context, f *fillJob) error {
	if len(f.targets) == 0 {
		return nil
	}
	if f.check {
		return t.checkHead(ctx, f)
	}
	if _, err := t.fill(ctx, f, f.from, f.until); err != nil {
		return err
	}
	s := f.targets[0].slot
	if f.guard {
		t.mu.Lock()
		again, expect := s.repairReason != "" || !s.isOwned() || s.marker == "", s.marker
		t.mu.Unlock()
		if again {
			return errLostAgain
		}
		if err := t.mark(ctx, s, expect, t.newMarker(stateServing, f.until)); errors.Is(err, errLostAgain) {
			return errMarkerGone
		} else if err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range f.targets {
		if one.slot.repairReason == "" && one.slot.isOwned() { // otherwise it is filled again
			one.slot.covered = f.until
		}
	}
	return nil
}

// markAll sets the markers of complete slots that are not quiet any more.
func (t *Timer) markAll(ctx context.Context, unmarked []*slotState) {
	list := make([]slots.MarkRequest, len(unmarked))
	t.mu.Lock()
	for i, s := range unmarked {
		list[i] = slots.MarkRequest{Slot: s.slot, Value: t.newMarker(stateServing, s.covered), TTL: t.markerTTL()}
	}
	t.mu.Unlock()
	answers := t.slots.Mark(ctx, list)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, a := range answers {
		s := unmarked[i]
		t.recordWrite(s.server, a.Err)
		if a.Set && s.repairReason == "" && s.isOwned() {
			s.marker, s.markerRenewed = list[i].Value, t.cfg.Now()
		}
	}
}

// checkHead looks for the missing head of a slot. If the task is still pending and was not in the slot, Redis
// has lost the queue, for example by eviction.
func (t *Timer) checkHead(ctx context.Context, f *fillJob) error {
	n, err := t.fill(ctx, f, f.from, f.until)
	if err != nil || n == 0 {
		return err
	}
	t.cfg.Logger.Warn("Redis lost a slot's tasks (evicted, or removed by hand); they are armed again from the store",
		"biz_type", f.targets[0].biz.Name, "partition", f.partition)
	return errLostAgain
}

// fill arms the rows of a job that are due after from and up to until. It returns how many were not in Redis.
func (t *Timer) fill(ctx context.Context, f *fillJob, from, until time.Time) (n int, err error) {
	if !from.Before(until) {
		return 0, nil
	}
	q := store.Due{Until: until, PerPage: 500}
	byType := make(map[uint64]target, len(f.targets))
	for _, one := range f.targets {
		byType[one.biz.ID] = one
		q.Only = append(q.Only, one.biz.ID)
	}
	if !from.IsZero() {
		q.From = task.Key{ActionTime: from.Add(time.Millisecond)}
	}
	pages := t.cfg.Store.DuePages(f.partition, q)
	for {
		rows, err := pages.Next(ctx)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		added, err := t.armRows(ctx, f.reason, rows, byType)
		if n += added; err != nil {
			return n, err
		}
	}
}

// armRows arms rows of a partition in the slots of their types, and returns how many were not there. It ignores
// rows of other types.
func (t *Timer) armRows(ctx context.Context, reason string, rows []task.Task, byType map[uint64]target) (n int, err error) {
	index := make(map[uint64]int, len(byType))
	var list []slots.ArmRequest
	var targets []target // by index of list
	for i := range rows {
		to, ok := byType[rows[i].BizType]
		if !ok {
			continue
		}
		k, ok := index[to.biz.ID]
		if !ok {
			k = len(list)
			index[to.biz.ID] = k
			list, targets = append(list, slots.ArmRequest{Slot: to.slot.slot, Keep: true}), append(targets, to)
		}
		list[k].Members = append(list[k].Members, memberOf(&rows[i]))
	}
	answers := t.slots.Arm(ctx, list)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, got := range answers {
		to := targets[i]
		t.recordWrite(to.slot.server, got.Err)
		if got.Err != nil {
			err = got.Err
			continue
		}
		if added := len(list[i].Members) - got.Known; added > 0 {
			n += added
			t.cfg.Observer.Rearmed(to.biz.BizType, reason, added)
		} else if to.check {
			continue // the missing head is claimed: as the head it would be missed again at once
		}
		for _, m := range list[i].Members {
			t.advanceHead(to.slot, m.At)
		}
	}
	return n, err
}
