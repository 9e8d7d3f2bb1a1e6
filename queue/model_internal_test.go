package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// model is a store of rows, and all users of the queue, each of which may stop between any two steps. Its clock
// is set.
type model struct {
	*rapid.T
	q         *Queue
	now       time.Time
	consumers map[uint64]Source // by biz_type

	store    map[uint64]*modelRow
	holds    []*modelHold
	reads    []*modelRead
	checks   []*modelCheck
	runs     []*modelRun
	receipts []*modelReceipt

	// known are tasks that the queue is responsible for: each is in it, or at or after a resume point.
	known map[uint64]bool
}

type modelRow struct {
	task.Task
	byHand bool // changed by plain SQL: a page or a check may be older than that
}

type modelHold struct {
	*Hold
	id uint64
}

type modelRead struct {
	*Read
	rows []task.Task // as they were when the read began
	left map[uint64]bool
}

type modelCheck struct {
	entries []*Entry
	rows    map[uint64]task.Task
}

type modelRun struct {
	*Entry
	recorded *task.Task // nil: still running
	again    bool
}

const (
	modelPartitions = 2
	modelLookahead  = 3 * time.Second
)

// bizType has a backlog of its own in one case.
func (m *model) bizType(id uint64) task.BizType {
	return task.BizType{ID: id, Workers: 8, CatchUp: int(id - 1)}
}

func partitionOf(id uint64) int { return int(id % modelPartitions) }

// modelReceipt must be called once, and never under the queue's lock.
type modelReceipt struct {
	m     *model
	calls int
}

func (r *modelReceipt) Ack(task.Task)     { r.note() }
func (r *modelReceipt) Release(task.Task) { r.note() }

func (r *modelReceipt) note() {
	require.True(r.m, r.m.q.mu.TryLock(), "called under the lock")
	r.m.q.mu.Unlock()
	r.calls++
	require.Equal(r.m, 1, r.calls, "called twice")
}

func (m *model) item(t task.Task) Item {
	r := &modelReceipt{m: m}
	m.receipts = append(m.receipts, r)
	return Item{Task: t, Partition: partitionOf(t.JobID), Receipt: r}
}

// TestModel does random things to a queue and compares it with what must be true
// after each of them.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			T: rt, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			consumers: map[uint64]Source{}, store: map[uint64]*modelRow{}, known: map[uint64]bool{},
		}
		m.q = New(Config{
			Capacity: rapid.IntRange(1, 6).Draw(rt, "capacity"), Partitions: modelPartitions,
			Now: func() time.Time { return m.now },
		})
		m.consumers[1], m.consumers[2] = m.q.AddType(m.bizType(1)), m.q.AddType(m.bizType(2))
		rt.Repeat(map[string]func(*rapid.T){
			"insert":     m.insert,
			"by hand":    m.changeByHand,
			"hold":       m.hold,
			"let go":     m.letGo,
			"begin read": m.beginRead,
			"offer":      m.offer,
			"end read":   m.endRead,
			"take":       m.take,
			"record":     m.record,
			"done":       m.done,
			"check":      m.check,
			"checked":    m.checked,
			"refill":     func(*rapid.T) { m.refill() },
			"set anew":   m.setAnew,
			"drop":       m.drop,
			"time": func(rt *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 1500).Draw(rt, "ms")) * time.Millisecond)
			},
			"long time": func(*rapid.T) { m.now = m.now.Add(limits.LateAfter) },
			"":          func(*rapid.T) { m.verify() },
		})
		m.drain()
	})
}

