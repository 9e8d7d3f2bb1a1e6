package redistimer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// writer writes to the slots what has become of tasks: it arms them, and settles their claims.
type writer struct{ *node }

// armTimeout is how long a caller waits until its tasks are armed. It need not wait longer: a read finds
// tasks that are not armed.
const armTimeout = 100 * time.Millisecond

// maxArming bounds the tasks that are being armed at a server, so that a slow server does not fill the memory.
const maxArming = 100_000

// Moved implements dispatch.Timer. It arms the pending tasks of this engine that are due within the horizon: it puts
// them into their slots. Any node may call it; the owner of the slot is woken. A task that was stored some time ago is armed
// only if its slot lacks it. Arming cannot fail for the caller: tasks that could not be armed are counted, and a read finds them.
//
// It removes other tasks from their slots, in the background. If that fails, their claims find out.
func (t *Timer) Moved(changes []dispatch.Change) {
	if !t.InUse() {
		return
	}
	var arms, confirms []task.Task
	for i := range changes {
		switch c := &changes[i]; {
		case c.Row != nil && (c.Status == task.Processed || c.Status == task.Cancelled):
			t.finish(c.JobID, c.Row.BizType)
		case c.Status != task.Pending:
			t.claimer.load([]claim{{member: slots.Member{JobID: c.JobID}}})
		case c.Kind == dispatch.Edited && t.writer.follow(c.Row): // it may have been due sooner
		case c.Kind == dispatch.Confirmed:
			confirms = append(confirms, *c.Row)
		default:
			arms = append(arms, *c.Row)
		}
	}
	armed, confirmed := t.writer.arm(armed, arms), t.writer.arm(confirmed, confirms)
	armed.wait()
	confirmed.wait()
}

// armCall is a call of Moved that waits; nil: it arms nothing.
type armCall struct {
	left atomic.Int64  // number of its tasks that are being armed
	over chan struct{} // closed when there are none
}

func (c *armCall) done(tasks int) {
	if c.left.Add(-int64(tasks)) == 0 {
		close(c.over)
	}
}

// wait waits a little until the tasks are armed.
func (c *armCall) wait() {
	if c == nil {
		return
	}
	select {
	case <-c.over:
	case <-time.After(armTimeout):
	}
}

// arm puts tasks into their slots. It keeps the list.
func (w *writer) arm(as place, tasks []task.Task) *armCall {
	if len(tasks) == 0 {
		return nil
	}
	now, call := w.cfg.Now(), &armCall{over: make(chan struct{})}
	call.left.Add(1)
	var unarmed []task.Task
	writes := make(map[*server][]write, 1)
	w.mu.Lock()
	for i := range tasks {
		bt := w.bizTimers[tasks[i].BizType]
		if bt == nil || tasks[i].ActionTime.After(w.armUntil(bt.BizType, now)) {
			continue
		}
		id := slotID{bt, w.partitionOf(tasks[i].JobID)}
		switch srv := w.placement.serverAt(id.bizTimer, id.partition); {
		case !w.health.isServed(id.bizTimer, id.partition): // a read finds it once it is served
			w.cfg.Observer.ArmFailed(bt.BizType.BizType, 1)
		case srv.isSilent(now):
			unarmed = append(unarmed, tasks[i])
		default:
			writes[srv] = append(writes[srv], write{slotID: id, place: as, member: memberOf(&tasks[i]), row: &tasks[i], call: call})
		}
	}
	w.mu.Unlock()
	for srv, list := range writes {
		n := int64(len(list))
		if srv.arming.Add(n) > maxArming && n < maxArming {
			srv.arming.Add(-n)
			for i := range list {
				unarmed = append(unarmed, *list[i].row)
			}
			continue
		}
		call.left.Add(n)
		srv.writes.Add(list...)
	}
	w.reportUnarmed(unarmed)
	call.done(1)
	return call
}

// partitionOf returns the partition of a task.
func (n *node) partitionOf(jobID uint64) int {
	shard, _ := n.cfg.Layout.ShardOf(jobID)
	return n.cfg.Layout.Partition(shard)
}

// reportUnarmed records that tasks were stored and not armed, and notifies their owners, which can arm them.
func (w *writer) reportUnarmed(tasks []task.Task) {
	if len(tasks) == 0 {
		return
	}
	w.mu.Lock()
	for i := range tasks {
		if bt := w.bizTimers[tasks[i].BizType]; bt != nil {
			if p := w.partitionOf(tasks[i].JobID); w.health.isUsable(bt, p) {
				w.reader.request(p, nearFirst)
			}
			w.cfg.Observer.ArmFailed(bt.BizType.BizType, 1)
		}
	}
	w.mu.Unlock()
	w.cfg.Nodes.Notify(tasks...)
}

