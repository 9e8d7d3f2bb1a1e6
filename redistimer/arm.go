package redistimer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// armCall has the tasks of one call of Place that are being armed at one server.
type armCall struct {
	server *server
	tasks  []task.Task
	keep   bool            // see slots.ArmRequest.KeepUntil
	done   *sync.WaitGroup // of the call of Place
}

// armTimeout is how long a caller waits until its tasks are armed. It need not wait longer: a read finds
// tasks that are not armed.
const armTimeout = 100 * time.Millisecond

// maxArming bounds the tasks that are being armed at a server, so that a slow server does not fill the memory.
const maxArming = 100_000

// Place implements dispatch.Engine. It arms the tasks of this engine that are due within the horizon: it puts
// them into their slots. Any node may call it; the owner of the slot is woken. (Forget removes a task that was
// moved beyond the horizon.)
//
// Arming cannot fail for the caller. Tasks that could not be armed are counted, and a read finds them.
func (t *Timer) Place(tasks ...task.Task) { t.arm(tasks, false) }

// Confirm implements dispatch.Timer. It arms what the slots lack of tasks that were stored some time ago.
func (t *Timer) Confirm(tasks ...task.Task) { t.arm(tasks, true) }

func (t *Timer) arm(tasks []task.Task, keep bool) {
	now := t.cfg.Now()
	var parts []*armCall
	var silent []task.Task
	t.mu.Lock()
	for i := range tasks {
		bt := t.bizTimers[tasks[i].BizType]
		if bt == nil || tasks[i].ActionTime.After(t.armUntil(bt.BizType, now)) {
			continue
		}
		p := t.partitionOf(tasks[i].JobID)
		switch srv := t.serverAt(bt, p); {
		case !t.isServed(bt, p):
			t.cfg.Observer.ArmFailed(bt.BizType.BizType, 1)
		case srv.isSilent(now):
			silent = append(silent, tasks[i])
		default:
			parts = addPart(parts, srv, tasks[i])
		}
	}
	t.mu.Unlock()
	if len(silent) > 0 {
		t.reportUnarmed(silent)
	}
	for _, a := range parts {
		a.keep = keep
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

// partitionOf returns the partition of a task.
func (t *Timer) partitionOf(jobID uint64) int {
	shard, _ := t.cfg.Layout.ShardOf(jobID)
	return t.cfg.Layout.Partition(shard)
}

// addPart adds a task to the armCall of its server.
func addPart(parts []*armCall, srv *server, row task.Task) []*armCall {
	i := slices.IndexFunc(parts, func(a *armCall) bool { return a.server == srv })
	if i < 0 {
		i, parts = len(parts), append(parts, &armCall{server: srv})
	}
	parts[i].tasks = append(parts[i].tasks, row)
	return parts
}

// queueArms queues tasks to be armed, unless too many are pending at their server. done ends when all are
// armed; it is nil if none was queued.
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

// reportUnarmed records that tasks were stored and not armed, and notifies their owners, which can arm them.
func (t *Timer) reportUnarmed(tasks []task.Task) {
	t.mu.Lock()
	for i := range tasks {
		if bt := t.bizTimers[tasks[i].BizType]; bt != nil {
			if p := t.partitionOf(tasks[i].JobID); t.isUsable(bt, p) {
				t.requestRead(p, nearFirst)
			}
			t.cfg.Observer.ArmFailed(bt.BizType.BizType, 1)
		}
	}
	t.mu.Unlock()
	t.cfg.Nodes.Notify(tasks...)
}

// flushArms arms the tasks of many calls in one pipeline.
func (t *Timer) flushArms(srv *server, batch []*armCall) {
	b := t.groupBySlot(batch)
	began := t.cfg.Now()
	answers := t.slots.Arm(context.Background(), b.list)
	if unarmed := t.recordArmed(srv, b, answers, began); len(unarmed) > 0 {
		t.reportUnarmed(unarmed)
	}
	for _, a := range batch {
		srv.armingTasks.Add(-int64(len(a.tasks)))
		a.done.Done()
	}
}

// armBatch has the tasks of many calls by slot.
type armBatch struct {
	list  []slots.ArmRequest
	types []*bizTimer    // by index of list
	rows  [][]*task.Task // by index of list
}

// groupBySlot groups tasks by slot.
func (t *Timer) groupBySlot(batch []*armCall) armBatch {
	var b armBatch
	type key struct {
		bizTimer  *bizTimer
		partition int
		keep      bool
	}
	index := make(map[key]int)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range batch {
		for i := range a.tasks {
			row := &a.tasks[i]
			bt := t.bizTimers[row.BizType]
			if bt == nil {
				continue // the type changed its mode meanwhile: the scan engine finds the task
			}
			p := t.partitionOf(row.JobID)
			n, ok := index[key{bt, p, a.keep}]
			if !ok {
				n = len(b.list)
				index[key{bt, p, a.keep}] = n
				one := slots.ArmRequest{Slot: slots.Slot{Topic: bt.Topic, Partition: p}}
				if a.keep {
					one.KeepUntil = t.cfg.Now().Add(time.Second)
				}
				b.list, b.types, b.rows = append(b.list, one), append(b.types, bt), append(b.rows, nil)
			}
			b.list[n].Members, b.rows[n] = append(b.list[n].Members, memberOf(row)), append(b.rows[n], row)
			bt.slots[p].recheck(row.JobID)
		}
	}
	return b
}

// recordArmed records the results of arming, and returns the tasks that were not armed.
func (t *Timer) recordArmed(srv *server, b armBatch, answers []slots.ArmResult, began time.Time) (unarmed []task.Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answered, failed := len(answers) == 0, error(nil)
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		t.recordWrite(srv, a.Err)
		if a.Err != nil {
			failed = a.Err
			t.mu.Log(t.cfg.Logger, slog.LevelDebug, "tasks not armed; a read finds them", "topic", b.list[i].Slot.Topic, "partition",
				b.list[i].Slot.Partition, "tasks", len(b.rows[i]), "error", a.Err)
			for _, row := range b.rows[i] {
				unarmed = append(unarmed, *row)
			}
			continue
		}
		for _, m := range b.list[i].Members {
			t.advanceHead(b.types[i], b.list[i].Slot.Partition, m.At)
		}
	}
	t.recordCall(srv, began, answered, failed)
	return unarmed
}

func memberOf(row *task.Task) slots.Member {
	return slots.Member{JobID: row.JobID, At: row.ActionTime, Attempts: row.Attempts}
}

// removal is a task to remove from its slot.
type removal struct {
	jobID   uint64
	isDone  bool   // it is processed or cancelled; false: its row shows the status
	bizType uint64 // if it is done
}

// Forget removes a task from its slot, in the background, because it is not pending any more or was moved
// beyond the horizon. If that fails, its claim finds out. A dead task stays in the dead queue, a finished one leaves it.
func (t *Timer) Forget(jobID uint64) { t.remove(removal{jobID: jobID}) }

// Finish is Forget for a task that is processed or cancelled.
func (t *Timer) Finish(jobID, bizType uint64) {
	t.remove(removal{jobID: jobID, isDone: true, bizType: bizType})
}

func (t *Timer) remove(r removal) {
	t.mu.Lock()
	none := len(t.bizTimers) == 0
	t.mu.Unlock()
	if !none {
		t.removals.Add(r)
	}
}

// flushRemovals reads the rows of tasks that are not known to be done. They show the slot of a task, and whether it is
// pending again. In that case it may have been armed before this removal, so it is armed again.
func (t *Timer) flushRemovals(batch []removal) {
	var unread []uint64
	for _, r := range batch {
		if !r.isDone {
			unread = append(unread, r.jobID)
		}
	}
	var rows []task.Task
	if len(unread) > 0 { // after an error these are the rows of the databases that answered
		rows, _ = t.cfg.Store.Load(context.Background(), unread)
	}
	now := t.cfg.Now()
	bySlot := make(map[slots.Slot]*slots.SettleRequest)
	requestOf := func(bt *bizTimer, p int) *slots.SettleRequest {
		slot := slots.Slot{Topic: bt.Topic, Partition: p}
		if bySlot[slot] == nil {
			bySlot[slot] = &slots.SettleRequest{Slot: slot}
		}
		return bySlot[slot]
	}
	var again []*armCall
	t.mu.Lock()
	for _, r := range batch {
		bt := t.bizTimers[r.bizType]
		if !r.isDone || bt == nil {
			continue
		}
		p := t.partitionOf(r.jobID)
		// If it is claimed, its claim is being settled, which may bring it back.
		if !bt.slots[p].recheck(r.jobID) && !t.serverAt(bt, p).isSilent(now) {
			request := requestOf(bt, p)
			request.Done = append(request.Done, r.jobID)
		}
	}
	for i := range rows {
		bt := t.bizTimers[rows[i].BizType]
		if bt == nil {
			continue
		}
		p := t.partitionOf(rows[i].JobID)
		srv := t.serverAt(bt, p)
		if rows[i].Status == task.Pending && !rows[i].ActionTime.After(t.armUntil(bt.BizType, now)) {
			if t.isServed(bt, p) { // otherwise a read finds it once it is served
				again = addPart(again, srv, rows[i])
			}
			continue
		}
		if srv.isSilent(now) {
			continue // the claim of the task finds out
		}
		request := requestOf(bt, p)
		if rows[i].Status == task.Dead {
			request.Dead = append(request.Dead, slots.Member{JobID: rows[i].JobID, At: rows[i].Modified})
			continue
		}
		request.Done = append(request.Done, rows[i].JobID)
	}
	t.mu.Unlock()
	list := make([]slots.SettleRequest, 0, len(bySlot))
	for _, s := range bySlot {
		list = append(list, *s)
	}
	t.slots.Settle(context.Background(), list)
	t.queueArms(again)
}

// PurgeDead removes from the dead queues of a partition what died before a time. What fails is left to the next call.
func (t *Timer) PurgeDead(ctx context.Context, partition int, before time.Time) {
	var list []slots.Slot
	t.mu.Lock()
	for _, bt := range t.bizTimers {
		if t.isServed(bt, partition) && !t.serverAt(bt, partition).isSilent(t.cfg.Now()) {
			list = append(list, slots.Slot{Topic: bt.Topic, Partition: partition})
		}
	}
	t.mu.Unlock()
	t.slots.PurgeDead(ctx, list, before)
}