func (m *model) drawID(rt *rapid.T, ok func(*modelRow) bool) (uint64, bool) {
	var ids []uint64
	for id, row := range m.store {
		if ok(row) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(ids).Draw(rt, "id"), true
}

// draw picks one of a list; ok is false if there is none.
func draw[T any](rt *rapid.T, list []T) (i int, ok bool) {
	if len(list) == 0 {
		return 0, false
	}
	return rapid.IntRange(0, len(list)-1).Draw(rt, "which"), true
}

func (m *model) drawDue(rt *rapid.T) time.Time {
	return m.now.Add(time.Duration(rapid.IntRange(-500, 4000).Draw(rt, "due")) * time.Millisecond)
}

func (m *model) isWithinLookahead(due time.Time) bool { return !due.After(m.now.Add(modelLookahead)) }

func (m *model) pending(p int, bizType uint64, from task.Key) (rows []task.Task) {
	for _, row := range m.store {
		if row.Status == task.Pending && partitionOf(row.JobID) == p && m.isWithinLookahead(row.ActionTime) &&
			(bizType == 0 || row.BizType == bizType) && !task.KeyOf(&row.Task).Before(from) {
			rows = append(rows, row.Task)
		}
	}
	slices.SortFunc(rows, func(a, b task.Task) int {
		if task.KeyOf(&a).Before(task.KeyOf(&b)) {
			return -1
		}
		return 1
	})
	return rows
}

// left records that a task left the queue for good, for the open reads.
func (m *model) left(id uint64) {
	delete(m.known, id)
	for _, r := range m.reads {
		r.left[id] = true
	}
}

// insert is a submit: held, stored, requeued.
func (m *model) insert(rt *rapid.T) {
	id := uint64(len(m.store) + 1)
	row := &modelRow{Task: task.Task{JobID: id, BizType: rapid.Uint64Range(1, 2).Draw(rt, "type"), ActionTime: m.drawDue(rt)}}
	if !m.isWithinLookahead(row.ActionTime) || rapid.Bool().Draw(rt, "elsewhere") {
		m.store[id] = row
		return
	}
	h, err := m.q.Hold(context.Background(), id, partitionOf(id))
	require.NoError(rt, err)
	m.store[id] = row
	m.put(h, row)
}

func (m *model) put(h *Hold, row *modelRow) {
	m.left(row.JobID)
	h.Requeue(m.item(row.Task), true)
	m.known[row.JobID] = true
}

func (m *model) changeByHand(rt *rapid.T) {
	id, ok := m.drawID(rt, func(*modelRow) bool { return true })
	if !ok {
		return
	}
	row := m.store[id]
	row.byHand = true
	row.Status = rapid.SampledFrom([]task.Status{task.Pending, task.Cancelled}).Draw(rt, "status")
	row.ActionTime = m.drawDue(rt)
	delete(m.known, id)
}

func (m *model) hold(rt *rapid.T) {
	id, ok := m.drawID(rt, func(row *modelRow) bool {
		return !slices.ContainsFunc(m.holds, func(h *modelHold) bool { return h.id == row.JobID })
	})
	if !ok {
		return
	}
	h, err := m.q.Hold(context.Background(), id, partitionOf(id))
	running := slices.ContainsFunc(m.runs, func(r *modelRun) bool { return r.ID() == id })
	require.Equal(rt, running, err != nil, "a running task, and only it, cannot be held")
	if err == nil {
		m.holds = append(m.holds, &modelHold{h, id})
	}
}

func (m *model) letGo(rt *rapid.T) {
	i, ok := draw(rt, m.holds)
	if !ok {
		return
	}
	h := m.holds[i]
	m.holds = slices.Delete(m.holds, i, i+1)
	row := m.store[h.id]
	switch rapid.IntRange(0, 2).Draw(rt, "how") {
	case 0:
		h.Restore()
	case 1:
		if row.Status == task.Pending {
			row.Status, row.byHand = task.Cancelled, false
		}
		m.left(h.id)
		h.Remove()
	default:
		row.Status, row.byHand, row.ActionTime = task.Pending, false, m.drawDue(rt)
		if m.isWithinLookahead(row.ActionTime) {
			m.put(h.Hold, row)
		} else {
			m.left(h.id)
			h.Remove()
		}
	}
}

func (m *model) beginRead(rt *rapid.T) {
	p := rapid.IntRange(0, modelPartitions-1).Draw(rt, "partition")
	m.reads = append(m.reads, &modelRead{Read: m.q.BeginRead(p), left: map[uint64]bool{}})
	m.reads[len(m.reads)-1].rows = m.pending(p, 0, task.Key{})
}

func (m *model) offer(rt *rapid.T) {
	if i, ok := draw(rt, m.reads); ok {
		m.offerRows(m.reads[i])
	}
}

func (m *model) offerRows(r *modelRead) {
	items := make([]Item, len(r.rows))
	for i, t := range r.rows {
		items[i] = m.item(t)
		row := m.store[t.JobID]
		if !r.left[t.JobID] && row.Status == task.Pending && !row.byHand {
			m.known[t.JobID] = true
		}
	}
	m.q.Offer(r.Read, items...)
}

func (m *model) endRead(rt *rapid.T) {
	if i, ok := draw(rt, m.reads); ok {
		m.reads[i].End()
		m.reads = slices.Delete(m.reads, i, i+1)
	}
}

func (m *model) take(rt *rapid.T) {
	m.takeFrom(rapid.Uint64Range(1, 2).Draw(rt, "type"), rapid.IntRange(1, 3).Draw(rt, "max"))
}

func (m *model) takeFrom(bizType uint64, most int) {
	c := m.consumers[bizType]
	entries, _, _, err := m.q.take(c.bizQueue, c.door, most)
	require.NoError(m, err)
	require.LessOrEqual(m, len(entries), most)
	for _, e := range entries {
		id, row := e.ID(), m.store[e.ID()]
		for _, r := range m.runs {
			require.NotEqual(m, id, r.ID(), "runs twice at once")
		}
		require.False(m, e.Task.ActionTime.After(m.now), "task %d is early", id)
		if !row.byHand {
			require.Equal(m, row.Task, e.Task, "task %d runs on a stale row", id)
		}
		m.runs = append(m.runs, &modelRun{Entry: e})
	}
}

// record makes the outcome of a run durable. Another step calls Done.
func (m *model) record(rt *rapid.T) {
	i, ok := draw(rt, m.runs)
	if !ok || m.runs[i].recorded != nil {
		return
	}
	m.recordAs(m.runs[i], rapid.SampledFrom([]task.Status{task.Processed, task.Dead, task.Pending}).Draw(rt, "outcome"), m.drawDue(rt))
}

func (m *model) recordAs(r *modelRun, s task.Status, next time.Time) {
	row := m.store[r.ID()]
	if row.Status == task.Pending { // else it is fenced
		row.Status, row.byHand = s, false
		if s == task.Pending {
			row.Attempts++
			row.ActionTime = next
			r.again = m.isWithinLookahead(next)
		}
	}
	recorded := row.Task
	r.recorded = &recorded
}

func (m *model) done(rt *rapid.T) {
	i, ok := draw(rt, m.runs)
	if !ok || m.runs[i].recorded == nil {
		return
	}
	m.doneWith(m.runs[i])
	m.runs = slices.Delete(m.runs, i, i+1)
}

func (m *model) doneWith(r *modelRun) {
	m.left(r.ID())
	m.q.Done(r.Entry, *r.recorded, r.again)
	if row := m.store[r.ID()]; r.again && row.Status == task.Pending && !row.byHand {
		m.known[r.ID()] = true
	}
}

func (m *model) check(*rapid.T) {
	entries, _ := m.q.nextChecks()
	if len(entries) == 0 {
		return
	}
	c := &modelCheck{entries: entries, rows: map[uint64]task.Task{}}
	for _, e := range entries {
		if row := m.store[e.ID()]; row.JobID%7 != 0 || row.Status == task.Pending { // now and then a row is purged
			c.rows[e.ID()] = row.Task
		}
	}
	m.checks = append(m.checks, c)
}

func (m *model) checked(rt *rapid.T) {
	i, ok := draw(rt, m.checks)
	if !ok {
		return
	}
	c := m.checks[i]
	m.checks = slices.Delete(m.checks, i, i+1)
	if rapid.IntRange(0, 4).Draw(rt, "down") == 0 {
		m.q.FailChecks(c.entries)
		return
	}
	for _, e := range c.entries {
		if row, ok := c.rows[e.ID()]; e.state == checking && (!ok || row.Status != task.Pending) {
			m.left(e.ID())
		}
	}
	m.q.ApplyChecks(c.entries, c.rows)
}

// refill resumes reading; false if there is no place now.
func (m *model) refill() bool {
	f, ok := m.q.nextRefill()
	if !ok {
		return false
	}
	read := m.q.BeginRead(f.Partition)
	items := []Item{}
	for _, t := range m.pending(f.Partition, f.BizType, f.From) {
		items = append(items, m.item(t))
	}
	m.q.Offer(read, items...)
	read.End()
	return true
}

func (m *model) setAnew(rt *rapid.T) {
	if rapid.IntRange(0, 9).Draw(rt, "rarely") > 0 {
		return
	}
	b := rapid.Uint64Range(1, 2).Draw(rt, "type")
	m.q.RemoveType(b)
	m.consumers[b] = m.q.AddType(m.bizType(b))
	for id, row := range m.store {
		if row.BizType == b {
			delete(m.known, id)
		}
	}
}

func (m *model) drop(rt *rapid.T) {
	if rapid.IntRange(0, 9).Draw(rt, "rarely") > 0 {
		return
	}
	p := rapid.IntRange(0, modelPartitions-1).Draw(rt, "partition")
	m.q.DropPartitions(func(lost int) bool { return lost == p })
	for id := range m.store {
		if partitionOf(id) == p {
			delete(m.known, id)
		}
	}
}

// verify compares the queue with what must be true at any time.
func (m *model) verify() {
	inHeap := map[*Entry]bool{}
	for bizType, b := range m.q.bizQueues {
		require.LessOrEqual(m, b.size(), b.capacity, "type %d holds too much", bizType)
		require.Len(m, b.latest, len(b.waiting))
		for i, e := range b.waiting {
			require.True(m, e.state == waiting && e.index == i && b.latest[e.latestIndex] == e && i == 0 || !e.sooner(b.waiting[(i-1)/2]))
			require.True(m, e.latestIndex == 0 || !b.latest[(e.latestIndex-1)/2].before(e))
			inHeap[e] = true
		}
		late := 0
		for c, heap := range b.ready {
			for i, e := range heap {
				require.True(m, e.state == ready && e.class == class(c) && e.late == (e.class == lateRun) && e.index == i && (i == 0 || !e.before(heap[(i-1)/2])))
				inHeap[e] = true
			}
		}
		for _, e := range m.q.entries {
			if e.bizQueue == b && e.late {
				late++
			}
		}
		require.Equal(m, late, b.late)
	}
	counts := map[*bizQueue][2]int{}
	for id, e := range m.q.entries {
		require.Equal(m, id, e.ID())
		require.Equal(m, e.state == waiting || e.state == ready, inHeap[e])
		delete(inHeap, e)
		n := counts[e.bizQueue]
		switch e.state {
		case checking:
			n[0]++
		case running:
			n[1]++
		}
		counts[e.bizQueue] = n
	}
	require.Empty(m, inHeap, "in a heap and not in the entries")
	for _, b := range m.q.bizQueues {
		require.Equal(m, [2]int{b.checking, b.running}, counts[b])
	}
	for id := range m.known {
		if m.q.entries[id] != nil {
			continue
		}
		row := m.store[id]
		place, ok := m.q.bizQueues[row.BizType].resume[partitionOf(id)]
		require.True(m, ok && !task.KeyOf(&row.Task).Before(place), "task %d was lost", id)
	}
}

func (m *model) endRuns() {
	for _, r := range m.runs {
		if r.recorded == nil {
			m.recordAs(r, task.Processed, time.Time{})
		}
		m.doneWith(r)
	}
	m.runs = nil
}

// drain runs everything to its end. After one more tick, and without another one, every task that is due must
// run.
func (m *model) drain() {
	for _, h := range m.holds {
		h.Restore()
	}
	for _, r := range m.reads {
		r.End()
	}
	m.reads = nil
	for _, c := range m.checks {
		m.q.FailChecks(c.entries)
	}
	m.endRuns()
	for p := range modelPartitions {
		m.q.ClearResume(p, nil)
		r := &modelRead{Read: m.q.BeginRead(p), rows: m.pending(p, 0, task.Key{})}
		m.offerRows(r)
		r.End()
	}
	end := m.now.Add(modelLookahead)
	m.now = end
	due := 0
	for _, row := range m.store {
		if row.Status == task.Pending && !row.ActionTime.After(end) {
			due++
		}
	}
	for range 10 * (due + len(m.runs) + 1) {
		m.endRuns()
		m.now = m.now.Add(10 * time.Millisecond)
		for m.refill() {
		}
		if entries, _ := m.q.nextChecks(); len(entries) > 0 {
			rows := map[uint64]task.Task{}
			for _, e := range entries {
				rows[e.ID()] = m.store[e.ID()].Task
			}
			m.q.ApplyChecks(entries, rows)
		}
		m.takeFrom(1, 3)
		m.takeFrom(2, 3)
		m.verify()
	}
	for id, row := range m.store {
		if !row.ActionTime.After(end) {
			require.NotEqual(m, task.Pending, row.Status, "task %d never ran", id)
		}
	}
	m.endRuns()
	m.q.Close()
	require.Empty(m, m.q.entries)
	for _, r := range m.receipts {
		require.Equal(m, 1, r.calls, "a receipt was forgotten")
	}
}
