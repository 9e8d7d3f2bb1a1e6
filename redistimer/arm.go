package redistimer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/task"
)

// writer writes to the slots what has become of tasks: it arms them, and settles their claims.
type writer struct {
	*node
	removals *groupcommit.Group[removal] // tasks to remove from their slots
}

func newWriter(n *node) *writer {
	w := &writer{node: n}
	w.removals = groupcommit.New(1000, 1, w.flushRemovals)
	return w
}

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
func (t *Timer) Place(tasks ...task.Task) { t.writer.arm(tasks, false) }

// Confirm implements dispatch.Timer. It arms what the slots lack of tasks that were stored some time ago.
func (t *Timer) Confirm(tasks ...task.Task) { t.writer.arm(tasks, true) }

func (w *writer) arm(tasks []task.Task, keep bool) {
	now := w.cfg.Now()
	var parts []*armCall
	var silent []task.Task
	w.mu.Lock()
	for i := range tasks {
		bt := w.bizTimers[tasks[i].BizType]
		if bt == nil || tasks[i].ActionTime.After(w.armUntil(bt.BizType, now)) {
			continue
		}
		p := w.partitionOf(tasks[i].JobID)
		switch srv := w.placement.serverAt(bt, p); {
		case !w.health.isServed(bt, p):
			w.cfg.Observer.ArmFailed(bt.BizType.BizType, 1)
		case srv.isSilent(now):
			silent = append(silent, tasks[i])
		default:
			parts = addPart(parts, srv, tasks[i])
		}
	}
	w.mu.Unlock()
	if len(silent) > 0 {
		w.reportUnarmed(silent)
	}
	for _, a := range parts {
		a.keep = keep
	}
	done := w.queueArms(parts)
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
func (n *node) partitionOf(jobID uint64) int {
	shard, _ := n.cfg.Layout.ShardOf(jobID)
	return n.cfg.Layout.Partition(shard)
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
func (w *writer) queueArms(parts []*armCall) (done *sync.WaitGroup) {
	for _, a := range parts {
		n := int64(len(a.tasks))
		if a.server.armingTasks.Add(n) > maxArming && n < maxArming {
			a.server.armingTasks.Add(-n)
			w.reportUnarmed(a.tasks)
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
func (w *writer) reportUnarmed(tasks []task.Task) {
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

// flushArms arms the tasks of many calls in one pipeline.
func (w *writer) flushArms(srv *server, batch []*armCall) {
	b := w.groupBySlot(batch)
	began := w.cfg.Now()
	answers := w.slots.Arm(context.Background(), b.list)
	if unarmed := w.recordArmed(srv, b, answers, began); len(unarmed) > 0 {
		w.reportUnarmed(unarmed)
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
func (w *writer) groupBySlot(batch []*armCall) armBatch {
	var b armBatch
	type key struct {
		bizTimer  *bizTimer
		partition int
		keep      bool
	}
	index := make(map[key]int)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range batch {
		for i := range a.tasks {
			row := &a.tasks[i]
			bt := w.bizTimers[row.BizType]
			if bt == nil {
				continue // the type changed its mode meanwhile: the scan engine finds the task
			}
			p := w.partitionOf(row.JobID)
			n, ok := index[key{bt, p, a.keep}]
			if !ok {
				n = len(b.list)
				index[key{bt, p, a.keep}] = n
				one := slots.ArmRequest{Slot: slots.Slot{Topic: bt.Topic, Partition: p}}
				if a.keep {
					one.KeepUntil = w.cfg.Now().Add(time.Second)
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
func (w *writer) recordArmed(srv *server, b armBatch, answers []slots.ArmResult, began time.Time) (unarmed []task.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answered, failed := len(answers) == 0, error(nil)
	for i, a := range answers {
		answered = answered || slots.IsAnswer(a.Err)
		w.health.recordWrite(srv, a.Err)
		if a.Err != nil {
			failed = a.Err
			w.mu.Log(w.cfg.Logger, slog.LevelDebug, "tasks not armed; a read finds them", "topic", b.list[i].Slot.Topic, "partition",
				b.list[i].Slot.Partition, "tasks", len(b.rows[i]), "error", a.Err)
			for _, row := range b.rows[i] {
				unarmed = append(unarmed, *row)
			}
			continue
		}
		for _, m := range b.list[i].Members {
			w.planner.advanceHead(b.types[i], b.list[i].Slot.Partition, m.At)
		}
	}
	w.health.recordCall(srv, began, answered, failed)
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
func (t *Timer) Forget(jobID uint64) { t.writer.remove(removal{jobID: jobID}) }

// Finish is Forget for a task that is processed or cancelled.
func (t *Timer) Finish(jobID, bizType uint64) {
	t.writer.remove(removal{jobID: jobID, isDone: true, bizType: bizType})
}

func (w *writer) remove(r removal) {
	w.mu.Lock()
	none := len(w.bizTimers) == 0
	w.mu.Unlock()
	if !none {
		w.removals.Add(r)
	}
}

// flushRemovals reads the rows of tasks that are not known to be done. They show the slot of a task, and whether it is
// pending again. In that case it may have been armed before this removal, so it is armed again.
func (w *writer) flushRemovals(batch []removal) {
	var unread []uint64
	for _, r := range batch {
		if !r.isDone {
			unread = append(unread, r.jobID)
		}
	}
	var rows []task.Task
	if len(unread) > 0 { // after an error these are the rows of the databases that answered
		rows, _ = w.cfg.Store.Load(context.Background(), unread)
	}
	now := w.cfg.Now()
	bySlot := make(map[slots.Slot]*slots.SettleRequest)
	requestOf := func(bt *bizTimer, p int) *slots.SettleRequest {
		slot := slots.Slot{Topic: bt.Topic, Partition: p}
		if bySlot[slot] == nil {
			bySlot[slot] = &slots.SettleRequest{Slot: slot}
		}
		return bySlot[slot]
	}
	var again []*armCall
	w.mu.Lock()
	for _, r := range batch {
		bt := w.bizTimers[r.bizType]
		if !r.isDone || bt == nil {
			continue
		}
		p := w.partitionOf(r.jobID)
		// If it is claimed, its claim is being settled, which may bring it back.
		if !bt.slots[p].recheck(r.jobID) && !w.placement.serverAt(bt, p).isSilent(now) {
			request := requestOf(bt, p)
			request.Done = append(request.Done, r.jobID)
		}
	}
	for i := range rows {
		bt := w.bizTimers[rows[i].BizType]
		if bt == nil {
			continue
		}
		p := w.partitionOf(rows[i].JobID)
		srv := w.placement.serverAt(bt, p)
		if rows[i].Status == task.Pending && !rows[i].ActionTime.After(w.armUntil(bt.BizType, now)) {
			if w.health.isServed(bt, p) { // otherwise a read finds it once it is served
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
	w.mu.Unlock()
	list := make([]slots.SettleRequest, 0, len(bySlot))
	for _, s := range bySlot {
		list = append(list, *s)
	}
	w.slots.Settle(context.Background(), list)
	w.queueArms(again)
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
