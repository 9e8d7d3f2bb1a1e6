package redistimer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// receipt reports the outcome of a task that the queue took to its slot.
type receipt struct {
	timer *Timer
	claim claim
}

// Ack implements queue.Receipt: the outcome is in the store.
func (r *receipt) Ack(row task.Task) {
	c := &r.claim
	s := settlement{claim: c}
	switch {
	case row.Status == task.Dead:
		s.dead = true
	case row.Status == task.Pending && !row.ActionTime.After(r.timer.armUntil(c.biz, r.timer.cfg.Now())):
		s.back = memberOf(&row)
	default:
		s.done = true
	}
	r.timer.settle(s)
}

// releasePause is the time after which a released task is claimed again.
const releasePause = 250 * time.Millisecond

// Release implements queue.Receipt: the task did not start. It is claimed again when it is due, or after a
// pause if the queue does not want it now.
func (r *receipt) Release(task.Task) {
	t, c := r.timer, &r.claim
	t.mu.Lock()
	at := c.member.At
	if pause := t.cfg.Now().Add(releasePause); !t.stopping && c.slot.isOwned() && !c.slot.group.bizTimer.closed {
		at = later(at, pause)
	}
	t.mu.Unlock()
	t.release(c, at)
}

// release ends a claim without a run: the attempts stay.
func (t *Timer) release(c *claim, at time.Time) {
	t.settle(settlement{claim: c, release: true, back: slots.Member{JobID: c.member.JobID, At: at, Attempts: c.member.Attempts}})
}

// settlement is the second phase of a claim: done, dead, back or given back.
type settlement struct {
	*claim
	done, dead, release bool
	back                slots.Member
}

func (t *Timer) settle(s settlement) {
	t.mu.Lock()
	h := s.slot.inflight[s.member.JobID]
	h.settling++
	s.slot.inflight[s.member.JobID] = h
	settles := s.slot.group.server.settles
	t.mu.Unlock()
	settles.Add(s)
}

// slotSettles has the settlements of one slot.
type slotSettles struct {
	slot        *slotState
	request     slots.SettleRequest
	settlements []settlement
}

// flushSettles sends settlements to a server. It retries failed ones in the background, so that they do not delay
// others.
func (t *Timer) flushSettles(srv *server, batch []settlement) {
	bySlot := make(map[*slotState]*slotSettles)
	list := make([]*slotSettles, 0, 16)
	for _, s := range batch {
		o := bySlot[s.slot]
		if o == nil {
			o = &slotSettles{slot: s.slot, request: slots.SettleRequest{Slot: s.slot.slot}}
			bySlot[s.slot] = o
			list = append(list, o)
		}
		o.settlements = append(o.settlements, s)
		switch {
		case s.release:
			o.request.GiveBack = append(o.request.GiveBack, s.back)
		case s.dead:
			o.request.Dead = append(o.request.Dead, slots.Member{JobID: s.member.JobID, At: t.cfg.Now()})
		case s.done:
			o.request.Done = append(o.request.Done, s.member.JobID)
		default:
			o.request.Back = append(o.request.Back, s.back)
		}
	}
	if failures, _ := t.sendSettles(srv, list); len(failures) > 0 {
		t.background.Go(func() { t.retrySettles(srv, failures) })
	}
}

// settleTries bounds how often a settlement is sent. Its slot finds a claim that was not settled once Redis is
// back; the store has the outcome.
const settleTries = 3

// retrySettles retries settlements that failed.
func (t *Timer) retrySettles(srv *server, failures []*slotSettles) {
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
		if failures, err = t.sendSettles(srv, failures); len(failures) == 0 {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.Log(t.cfg.Logger, slog.LevelWarn, "Redis not updated with outcomes; the store has them, and the slots are corrected when it is back",
		"slots", len(failures), "partition", failures[0].slot.slot.Partition, "error", cmp.Or(err, srv.lastErr))
	for _, o := range failures {
		t.askForOrphans(o.slot)
	}
	t.finishSettles(failures)
}

// sendSettles sends settlements in one pipeline, and returns the ones that failed.
func (t *Timer) sendSettles(srv *server, list []*slotSettles) (failures []*slotSettles, err error) {
	requests := make([]slots.SettleRequest, len(list))
	for i, o := range list {
		requests[i] = o.request
	}
	began, answered := t.cfg.Now(), false
	answers := t.slots.Settle(context.Background(), requests)
	t.mu.Lock()
	defer t.mu.Unlock()
	sent := make([]*slotSettles, 0, len(list))
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		if a.Err != nil {
			failures, err = append(failures, list[i]), a.Err
			continue
		}
		sent = append(sent, list[i])
		if a.GivenBack < len(requests[i].GiveBack) && list[i].slot.isOwned() { // Redis has lost the others
			t.requestRead(requests[i].Slot.Partition, wholeWindow)
		}
	}
	t.recordWrite(srv, err)
	t.recordCall(srv, began, answered, err)
	t.finishSettles(sent)
	return failures, err
}

// finishSettles ends the claims of settlements that were sent or given up. The lock is held.
func (t *Timer) finishSettles(list []*slotSettles) {
	for _, o := range list {
		for _, s := range o.settlements {
			t.removeInflight(o.slot, s.member.JobID)
		}
		for _, m := range slices.Concat(o.request.Back, o.request.GiveBack) {
			t.advanceHead(o.slot.group.bizTimer, o.slot.slot.Partition, m.At)
		}
		t.update(o.slot)
	}
	t.notifyIdle()
}
