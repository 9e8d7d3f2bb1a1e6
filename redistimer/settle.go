package redistimer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// receipt reports the outcome of a task that the queue took to its slot.
type receipt struct {
	writer *writer
	claim  claim
}

// Ack implements queue.Receipt: the outcome is in the store.
func (r *receipt) Ack(row task.Task) { r.writer.endAs(&r.claim, &row) }

// placeOf is where a task belongs by its row.
func (w *writer) placeOf(b *BizType, row *task.Task) place {
	switch {
	case row.Status == task.Dead:
		return dead
	case row.Status == task.Pending && !row.ActionTime.After(w.armUntil(b, w.cfg.Now())):
		return back
	}
	return done
}

// endAs ends a claim by the row of its task.
func (w *writer) endAs(c *claim, row *task.Task) {
	to, m := w.placeOf(c.biz, row), memberOf(row)
	if to == dead {
		m.At = w.cfg.Now()
	}
	w.end(c, to, m)
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
	w.end(c, released, slots.Member{JobID: c.member.JobID, At: at, Attempts: c.member.Attempts})
}

// slotID names a slot that may not be in memory.
type slotID struct {
	bizTimer  *bizTimer
	partition int
}

func (id slotID) slot() slots.Slot {
	return slots.Slot{Topic: id.bizTimer.topic, Partition: id.partition}
}

// place is where a task goes in its slot.
type place uint8

const (
	done      place = iota // out of the slot
	dead                   // into the dead queue
	back                   // into the store queue: it runs again
	released               // back into the store queue, if it is claimed: its claim ends without a run
	armed                  // into the store queue, unless it is claimed
	confirmed              // the same, unless it is there at an earlier time
)

// write brings a task to its place.
type write struct {
	slotID
	place     place
	isClaim   bool         // it is the second phase of a claim
	isRemoval bool         // it is of no claim, and its row is read after it
	member    slots.Member // At: when it died, or is to run
	row       *task.Task   // of a task to arm
	call      *armCall     // that waits for it
}

// flush sends writes to a server.
func (w *writer) flush(srv *server, batch []write) {
	arms := 0 // they come first
	for i := range batch {
		if batch[i].place >= armed {
			batch[arms], batch[i] = batch[i], batch[arms]
			arms++
		}
	}
	if arms > 0 {
		w.flushArms(srv, batch[:arms])
	}
	if arms < len(batch) {
		w.flushSettles(srv, batch[arms:])
	}
}

// end settles a claim.
func (w *writer) end(c *claim, to place, m slots.Member) {
	w.mu.Lock()
	h := c.slot.inflight[c.member.JobID]
	h.settling++
	c.slot.inflight[c.member.JobID] = h
	id := slotID{c.slot.group.bizTimer, c.slot.slot.Partition}
	w.mu.Unlock()
	w.settle(write{slotID: id, isClaim: true, place: to, member: m})
}

// settle sends a settlement. If it is of no claim, a silent server does not get it: a claim of the task finds out.
func (w *writer) settle(one write) {
	w.mu.Lock()
	srv := w.placement.serverAt(one.bizTimer, one.partition)
	isLost := !one.isClaim && srv.isSilent(w.cfg.Now())
	// A task that goes back may be due soon.
	isAwaited := one.place == back || one.place == released ||
		one.bizTimer.waitsForRoom() || one.bizTimer.closed || w.partitions[one.partition].term == 0
	w.mu.Unlock()
	switch {
	case one.isClaim:
		if srv.settles.Add(one); isAwaited {
			srv.settles.Hurry()
		}
	case !isLost:
		srv.writes.Add(one)
	}
}

// settleSpacing makes the settlements of a slot share a call.
var settleSpacing = groupcommit.Spacing[write]{
	Rate: 100, Gap: 500 * time.Millisecond,
	Enough: func(list []write) bool { return len(list) >= 1000 },
}

// slotSettles has the settlements of one slot.
type slotSettles struct {
	slotID
	request     slots.SettleRequest
	settlements []write
}

// flushSettles sends settlements to a server. It retries failed ones in the background, so that they do not delay
// others.
func (w *writer) flushSettles(srv *server, batch []write) {
	bySlot := make(map[slotID]*slotSettles)
	list := make([]*slotSettles, 0, 16)
	for _, s := range batch {
		o := bySlot[s.slotID]
		if o == nil {
			o = &slotSettles{slotID: s.slotID, request: slots.SettleRequest{Slot: s.slot()}}
			bySlot[s.slotID] = o
			list = append(list, o)
		}
		o.settlements = append(o.settlements, s)
		switch s.place {
		case done:
			o.request.Done = append(o.request.Done, s.member.JobID)
		case dead:
			o.request.Dead = append(o.request.Dead, s.member)
		case back:
			o.request.Back = append(o.request.Back, s.member)
		case released:
			o.request.GiveBack = append(o.request.GiveBack, s.member)
		}
	}
	failures, _ := w.sendSettles(srv, list)
	if len(failures) > 0 {
		w.background.Go(func() {
			w.retrySettles(srv, failures)
			w.checkRemoved(failures)
		})
	}
	w.checkRemoved(list)
}

// checkRemoved reads the rows of tasks after their removal. One that has come back meanwhile may have been armed before, so it is armed
// again.
func (w *writer) checkRemoved(list []*slotSettles) {
	var removed []claim
	for _, o := range list {
		for _, s := range o.settlements {
			if s.isRemoval {
				removed = append(removed, claim{member: s.member, isRemoved: true})
			}
		}
	}
	w.claimer.load(removed)
}

// settleTries bounds how often a settlement is sent. Its slot finds a claim that was not settled once Redis is
// back; the store has the outcome.
const settleTries = 3

// retrySettles retries settlements that failed.
func (w *writer) retrySettles(srv *server, failures []*slotSettles) {
	var err error
	pause := wait.Backoff{First: 20 * time.Millisecond, Most: 80 * time.Millisecond}
	for try := 2; try <= settleTries; try++ {
		w.mu.Lock()
		silent := srv.isSilent(w.cfg.Now())
		w.mu.Unlock()
		if silent {
			break
		}
		time.Sleep(pause.Next())
		if failures, err = w.sendSettles(srv, failures); len(failures) == 0 {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.Log(w.cfg.Logger, slog.LevelWarn, "Redis not updated with outcomes; the store has them, and the slots are corrected when it is back",
		"slots", len(failures), "partition", failures[0].partition, "error", cmp.Or(err, srv.lastErr))
	for _, o := range failures {
		w.planner.askForOrphans(w.planner.slotOf(o.bizTimer, o.partition))
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
		if a.GivenBack < len(requests[i].GiveBack) && w.partitions[list[i].partition].term != 0 { // Redis has lost the others
			w.reader.request(list[i].partition, wholeWindow)
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
			if s.isClaim {
				w.claimer.removeInflight(o.bizTimer.slots[o.partition], s.member.JobID)
			}
			if s.place == back || s.place == released {
				w.planner.advanceHead(o.bizTimer, o.partition, s.member.At)
			}
		}
		if one := o.bizTimer.slots[o.partition]; one != nil {
			w.planner.update(one)
		}
	}
	w.notifyIdle()
}
