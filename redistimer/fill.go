package redistimer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// filling is slots of one partition to be filled: a guard alone, or others that lack the same.
type fillJob struct {
	span
	guard   bool
	targets []target
	err     error // why it was not filled
}

// span is what slots lack.
type span struct {
	partition int
	server    *server
	reason    string
	from      time.Time // the rows up to then are there
	until     time.Time
	unarmed   bool // tasks were not armed since the marker was written
	check     bool // only the head that vanished is looked for, in from and until
}

type target struct {
	biz  *BizType // when its slot was found to lack something
	slot *slotState
}

const (
	// maxChecks is how many vanished heads are looked for at a time: most were cancelled.
	maxChecks = 4
	// clockSlack is how far clocks of nodes may differ without a word.
	clockSlack = time.Second
)

// checkEvery is how often the slots of a group are looked through that nothing has happened to.
const checkEvery = 10 * time.Second

// broken lists the slots to fill now, and those that are quiet no more and have no marker yet.
func (t *Timer) findRepairs() (list []fillJob, unmarked []*slotState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := survey{timer: t, now: t.cfg.Now(), together: make(map[span]int)}
	for _, srv := range t.servers {
		for _, g := range srv.groups {
			ago, step := v.now.Sub(g.repairsChecked), g.line.step()
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

// survey looks slots through. The Timer's lock is held.
type survey struct {
	timer    *Timer
	now      time.Time
	list     []fillJob
	together map[span]int // index in list
	unmarked []*slotState
	checks   int // heads that vanished in list
}

// check finds out what a slot of a group lacks.
func (v *survey) check(g *group, s *slotState) {
	if !s.isOwned() || s.foreign {
		return
	}
	if !s.unreachableSince.IsZero() || !s.answered && (s.guard || !s.server.hasAnswered) {
		g.needsRepair = g.needsRepair || s.repairReason != "" // once it is in reach
		return
	}
	until := g.line.coverUntil(v.now)
	v.timer.clampCovered(s, until)
	if s.repairReason == "" && !s.covered.IsZero() && until.Sub(s.covered) >= g.line.step() && until.After(s.covered) {
		s.repairReason = ReasonHorizon
	}
	switch {
	case s.repairReason != "":
		v.add(g, s, span{s.slot.Partition, s.server, s.repairReason, s.covered, until, s.unarmed, false})
		s.repairReason, s.unarmed, s.vanishedHead = "", false, time.Time{} // who asks again while it is filled is heard
	case !s.vanishedHead.IsZero() && v.checks == maxChecks:
		g.needsRepair = true // the next time
	case !s.vanishedHead.IsZero():
		v.checks++
		v.add(g, s, span{s.slot.Partition, s.server, ReasonLost, s.vanishedHead.Add(-time.Millisecond), s.vanishedHead, false, true})
		s.vanishedHead = time.Time{}
	case s.marker == "" && s.answered && !s.covered.IsZero() && !s.isQuiet(v.now):
		v.unmarked = append(v.unmarked, s)
	}
}

// add lists a slot that lacks something, together with others that lack the same.
func (v *survey) add(g *group, s *slotState, lack span) {
	one := target{g.line.BizType, s}
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

// clamp forgets what was covered beyond the horizon: the clock was ahead, here or on the
// node before us, and nothing would be filled until it gets there again. The lock is held.
func (t *Timer) clampCovered(s *slotState, until time.Time) {
	ahead := s.covered.Sub(until)
	if ahead <= 0 {
		return
	}
	s.covered = until
	if ahead > clockSlack && !t.clockWarned {
		t.clockWarned = true
		t.cfg.Logger.Warn("the clock was ahead, here or on another node; check its time service", "ahead", ahead.Round(time.Millisecond))
	}
}

// soon is the part of a lost slot that is filled first, in all slots.
const fillFirst = 30 * time.Second

// unfilledEvery is how often it is told that slots cannot be filled.
const unfilledEvery = 10 * time.Second

// fillers is how many slots are filled at the same time.
const parallelFills = 4

var (
	errNotRead    = errors.New("the database could not be read")
	errNotReached = errors.New("redis does not answer")
)

// fillAll fills slots: what is due soon in all of them, then the rest.
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
		t.cfg.Logger.Warn("slots not filled from the store yet", "slots", unfilled, "error", why)
	}
}

// fillEach does a step of filling for all that have not failed, some at a time.
func (t *Timer) fillEach(list []fillJob, step func(*fillJob) error) {
	var g errgroup.Group
	g.SetLimit(parallelFills)
	for i := range list {
		f := &list[i]
		if f.err == nil && t.isFailing(f) {
			f.err = errNotReached
		}
		if f.err != nil {
			continue
		}
		g.Go(func() error {
			// If the database hangs, each would take a filler for the whole time-out.
			if f.err = errNotRead; t.cfg.Store.Readable(t.cfg.Layout.PartitionDatabase(f.partition)) {
				f.err = step(f)
			}
			return nil
		})
	}
	_ = g.Wait()
}

func (t *Timer) isFailing(f *fillJob) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(f.targets, func(one target) bool { return !one.slot.unreachableSince.IsZero() })
}

// again has slots filled again whose filling failed. The Timer's lock is held.
func (f *fillJob) scheduleRetry() {
	if errors.Is(f.err, errMarkerGone) {
		f.server.each((*slotState).markLost) // and what was filled meanwhile, too
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

// fillSoon fills a lost slot with what is due soon. A slot that still is as we left it,
// or that its owner has just handed over, has the rest.
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

// fillSoonTogether is fillSoon of slots that are no guards. One that its owner has just handed over, or that is quiet and
// as we left it, has the rest.
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
			s.pollNow = true // what is in it is not known here
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
	signal(t.replan)
	return nil
}

var (
	errLostAgain  = errors.New("the slot was lost again while it was filled")
	errMarkerGone = fmt.Errorf("%w: its marker is gone", errLostAgain)
)

// fillRest fills a slot up to its horizon, and marks it.
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
		again, over := s.repairReason != "" || !s.isOwned() || s.marker == "", s.marker
		t.mu.Unlock()
		if again {
			return errLostAgain
		}
		if err := t.mark(ctx, s, over, t.newMarker(stateServing, f.until)); errors.Is(err, errLostAgain) {
			return errMarkerGone
		} else if err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range f.targets {
		if one.slot.repairReason == "" && one.slot.isOwned() { // else it is filled again
			one.slot.covered = f.until
		}
	}
	return nil
}

// markAll marks slots that are complete, and quiet no more.
func (t *Timer) markAll(ctx context.Context, unmarked []*slotState) {
	list := make([]slots.MarkRequest, len(unmarked))
	t.mu.Lock()
	for i, s := range unmarked {
		list[i] = slots.MarkRequest{Slot: s.slot, Value: t.newMarker(stateServing, s.covered), TTL: markerTTL}
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

// checkHead looks for the task that was at the head of a slot and vanished. If it is
// pending still, and was not in the slot, Redis has lost the queue: it was evicted, say.
func (t *Timer) checkHead(ctx context.Context, f *fillJob) error {
	n, err := t.fill(ctx, f, f.from, f.until)
	if err != nil || n == 0 {
		return err
	}
	t.cfg.Logger.Warn("Redis lost a slot's tasks (evicted, or removed by hand); they are armed again from the store",
		"biz_type", f.targets[0].biz.Name, "partition", f.partition)
	return errLostAgain
}

// fill arms the rows of slots that are due after from, up to until, and counts those
// that were not there.
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
		added, err := t.armRows(ctx, t.slots.ArmNew, f.reason, rows, byType)
		if n += added; err != nil {
			return n, err
		}
	}
}

// armRows arms rows of a partition in their types' slots, and counts those that were not there. Rows of other types are
// left alone.
func (t *Timer) armRows(ctx context.Context, arm func(context.Context, []slots.ArmRequest) []slots.ArmResult, reason string, rows []task.Task, byType map[uint64]target) (n int, err error) {
	index := make(map[uint64]int, len(byType))
	var list []slots.ArmRequest
	var targets []target // of list
	for i := range rows {
		to, ok := byType[rows[i].BizType]
		if !ok {
			continue
		}
		k, ok := index[to.biz.ID]
		if !ok {
			k = len(list)
			index[to.biz.ID] = k
			list, targets = append(list, slots.ArmRequest{Slot: to.slot.slot}), append(targets, to)
		}
		list[k].Members = append(list[k].Members, memberOf(&rows[i]))
	}
	answers := arm(ctx, list)
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
		}
		for _, m := range list[i].Members {
			t.advanceHead(to.slot, m.At)
		}
	}
	return n, err
}

// Sweep arms rows of a partition that are overdue: the safety net under everything
// else. Redis may not know them, or may have them at a later time than a hand has given
// the row. Rows that this engine does not serve are left alone.
func (t *Timer) Sweep(ctx context.Context, partition int, rows []task.Task) {
	byType := make(map[uint64]target)
	var list []task.Task
	t.mu.Lock()
	for i := range rows {
		l := t.bizTimers[rows[i].BizType]
		if l == nil || !l.slots[partition].isServed() || !l.slots[partition].unreachableSince.IsZero() {
			continue // it is filled, or scanned
		}
		if _, held := l.slots[partition].inflight[rows[i].JobID]; !held {
			byType[l.ID] = target{l.BizType, &l.slots[partition]}
			list = append(list, rows[i])
		}
	}
	t.mu.Unlock()
	if len(list) == 0 {
		return
	}
	if _, err := t.armRows(ctx, t.slots.Arm, ReasonSweep, list, byType); err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("overdue tasks not armed; the next sweep tries again", "partition", partition, "error", err)
	}
}
