package redistimer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// arming is tasks of one call on their way into their slots at one server.
type armCall struct {
	server *server
	tasks  []task.Task
	done   *sync.WaitGroup // of the call
}

// armPatience is how long a caller waits until its tasks are armed. It needs not
// wait: what is not armed is found by the sweep.
const armTimeout = 100 * time.Millisecond

// maxArming bounds the tasks on their way into the slots of a server: what it does
// not take must not pile up in memory.
const maxArming = 100_000

// Place implements dispatch.Engine: it arms tasks, puts them into their slots, those of this
// engine that are due within the horizon. On whichever node that happens: the
// owner of the slot is woken. (Forget takes out what was moved beyond it.)
//
// Arming cannot fail for the caller. What is not armed is counted, and found by
// the sweep.
func (t *Timer) Place(tasks ...task.Task) {
	now := t.cfg.Now()
	var parts []*armCall
	var silent []task.Task
	t.mu.Lock()
	for i := range tasks {
		l := t.bizTimers[tasks[i].BizType]
		if l == nil || tasks[i].ActionTime.After(l.armUntil(now)) {
			continue
		}
		switch s := t.slotOf(l, tasks[i].JobID); {
		case !s.isServed():
			// The scan engine has it now, and the slot is filled when Redis is back.
			t.recordUnarmed(s)
			t.cfg.Observer.ArmFailed(l.BizType.BizType, 1)
		case s.server.isSilent(now):
			silent = append(silent, tasks[i])
		default:
			parts = addPart(parts, s.server, tasks[i])
		}
	}
	t.mu.Unlock()
	if len(silent) > 0 {
		t.reportUnarmed(silent)
	}
	done := t.queueArms(parts)
	if done == nil {
		return
	}
	armed := make(chan struct{})
	go func() { done.Wait(); close(armed) }()
	timer := time.NewTimer(armTimeout)
	defer timer.Stop()
	select {
	case <-armed:
	case <-timer.C:
	}
}

// slotOf is the slot that a task belongs into.
func (t *Timer) slotOf(l *bizTimer, jobID uint64) *slotState {
	shard, _ := t.cfg.Layout.ShardOf(jobID)
	return &l.slots[t.cfg.Layout.Partition(shard)]
}

// addPart adds a task to the arming at its server.
func addPart(parts []*armCall, srv *server, row task.Task) []*armCall {
	i := slices.IndexFunc(parts, func(a *armCall) bool { return a.server == srv })
	if i < 0 {
		i, parts = len(parts), append(parts, &armCall{server: srv})
	}
	parts[i].tasks = append(parts[i].tasks, row)
	return parts
}

// addArming queues tasks to be armed, as far as there is room at their servers. It
// answers what is done when they are; nil: there is nothing to wait for.
func (t *Timer) queueArms(parts []*armCall) (done *sync.WaitGroup) {
	for _, a := range parts {
		n := int64(len(a.tasks))
		if a.server.armingTasks.Add(n) > maxArming && n < maxArming {
			a.server.armingTasks.Add(-n)
			t.reportUnarmed(a.tasks)
			continue
		}
		if done == nil {
			done = new(sync.WaitGroup)
		}
		a.done = done
		done.Add(1)
		a.server.arms.Add(a)
	}
	return done
}

// unarmed notes that tasks were stored and not armed, and tells their owners, who can help them.
func (t *Timer) reportUnarmed(tasks []task.Task) {
	t.mu.Lock()
	for i := range tasks {
		if l := t.bizTimers[tasks[i].BizType]; l != nil {
			t.recordUnarmed(t.slotOf(l, tasks[i].JobID))
			t.cfg.Observer.ArmFailed(l.BizType.BizType, 1)
		}
	}
	t.mu.Unlock()
	t.cfg.Nodes.Notify(tasks...)
}

// flushArms arms the tasks of many callers in one pipeline.
func (t *Timer) flushArms(srv *server, batch []*armCall) {
	b := t.groupBySlot(batch)
	began := t.cfg.Now()
	answers := t.slots.Arm(context.Background(), b.list)
	t.recordArmed(srv, b, answers, began)
	if unarmed := b.failedTasks(answers); len(unarmed) > 0 {
		t.reportUnarmed(unarmed)
	}
	for _, a := range batch {
		srv.armingTasks.Add(-int64(len(a.tasks)))
		a.done.Done()
	}
}

