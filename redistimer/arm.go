package redistimer

import (
	"context"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// arming is tasks of one call on their way into their slots.
type arming struct {
	tasks []task.Task
	done  sync.WaitGroup
}

// armPatience is how long a caller waits until its tasks are armed. It needs not
// wait: what is not armed is found by the sweep.
const armPatience = 100 * time.Millisecond

// maxArming bounds the tasks on their way into their slots: what a silent Redis
// does not take within its time-outs must not pile up in memory.
const maxArming = 100_000

// Arm puts tasks that were just stored, pending, into their slots, those of this
// engine that are due within the horizon. On whichever node that happens: the
// owner of the slot is woken. (Forget takes out what was moved beyond it.)
//
// Arming cannot fail for the caller. What is not armed is counted, and found by
// the sweep.
func (t *Timer) Arm(tasks ...task.Task) {
	now := t.cfg.Now()
	a := &arming{}
	t.mu.Lock()
	for i := range tasks {
		l := t.lines[tasks[i].BizType]
		if l == nil {
			continue
		}
		if tasks[i].ActionTime.After(l.armUntil(now)) {
			continue
		}
		if s := t.slotOf(l, tasks[i].JobID); s.out {
			t.missed(s)
			// The scan engine has it now. Nothing piles up here, and the slot is filled
			// when Redis is back.
			t.cfg.Observer.ArmFailed(l.BizType.BizType, 1)
			continue
		}
		a.tasks = append(a.tasks, tasks[i])
	}
	t.mu.Unlock()
	if len(a.tasks) == 0 {
		return
	}
	if !t.addArming(a) {
		t.unarmed(a.tasks)
		return
	}
	armed := make(chan struct{})
	go func() { a.done.Wait(); close(armed) }()
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

// addArming queues tasks to be armed, if there is room.
func (t *Timer) addArming(a *arming) bool {
	n := int64(len(a.tasks))
	if t.arming.Add(n) > maxArming && n < maxArming {
		t.arming.Add(-n)
		return false
	}
	a.done.Add(1)
	t.arms.Add(a)
	return true
}

// unarmed notes that tasks were stored and not armed, and tells who helps them.
func (t *Timer) unarmed(tasks []task.Task) {
	t.mu.Lock()
	for i := range tasks {
		if l := t.lines[tasks[i].BizType]; l != nil {
			t.missed(t.slotOf(l, tasks[i].JobID))
			t.cfg.Observer.ArmFailed(l.BizType.BizType, 1)
		}
	}
	t.mu.Unlock()
	if t.cfg.Unarmed != nil {
		t.cfg.Unarmed(tasks)
	}
}

// flushArms arms the tasks of many callers in one pipeline.
func (t *Timer) flushArms(batch []*arming) {
	type bizSlot struct {
		bizType   uint64
		partition int
	}
	keyOf := func(row *task.Task) bizSlot {
		shard, _ := t.cfg.Layout.ShardOf(row.JobID)
		return bizSlot{row.BizType, t.cfg.Layout.Partition(shard)}
	}
	index := make(map[bizSlot]int)
	var list []Arming
	var slots []*slotState
	t.mu.Lock()
	for _, a := range batch {
		for i := range a.tasks {
			row := &a.tasks[i]
			l := t.lines[row.BizType]
			if l == nil {
				continue // the type was switched meanwhile: the scan engine finds it
			}
			k := keyOf(row)
			s := &l.slots[k.partition]
			n, ok := index[k]
			if !ok {
				n = len(list)
				index[k] = n
				list, slots = append(list, Arming{Slot: s.slot}), append(slots, s)
			}
			list[n].Members = append(list[n].Members, memberOf(row))
			if h := s.held[row.JobID]; h.claims > 0 {
				h.changed = true
				s.held[row.JobID] = h
			}
		}
	}
	t.mu.Unlock()

	answers := t.slots.Arm(context.Background(), list)
	failed := false
	t.mu.Lock()
	for i, a := range answers {
		if a.Err != nil {
			failed = true
			t.cfg.Logger.Debug("tasks not armed; the sweep finds them", "topic", list[i].Slot.Topic, "partition", list[i].Slot.Partition, "tasks", len(list[i].Members), "error", a.Err)
			continue
		}
		for _, m := range list[i].Members {
			t.sooner(slots[i], m.At)
		}
	}
	t.mu.Unlock()
	if failed {
		var unarmed []task.Task
		for _, a := range batch {
			for i := range a.tasks {
				if n, ok := index[keyOf(&a.tasks[i])]; ok && answers[n].Err != nil {
					unarmed = append(unarmed, a.tasks[i])
				}
			}
		}
		t.unarmed(unarmed)
	}
	for _, a := range batch {
		t.arming.Add(-int64(len(a.tasks)))
		a.done.Done()
	}
}

func memberOf(row *task.Task) Member {
	return Member{JobID: row.JobID, At: row.ActionTime, Attempts: row.Attempts}
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
	bySlot := make(map[Slot]*Settling)
	again := &arming{}
	t.mu.Lock()
	for i := range rows {
		l := t.lines[rows[i].BizType]
		if l == nil {
			continue
		}
		s := t.slotOf(l, rows[i].JobID)
		if rows[i].Status == task.Pending && !rows[i].ActionTime.After(l.armUntil(now)) {
			if !s.out { // it is filled when Redis is back
				again.tasks = append(again.tasks, rows[i])
			}
			continue
		}
		slot := s.slot
		if bySlot[slot] == nil {
			bySlot[slot] = &Settling{Slot: slot}
		}
		bySlot[slot].Done = append(bySlot[slot].Done, rows[i].JobID)
	}
	t.mu.Unlock()
	list := make([]Settling, 0, len(bySlot))
	for _, s := range bySlot {
		list = append(list, *s)
	}
	t.slots.Settle(context.Background(), list)
	if len(again.tasks) > 0 && !t.addArming(again) {
		t.unarmed(again.tasks)
	}
}
