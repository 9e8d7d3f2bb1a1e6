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
type arming struct {
	server *server
	tasks  []task.Task
	done   *sync.WaitGroup // of the call
}

// armPatience is how long a caller waits until its tasks are armed. It needs not
// wait: what is not armed is found by the sweep.
const armPatience = 100 * time.Millisecond

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
	var parts []*arming
	var silent []task.Task
	t.mu.Lock()
	for i := range tasks {
		l := t.lines[tasks[i].BizType]
		if l == nil || tasks[i].ActionTime.After(l.armUntil(now)) {
			continue
		}
		switch s := t.slotOf(l, tasks[i].JobID); {
		case !s.served():
			// The scan engine has it now, and the slot is filled when Redis is back.
			t.missed(s)
			t.cfg.Observer.ArmFailed(l.BizType.BizType, 1)
		case s.server.isSilent(now):
			silent = append(silent, tasks[i])
		default:
			parts = addPart(parts, s.server, tasks[i])
		}
	}
	t.mu.Unlock()
	if len(silent) > 0 {
		t.unarmed(silent)
	}
	done := t.addArming(parts)
	if done == nil {
		return
	}
	armed := make(chan struct{})
	go func() { done.Wait(); close(armed) }()
	timer := time.NewTimer(armPatience)
	defer timer.Stop()
	select {
	case <-armed:
	case <-timer.C:
	}
}

// slotOf is the slot that a task belongs into.
func (t *Timer) slotOf(l *line, jobID uint64) *slotState {
	shard, _ := t.cfg.Layout.ShardOf(jobID)
	return &l.slots[t.cfg.Layout.Partition(shard)]
}

// addPart adds a task to the arming at its server.
func addPart(parts []*arming, srv *server, row task.Task) []*arming {
	i := slices.IndexFunc(parts, func(a *arming) bool { return a.server == srv })
	if i < 0 {
		i, parts = len(parts), append(parts, &arming{server: srv})
	}
	parts[i].tasks = append(parts[i].tasks, row)
	return parts
}

// addArming queues tasks to be armed, as far as there is room at their servers. It
// answers what is done when they are; nil: there is nothing to wait for.
func (t *Timer) addArming(parts []*arming) (done *sync.WaitGroup) {
	for _, a := range parts {
		n := int64(len(a.tasks))
		if a.server.arming.Add(n) > maxArming && n < maxArming {
			a.server.arming.Add(-n)
			t.unarmed(a.tasks)
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
func (t *Timer) unarmed(tasks []task.Task) {
	t.mu.Lock()
	for i := range tasks {
		if l := t.lines[tasks[i].BizType]; l != nil {
			t.missed(t.slotOf(l, tasks[i].JobID))
			t.cfg.Observer.ArmFailed(l.BizType.BizType, 1)
		}
	}
	t.mu.Unlock()
	t.cfg.Nodes.Notify(tasks...)
}

// flushArms arms the tasks of many callers in one pipeline.
func (t *Timer) flushArms(srv *server, batch []*arming) {
	b := t.gather(batch)
	began := t.cfg.Now()
	answers := t.slots.Arm(context.Background(), b.list)
	t.armed(srv, b, answers, began)
	if unarmed := b.unarmed(answers); len(unarmed) > 0 {
		t.unarmed(unarmed)
	}
	for _, a := range batch {
		srv.arming.Add(-int64(len(a.tasks)))
		a.done.Done()
	}
}

// armingBatch is the tasks of many callers by their slots.
type armingBatch struct {
	list   []slots.Arming
	states []*slotState   // of list
	rows   [][]*task.Task // of list
}

// gather sorts tasks by their slots.
func (t *Timer) gather(batch []*arming) armingBatch {
	var b armingBatch
	index := make(map[*slotState]int)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range batch {
		for i := range a.tasks {
			row := &a.tasks[i]
			l := t.lines[row.BizType]
			if l == nil {
				continue // the type was switched meanwhile: the scan engine finds it
			}
			s := t.slotOf(l, row.JobID)
			n, ok := index[s]
			if !ok {
				n = len(b.list)
				index[s] = n
				b.list, b.states, b.rows = append(b.list, slots.Arming{Slot: s.slot}), append(b.states, s), append(b.rows, nil)
			}
			b.list[n].Members, b.rows[n] = append(b.list[n].Members, memberOf(row)), append(b.rows[n], row)
			if h := s.held[row.JobID]; h.claims > 0 {
				h.changed = true
				s.held[row.JobID] = h
			}
		}
	}
	return b
}

// armed notes how arming went.
func (t *Timer) armed(srv *server, b armingBatch, answers []slots.Armed, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answered, failed := len(answers) == 0, error(nil)
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		t.wrote(srv, a.Err)
		if a.Err != nil {
			failed = a.Err
			t.cfg.Logger.Debug("tasks not armed; the sweep finds them", "topic", b.list[i].Slot.Topic, "partition", b.list[i].Slot.Partition, "tasks", len(b.rows[i]), "error", a.Err)
			continue
		}
		for _, m := range b.list[i].Members {
			t.sooner(b.states[i], m.At)
		}
	}
	t.judge(srv, began, answered, failed)
}

// unarmed lists the tasks of slots that were not reached.
func (b *armingBatch) unarmed(answers []slots.Armed) (list []task.Task) {
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
	idle := len(t.lines) == 0
	t.mu.Unlock()
	if !idle {
		t.gone.Add(jobID)
	}
}

// flushGone reads the rows first: they say which slot it is, and that nobody
// brought the task back to life meanwhile. Who did may have armed it before a flush
// ahead of this one took it out, so it is armed again.
func (t *Timer) flushGone(batch []uint64) {
	// After an error these are the rows of the databases that answered.
	rows, _ := t.cfg.Store.Load(context.Background(), batch)
	now := t.cfg.Now()
	bySlot := make(map[slots.Slot]*slots.Settling)
	var again []*arming
	t.mu.Lock()
	for i := range rows {
		l := t.lines[rows[i].BizType]
		if l == nil {
			continue
		}
		s := t.slotOf(l, rows[i].JobID)
		if rows[i].Status == task.Pending && !rows[i].ActionTime.After(l.armUntil(now)) {
			if s.served() { // else it is filled when it is
				again = addPart(again, s.server, rows[i])
			}
			continue
		}
		if s.server.isSilent(now) {
			continue // its claim finds it out
		}
		slot := s.slot
		if bySlot[slot] == nil {
			bySlot[slot] = &slots.Settling{Slot: slot}
		}
		bySlot[slot].Done = append(bySlot[slot].Done, rows[i].JobID)
	}
	t.mu.Unlock()
	list := make([]slots.Settling, 0, len(bySlot))
	for _, s := range bySlot {
		list = append(list, *s)
	}
	t.slots.Settle(context.Background(), list)
	t.addArming(again)
}
