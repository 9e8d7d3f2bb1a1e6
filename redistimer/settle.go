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
func (r *receipt) Ack(row task.Task) {
	c := r.claim
	s := settlement{claim: c}
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
const releasePause = 250 * time.Millisecond

// GivenBack implements queue.Receipt: the task did not start. It is claimed again
// when it is due, or after a pause if the queue does not want it now.
func (r *receipt) Release(task.Task) {
	t, c := r.timer, r.claim
	t.mu.Lock()
	at := c.member.At
	if pause := t.cfg.Now().Add(releasePause); !t.stopping && c.slot.isOwned() && !c.line.closed {
		at = latest(at, pause)
	}
	t.mu.Unlock()
	t.release(c, at)
}

// giveBack returns a claim untouched: its attempts stay.
func (t *Timer) release(c claim, at time.Time) {
	t.settle(settlement{claim: c, release: true, back: slots.Member{JobID: c.member.JobID, At: at, Attempts: c.member.Attempts}})
}

// settling is the second phase of a claim: done, dead, back or released.
type settlement struct {
	claim
	done, dead, release bool
	back                slots.Member
}

func (t *Timer) settle(s settlement) {
	t.mu.Lock()
	h := s.slot.inflight[s.member.JobID]
	h.settling++
	s.slot.inflight[s.member.JobID] = h
	settles := s.slot.server.settles
	t.mu.Unlock()
	settles.Add(s)
}

// telling is what Redis is to be told of one slot.
type slotSettles struct {
	slot        *slotState
	settle      slots.SettleRequest
	release     slots.ReleaseRequest
	settlements []settlement
}

// flushSettles tells a server what became of claims. What fails is tried again
// apart: the next outcomes need not wait for it.
func (t *Timer) flushSettles(srv *server, batch []settlement) {
	bySlot := make(map[*slotState]*slotSettles)
	list := make([]*slotSettles, 0, 16)
	for _, s := range batch {
		o := bySlot[s.slot]
		if o == nil {
			o = &slotSettles{slot: s.slot, settle: slots.SettleRequest{Slot: s.slot.slot}, release: slots.ReleaseRequest{Slot: s.slot.slot}}
			bySlot[s.slot] = o
			list = append(list, o)
		}
		o.settlements = append(o.settlements, s)
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
	if left, _ := t.sendSettles(srv, list); len(left) > 0 {
		t.background.Go(func() { t.retrySettles(srv, left) })
	}
}

// settleTries bounds how often a settle is tried. What is not settled is found by
// its slot once Redis is back: the store has the truth.
const settleTries = 3

// tellAgain tries what failed a few times more.
func (t *Timer) retrySettles(srv *server, left []*slotSettles) {
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
		if left, err = t.sendSettles(srv, left); len(left) == 0 {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.Logger.Warn("outcomes not told to Redis; the store has them, and the slots are put right when it is back",
		"slots", len(left), "partition", left[0].slot.slot.Partition, "error", cmp.Or(err, srv.lastErr))
	for _, o := range left {
		t.markOrphans(o.slot)
	}
	t.finishSettles(left)
}

// tell tells a server, in one pipeline, and answers what it did not take.
func (t *Timer) sendSettles(srv *server, list []*slotSettles) (left []*slotSettles, err error) {
	var settles []slots.SettleRequest
	var releases []slots.ReleaseRequest
	var settling, releasing []*slotSettles
	for _, o := range list {
		if n := len(o.settle.Done) + len(o.settle.Dead) + len(o.settle.Back); n > 0 {
			settles, settling = append(settles, o.settle), append(settling, o)
		}
		if len(o.release.Members) > 0 {
			releases, releasing = append(releases, o.release), append(releasing, o)
		}
	}
	began, answered := t.cfg.Now(), false
	failed := make(map[*slotSettles]bool)
	note := func(list []*slotSettles, errs []error) {
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
	var over []*slotSettles
	for _, o := range list {
		if failed[o] {
			left = append(left, o)
		} else {
			over = append(over, o)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordCall(srv, began, answered, err)
	t.finishSettles(over)
	return left, err
}

// told lets claims go of which Redis was told, or that it will not be told of. The
// lock is held.
func (t *Timer) finishSettles(list []*slotSettles) {
	for _, o := range list {
		for _, s := range o.settlements {
			t.removeInflight(s.line, o.slot, s.member.JobID)
		}
		for _, m := range o.settle.Back {
			t.advanceHead(o.slot, m.At)
		}
		for _, m := range o.release.Members {
			t.advanceHead(o.slot, m.At)
		}
	}
	t.notifyIdle()
}
