package redistimer

import (
	"cmp"
	"context"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// receipt tells a slot what became of a task that the queue took.
type receipt struct {
	timer *Timer
	claim claim
}

// Settled implements queue.Receipt: the outcome is in the store.
func (r *receipt) Settled(row task.Task) {
	c := r.claim
	s := settling{claim: c}
	switch {
	case row.Status == task.Dead:
		s.dead = true
	case row.Status == task.Pending && !row.ActionTime.After(c.biz.armUntil(r.timer.cfg.Now())):
		s.back = slots.Member{JobID: row.JobID, At: row.ActionTime, Attempts: row.Attempts}
	default:
		s.done = true
	}
	r.timer.settle(s)
}

// giveBack is the pause of a task that the queue did not take.
const giveBack = 250 * time.Millisecond

// GivenBack implements queue.Receipt: the task did not start. It is claimed again
// when it is due, or after a pause if the queue does not want it now.
func (r *receipt) GivenBack(task.Task) {
	t, c := r.timer, r.claim
	t.mu.Lock()
	at := c.member.At
	if pause := t.cfg.Now().Add(giveBack); !t.stopping && c.slot.owned() && !c.line.closed {
		at = latest(at, pause)
	}
	t.mu.Unlock()
	t.giveBack(c, at)
}

// giveBack returns a claim untouched: its attempts stay.
func (t *Timer) giveBack(c claim, at time.Time) {
	t.settle(settling{claim: c, release: true, back: slots.Member{JobID: c.member.JobID, At: at, Attempts: c.member.Attempts}})
}

// settling is the second phase of a claim: done, dead, back or released.
type settling struct {
	claim
	done, dead, release bool
	back                slots.Member
}

func (t *Timer) settle(s settling) {
	t.mu.Lock()
	h := s.slot.held[s.member.JobID]
	h.settling++
	s.slot.held[s.member.JobID] = h
	settles := s.slot.server.settles
	t.mu.Unlock()
	settles.Add(s)
}

// telling is what Redis is to be told of one slot.
type telling struct {
	slot     *slotState
	settle   slots.Settling
	release  slots.Releasing
	settling []settling
}

// flushSettles tells a server what became of claims. What fails is tried again
// apart: the next outcomes need not wait for it.
func (t *Timer) flushSettles(srv *server, batch []settling) {
	bySlot := make(map[*slotState]*telling)
	list := make([]*telling, 0, 16)
	for _, s := range batch {
		o := bySlot[s.slot]
		if o == nil {
			o = &telling{slot: s.slot, settle: slots.Settling{Slot: s.slot.slot}, release: slots.Releasing{Slot: s.slot.slot}}
			bySlot[s.slot] = o
			list = append(list, o)
		}
		o.settling = append(o.settling, s)
		switch {
		case s.release:
			o.release.Members = append(o.release.Members, s.back)
		case s.dead:
			o.settle.Dead = append(o.settle.Dead, slots.Member{JobID: s.member.JobID, At: t.cfg.Now()})
		case s.done:
			o.settle.Done = append(o.settle.Done, s.member.JobID)
		default:
			o.settle.Back = append(o.settle.Back, s.back)
		}
	}
	if left, _ := t.tell(srv, list); len(left) > 0 {
		t.background.Go(func() { t.tellAgain(srv, left) })
	}
}

// settleTries bounds how often a settle is tried. What is not settled is found by
// its slot once Redis is back: the store has the truth.
const settleTries = 3

// tellAgain tries what failed a few times more.
func (t *Timer) tellAgain(srv *server, left []*telling) {
	var err error
	pause := 20 * time.Millisecond
	for try := 2; try <= settleTries; try++ {
		t.mu.Lock()
		silent := srv.isSilent(t.cfg.Now())
		t.mu.Unlock()
		if silent {
			break
		}
		time.Sleep(pause)
		pause *= 4
		if left, err = t.tell(srv, left); len(left) == 0 {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.Logger.Warn("outcomes not told to Redis; the store has them, and the slots are put right when it is back",
		"slots", len(left), "partition", left[0].slot.slot.Partition, "error", cmp.Or(err, srv.err))
	for _, o := range left {
		t.orphaned(o.slot)
	}
	t.told(left)
}

// tell tells a server, in one pipeline, and answers what it did not take.
func (t *Timer) tell(srv *server, list []*telling) (left []*telling, err error) {
	var settles []slots.Settling
	var releases []slots.Releasing
	var settling, releasing []*telling
	for _, o := range list {
		if n := len(o.settle.Done) + len(o.settle.Dead) + len(o.settle.Back); n > 0 {
			settles, settling = append(settles, o.settle), append(settling, o)
		}
		if len(o.release.Members) > 0 {
			releases, releasing = append(releases, o.release), append(releasing, o)
		}
	}
	began, answered := t.cfg.Now(), false
	failed := make(map[*telling]bool)
	note := func(list []*telling, errs []error) {
		for i, one := range errs {
			answered = answered || slots.IsAnswer(one)
			if one != nil {
				failed[list[i]], err = true, one
			}
		}
	}
	if len(settles) > 0 {
		note(settling, t.slots.Settle(context.Background(), settles))
	}
	if len(releases) > 0 {
		note(releasing, t.slots.Release(context.Background(), releases))
	}
	var over []*telling
	for _, o := range list {
		if failed[o] {
			left = append(left, o)
		} else {
			over = append(over, o)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(srv, began, answered, err)
	t.told(over)
	return left, err
}

// told lets claims go of which Redis was told, or that it will not be told of. The
// lock is held.
func (t *Timer) told(list []*telling) {
	for _, o := range list {
		for _, s := range o.settling {
			t.letGo(s.line, o.slot, s.member.JobID)
		}
		for _, m := range o.settle.Back {
			t.sooner(o.slot, m.At)
		}
		for _, m := range o.release.Members {
			t.sooner(o.slot, m.At)
		}
	}
	t.calmer()
}