// armingBatch is the tasks of many callers by their slots.
type armBatch struct {
	list   []slots.ArmRequest
	states []*slotState   // of list
	rows   [][]*task.Task // of list
}

// gather sorts tasks by their slots.
func (t *Timer) groupBySlot(batch []*armCall) armBatch {
	var b armBatch
	index := make(map[*slotState]int)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range batch {
		for i := range a.tasks {
			row := &a.tasks[i]
			l := t.bizTimers[row.BizType]
			if l == nil {
				continue // the type was switched meanwhile: the scan engine finds it
			}
			s := t.slotOf(l, row.JobID)
			n, ok := index[s]
			if !ok {
				n = len(b.list)
				index[s] = n
				b.list, b.states, b.rows = append(b.list, slots.ArmRequest{Slot: s.slot}), append(b.states, s), append(b.rows, nil)
			}
			b.list[n].Members, b.rows[n] = append(b.list[n].Members, memberOf(row)), append(b.rows[n], row)
			if h := s.inflight[row.JobID]; h.claims > 0 {
				h.rearmed = true
				s.inflight[row.JobID] = h
			}
		}
	}
	return b
}

// armed notes how arming went.
func (t *Timer) recordArmed(srv *server, b armBatch, answers []slots.ArmResult, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answered, failed := len(answers) == 0, error(nil)
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		t.recordWrite(srv, a.Err)
		if a.Err != nil {
			failed = a.Err
			t.cfg.Logger.Debug("tasks not armed; the sweep finds them", "topic", b.list[i].Slot.Topic, "partition", b.list[i].Slot.Partition, "tasks", len(b.rows[i]), "error", a.Err)
			continue
		}
		for _, m := range b.list[i].Members {
			t.advanceHead(b.states[i], m.At)
		}
	}
	t.recordCall(srv, began, answered, failed)
}

// unarmed lists the tasks of slots that were not reached.
func (b *armBatch) failedTasks(answers []slots.ArmResult) (list []task.Task) {
	for i, a := range answers {
		if a.Err == nil {
			continue
		}
		for _, row := range b.rows[i] {
			list = append(list, *row)
		}
	}
	return list
}

func memberOf(row *task.Task) slots.Member {
	return slots.Member{JobID: row.JobID, At: row.ActionTime, Attempts: row.Attempts}
}

// Forget takes a task out of its slot, in the background, that is not pending any
// more or was moved out of the horizon. If that fails, its claim finds it out.
func (t *Timer) Forget(jobID uint64) {
	t.mu.Lock()
	idle := len(t.bizTimers) == 0
	t.mu.Unlock()
	if !idle {
		t.removals.Add(jobID)
	}
}

// flushGone reads the rows first: they say which slot it is, and that nobody
// brought the task back to life meanwhile. Who did may have armed it before a flush
// ahead of this one took it out, so it is armed again.
func (t *Timer) flushRemovals(batch []uint64) {
	// After an error these are the rows of the databases that answered.
	rows, _ := t.cfg.Store.Load(context.Background(), batch)
	now := t.cfg.Now()
	bySlot := make(map[slots.Slot]*slots.SettleRequest)
	var again []*armCall
	t.mu.Lock()
	for i := range rows {
		l := t.bizTimers[rows[i].BizType]
		if l == nil {
			continue
		}
		s := t.slotOf(l, rows[i].JobID)
		if rows[i].Status == task.Pending && !rows[i].ActionTime.After(l.armUntil(now)) {
			if s.isServed() { // else it is filled when it is
				again = addPart(again, s.server, rows[i])
			}
			continue
		}
		if s.server.isSilent(now) {
			continue // its claim finds it out
		}
		slot := s.slot
		if bySlot[slot] == nil {
			bySlot[slot] = &slots.SettleRequest{Slot: slot}
		}
		bySlot[slot].Done = append(bySlot[slot].Done, rows[i].JobID)
	}
	t.mu.Unlock()
	list := make([]slots.SettleRequest, 0, len(bySlot))
	for _, s := range bySlot {
		list = append(list, *s)
	}
	t.slots.Settle(context.Background(), list)
	t.queueArms(again)
}
