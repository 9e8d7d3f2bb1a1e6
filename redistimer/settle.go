package redistimer

import (
	"context"
	"maps"
	"slices"
	"time"

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
		s.back = Member{JobID: row.JobID, At: row.ActionTime, Attempts: row.Attempts}
	default:
		s.done = true
	}
	r.timer.settle(s)
}

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
	t.settle(settling{claim: c, release: true, back: Member{JobID: c.member.JobID, At: at, Attempts: c.member.Attempts}})
}

// settling is the second phase of a claim: done, dead, back or released.
type settling struct {
	claim
	done, dead, release bool
	back                Member
}

func (t *Timer) settle(s settling) {
	t.mu.Lock()
	h := s.slot.held[s.member.JobID]
	h.settling++
	s.slot.held[s.member.JobID] = h
	t.mu.Unlock()
	t.settles.Add(s)
}

// settleTries bounds how often a settle is tried again. What is not settled is
// found by the repair of its slot once Redis is back: the store has the truth.
const settleTries = 3

// flushSettles tells Redis, in one pipeline.
func (t *Timer) flushSettles(batch []settling) {
	type open struct {
		slot     *slotState
		settle   Settling
		release  Releasing
		settling []settling
	}
	bySlot := make(map[*slotState]*open)
	for _, s := range batch {
		o := bySlot[s.slot]
		if o == nil {
			o = &open{slot: s.slot, settle: Settling{Slot: s.slot.slot}, release: Releasing{Slot: s.slot.slot}}
			bySlot[s.slot] = o
		}
		o.settling = append(o.settling, s)
		switch {
		case s.release:
			o.release.Members = append(o.release.Members, s.back)
		case s.dead:
			o.settle.Dead = append(o.settle.Dead, Member{JobID: s.member.JobID, At: t.cfg.Now()})
		case s.done:
			o.settle.Done = append(o.settle.Done, s.member.JobID)
		default:
			o.settle.Back = append(o.settle.Back, s.back)
		}
	}
	left := make([]*open, 0, len(bySlot))
	for _, o := range bySlot {
		left = append(left, o)
	}
	pause := 20 * time.Millisecond
	for try := 1; len(left) > 0; try++ {
		var settles []Settling
		var releases []Releasing
		var settling, releasing []*open
		for _, o := range left {
			if n := len(o.settle.Done) + len(o.settle.Dead) + len(o.settle.Back); n > 0 {
				settles, settling = append(settles, o.settle), append(settling, o)
			}
			if len(o.release.Members) > 0 {
				releases, releasing = append(releases, o.release), append(releasing, o)
			}
		}
		failed := make(map[*open]error)
		note := func(list []*open, errs []error) {
			for i, err := range errs {
				if err != nil {
					failed[list[i]] = err
				}
			}
		}
		if len(settles) > 0 {
			note(settling, t.slots.Settle(context.Background(), settles))
		}
		if len(releases) > 0 {
			note(releasing, t.slots.Release(context.Background(), releases))
		}
		if len(failed) == 0 {
			break
		}
		left = slices.Collect(maps.Keys(failed))
		if try == settleTries {
			t.cfg.Logger.Warn("outcomes not told to Redis; the store has them, and the slots are put right when it is back",
				"slots", len(left), "partition", left[0].slot.slot.Partition, "error", failed[left[0]])
			t.mu.Lock()
			for _, o := range left {
				t.orphaned(o.slot)
			}
			t.mu.Unlock()
			break
		}
		time.Sleep(pause)
		pause *= 4
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.calmer()
	for _, o := range bySlot {
		for _, s := range o.settling {
			t.letGo(s.line, o.slot, s.member.JobID)
		}
		for _, m := range append(o.settle.Back, o.release.Members...) {
			t.sooner(o.slot, m.At)
		}
	}
}