// flushArms arms tasks at a server.
func (w *writer) flushArms(srv *server, batch []write) {
	type key struct {
		slotID
		place place
	}
	index := make(map[key]int)
	var list []slots.ArmRequest
	var writes [][]write // by index of list
	var unarmed []task.Task
	w.mu.Lock()
	isSilent := srv.isSilent(w.cfg.Now()) // since the tasks were added
	for _, one := range batch {
		if isSilent {
			unarmed = append(unarmed, *one.row)
			continue
		}
		if one.bizTimer.closed {
			continue // the type changed its mode meanwhile: the scan engine finds the task
		}
		k := key{one.slotID, one.place}
		n, ok := index[k]
		if !ok {
			n = len(list)
			index[k] = n
			list, writes = append(list, slots.ArmRequest{Slot: one.slot()}), append(writes, nil)
			if one.place == confirmed {
				list[n].KeepUntil = w.cfg.Now().Add(time.Second)
			}
		}
		list[n].Members, writes[n] = append(list[n].Members, one.member), append(writes[n], one)
		one.bizTimer.slots[one.partition].recheck(one.member.JobID)
	}
	w.mu.Unlock()
	began := w.cfg.Now()
	answers := w.slots.Arm(context.Background(), list)

	w.mu.Lock()
	answered, failed := len(answers) == 0, error(nil)
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		w.health.recordWrite(srv, a.Err)
		if a.Err != nil {
			failed = a.Err
			w.mu.Log(w.cfg.Logger, slog.LevelDebug, "tasks not armed; a read finds them", "topic", list[i].Slot.Topic, "partition",
				list[i].Slot.Partition, "tasks", len(writes[i]), "error", a.Err)
		}
		for _, one := range writes[i] {
			if a.Err != nil {
				unarmed = append(unarmed, *one.row)
			} else {
				w.planner.advanceHead(one.bizTimer, one.partition, one.member.At)
			}
		}
	}
	w.health.recordCall(srv, began, answered, failed)
	w.mu.Unlock()
	w.reportUnarmed(unarmed)
	srv.arming.Add(-int64(len(batch)))
	for _, one := range batch {
		one.call.done(1)
	}
}

func memberOf(row *task.Task) slots.Member {
	return slots.Member{JobID: row.JobID, At: row.ActionTime, Attempts: row.Attempts}
}

// finish removes a task that is processed or cancelled from its slot.
func (t *Timer) finish(jobID, bizType uint64) {
	t.mu.Lock()
	bt, p := t.bizTimers[bizType], t.partitionOf(jobID)
	// If it is claimed, its claim is being settled, which may bring it back.
	settles := bt != nil && !bt.slots[p].recheck(jobID)
	t.mu.Unlock()
	if settles {
		t.writer.settle(write{slotID: slotID{bt, p}, place: done, member: slots.Member{JobID: jobID}})
	}
}

// follow removes a task from its slot that is not pending any more, or was moved beyond the horizon; a dead one goes into the dead
// queue. It returns false if the task is to be armed. The row may change before the removal, so it is read after it; see checkRemoved.
func (w *writer) follow(row *task.Task) bool {
	w.mu.Lock()
	bt := w.bizTimers[row.BizType]
	if bt == nil {
		w.mu.Unlock()
		return true
	}
	b := bt.BizType
	w.mu.Unlock()
	one := write{slotID: slotID{bt, w.partitionOf(row.JobID)}, place: w.placeOf(b, row), member: memberOf(row), isRemoval: true}
	if one.place == back {
		return false
	}
	one.member.At = row.Modified // if it is dead
	w.settle(one)
	return true
}

// PurgeDead removes from the dead queues of a partition what died before a time. What fails is left to the next call.
func (t *Timer) PurgeDead(ctx context.Context, partition int, before time.Time) {
	var list []slots.Slot
	t.mu.Lock()
	for _, bt := range t.bizTimers {
		if t.health.isServed(bt, partition) && !t.placement.serverAt(bt, partition).isSilent(t.cfg.Now()) {
			list = append(list, slots.Slot{Topic: bt.Topic, Partition: partition})
		}
	}
	t.mu.Unlock()
	t.slots.PurgeDead(ctx, list, before)
}
