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
	writer *writer
	claim  claim
}

// Ack implements queue.Receipt: the outcome is in the store.
func (r *receipt) Ack(row task.Task) {
	c := &r.claim
	s := settlement{claim: c}
	switch {
	case row.Status == task.Dead:
		s.dead = true
	case row.Status == task.Pending && !row.ActionTime.After(r.writer.armUntil(c.biz, r.writer.cfg.Now())):
		s.back = memberOf(&row)
	default:
		s.done = true
	}
	r.writer.settle(s)
}

// releasePause is the time after which a released task is claimed again.
const releasePause = 250 * time.Millisecond

// Release implements queue.Receipt: the task did not start. It is claimed again when it is due, or after a
// pause if the queue does not want it now.
func (r *receipt) Release(task.Task) {
	w, c := r.writer, &r.claim
	w.mu.Lock()
	at := c.member.At
	if pause := w.cfg.Now().Add(releasePause); !w.stopping && c.slot.isOwned() && !c.slot.group.bizTimer.closed {
		at = later(at, pause)
	}
	w.mu.Unlock()
	w.release(c, at)
}

// release ends a claim without a run: the attempts stay.
func (w *writer) release(c *claim, at time.Time) {
	w.settle(settlement{claim: c, release: true, back: slots.Member{JobID: c.member.JobID, At: at, Attempts: c.member.Attempts}})
}

// settlement is the second phase of a claim: done, dead, back or given back.
type settlement struct {
	*claim
	done, dead, release bool
	back                slots.Member
}

func (w *writer) settle(s settlement) {
	w.mu.Lock()
	h := s.slot.inflight[s.member.JobID]
	h.settling++
	s.slot.inflight[s.member.JobID] = h
	settles := s.slot.group.server.settles
	w.mu.Unlock()
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
func (w *writer) flushSettles(srv *server, batch []settlement) {
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
			o.request.Dead = append(o.request.Dead, slots.Member{JobID: s.member.JobID, At: w.cfg.Now()})
		case s.done:
			o.request.Done = append(o.request.Done, s.member.JobID)
		default:
			o.request.Back = append(o.request.Back, s.back)
		}
	}
	if failures, _ := w.sendSettles(srv, list); len(failures) > 0 {
		w.background.Go(func() { w.retrySettles(srv, failures) })
	}
}

// settleTries bounds how often a settlement is sent. Its slot finds a claim that was not settled once Redis is
// back; the store has the outcome.
const settleTries = 3

// retrySettles retries settlements that failed.
func (w *writer) retrySettles(srv *server, failures []*slotSettles) {
	var err error
	pause := 20 * time.Millisecond
	for try := 2; try <= settleTries; try++ {
		w.mu.Lock()
		silent := srv.isSilent(w.cfg.Now())
		w.mu.Unlock()
		if silent {
			break
		}
		time.Sleep(pause)
		pause *= 4
		if failures, err = w.sendSettles(srv, failures); len(failures) == 0 {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.Log(w.cfg.Logger, slog.LevelWarn, "Redis not updated with outcomes; the store has them, and the slots are corrected when it is back",
		"slots", len(failures), "partition", failures[0].slot.slot.Partition, "error", cmp.Or(err, srv.lastErr))
	for _, o := range failures {
		w.planner.askForOrphans(o.slot)
	}
	w.finishSettles(failures)
}

// sendSettles sends settlements in one pipeline, and returns the ones that failed.
func (w *writer) sendSettles(srv *server, list []*slotSettles) (failures []*slotSettles, err error) {
	requests := make([]slots.SettleRequest, len(list))
	for i, o := range list {
		requests[i] = o.request
	}
	began, answered := w.cfg.Now(), false
	answers := w.slots.Settle(context.Background(), requests)
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := make([]*slotSettles, 0, len(list))
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		if a.Err != nil {
			failures, err = append(failures, list[i]), a.Err
			continue
		}
		sent = append(sent, list[i])
		if a.GivenBack < len(requests[i].GiveBack) && list[i].slot.isOwned() { // Redis has lost the others
			w.reader.request(requests[i].Slot.Partition, wholeWindow)
		}
	}
	w.health.recordWrite(srv, err)
	w.health.recordCall(srv, began, answered, err)
	w.finishSettles(sent)
	return failures, err
}

// finishSettles ends the claims of settlements that were sent or given up. The lock is held.
func (w *writer) finishSettles(list []*slotSettles) {
	for _, o := range list {
		for _, s := range o.settlements {
			w.claimer.removeInflight(o.slot, s.member.JobID)
		}
		for _, m := range slices.Concat(o.request.Back, o.request.GiveBack) {
			w.planner.advanceHead(o.slot.group.bizTimer, o.slot.slot.Partition, m.At)
		}
		w.planner.update(o.slot)
	}
	w.notifyIdle()
}
