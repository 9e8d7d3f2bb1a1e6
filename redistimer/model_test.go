package redistimer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/task"
)

// TestTimerAgreesWithAModel runs random cases of users, crashes and losses. In all cases a run starts only
// while its row is pending and due, and never beside another run of the same task. In the end each task has the
// status of a plain model. No task is in both queues of its slot, and without a fault none counts as lost. TOC_MODEL_TIME is how long cases are run, instead of a few of them; -rapid.checks is the most.
func TestTimerAgreesWithAModel(t *testing.T) {
	const few = 8
	var over atomic.Bool
	length, err := time.ParseDuration(cmp.Or(os.Getenv("TOC_MODEL_TIME"), "0"))
	require.NoError(t, err)
	if length > 0 {
		defer time.AfterFunc(length, func() { over.Store(true) }).Stop()
	}
	inBubble(t, func(t *testing.T, c *center) {
		agreesWithAModel(t, c, func(cases int) bool { return over.Load() || length == 0 && cases == few })
	})
}

// agreesWithAModel runs cases until it is enough.
func agreesWithAModel(t *testing.T, c *center, enough func(cases int) bool) {
	c.capacity, c.biz.Workers = 12, 3
	c.biz.BackoffMin, c.biz.BackoffMax, c.biz.MaxRetries = 5*time.Millisecond, 50*time.Millisecond, 20
	c.tick = 50 * time.Millisecond // so that reads meet all that goes on
	cases, failed := 0, false
	rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) { // which must not ask for the deadline of t: a bubble has none
		if !failed && enough(cases) {
			return // the remaining checks are skipped; a failure is still made shorter
		}
		cases++
		failed = true
		// Each case has a type of its own, so it does not meet tasks of other cases.
		c.biz.ID++
		c.biz.Topic = fmt.Sprintf("case_%d", cases)
		c.t = rt
		s := &modelCase{center: c, tasks: map[uint64]*modelTask{}, running: map[uint64]bool{}}
		defer s.close()
		c.process = s.process
		s.node = c.start(allPartitions...)
		actions := map[string]func(*rapid.T){
			"":              s.check,
			"submit":        s.submit,
			"submit more":   s.submit,
			"cancel":        s.cancel,
			"reschedule":    s.reschedule,
			"redrive":       s.redrive,
			"time passes":   s.wait,
			"Redis forgets": s.flush,
			"crash":         s.crash,
			"restart":       s.restart,
			"ownership":     s.own,
			"switch":        s.change,
		}
		if rapid.Bool().Draw(rt, "without faults") {
			for _, fault := range []string{"Redis forgets", "crash", "restart", "ownership", "switch"} {
				delete(actions, fault)
			}
		}
		s.lost = c.rearmedFor(redistimer.ReasonLost)
		rt.Repeat(actions)
		s.finish(rt)
		failed = false
	})
	c.t = t
	t.Logf("%d cases", cases)
	require.Greater(t, cases, 1)
}

// fate is the outcome of a task's runs.
type fate string

const (
	succeeds fate = "succeeds"
	failsTwo fate = "fails twice"
	unwanted fate = "is not wanted any more"
	hopeless fate = "fails each time"
)

var fates = []fate{succeeds, succeeds, succeeds, failsTwo, unwanted, hopeless}

// modelTask is the model of a task.
type modelTask struct {
	fate      fate
	failed    int
	cancelled bool // a cancel answered success
}

// final is the status of a task in the end.
func (m *modelTask) final() task.Status {
	switch {
	case m.cancelled, m.fate == unwanted:
		return task.Cancelled
	case m.fate == hopeless:
		return task.Dead
	default:
		return task.Processed
	}
}

type modelCase struct {
	*center
	node *node

	ids     []uint64 // in the order of submits
	rough   bool     // there were faults, too, besides users and time
	lost    int      // tasks that counted as lost before
	tasks   map[uint64]*modelTask
	running map[uint64]bool
	wrong   []string // guarded by center.mu, as tasks and running are
}

// process is the processor.
func (s *modelCase) process(ctx context.Context, t task.Task) error {
	row, err := s.store.Get(context.Background(), t.JobID)
	now := time.Now()
	s.mu.Lock()
	m := s.tasks[t.JobID]
	if m == nil { // its submit has not returned yet
		m = &modelTask{fate: fate(t.Attribute)}
		s.tasks[t.JobID] = m
	}
	switch {
	case err != nil:
		s.wrong = append(s.wrong, err.Error())
	case row.Status != task.Pending:
		s.wrong = append(s.wrong, fmt.Sprintf("task %d runs while it is %s", t.JobID, row.Status))
	case row.ActionTime.After(now):
		s.wrong = append(s.wrong, fmt.Sprintf("task %d runs %s early", t.JobID, row.ActionTime.Sub(now)))
	case s.running[t.JobID]:
		s.wrong = append(s.wrong, fmt.Sprintf("task %d runs twice at once", t.JobID))
	case m.cancelled:
		s.wrong = append(s.wrong, fmt.Sprintf("task %d runs although it was cancelled", t.JobID))
	case !s.rough && m.failed == 0 && now.Sub(row.ActionTime) > time.Second:
		s.wrong = append(s.wrong, fmt.Sprintf("task %d is %s late", t.JobID, now.Sub(row.ActionTime)))
	}
	s.running[t.JobID] = true
	f := m.fate
	s.mu.Unlock()
	timer := time.NewTimer(time.Duration(t.JobID>>10%8) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, t.JobID)
	switch {
	case f == unwanted:
		return processor.Discard(errors.New("order paid"))
	case f == hopeless, f == failsTwo && m.failed < 2:
		m.failed++
		return processor.RetryAfter(time.Millisecond, errors.New("the shop is closed"))
	}
	return nil
}

func (s *modelCase) check(rt *rapid.T) {
	for _, p := range allPartitions {
		both, err := s.redis.ZInter(context.Background(), &redis.ZStore{Keys: []string{s.slots.PrepareKey(s.slotOf(p)), s.slots.StoreKey(s.slotOf(p))}}).Result()
		require.NoError(rt, err)
		require.Empty(rt, both, "in both queues of slot %d", p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(rt, s.wrong)
	if !s.rough {
		require.Equal(rt, s.lost, s.rearmed[redistimer.ReasonLost], "tasks count as lost")
	}
}

func someDelay() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.SampledFrom([]int{0, 0, 5, 20, 45, 60, 120}), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond })
}

func (s *modelCase) submit(rt *rapid.T) {
	f := rapid.SampledFrom(fates).Draw(rt, "fate")
	bizID := rapid.Uint64Range(0, 7).Draw(rt, "biz_id")
	delay := someDelay().Draw(rt, "delay")
	got, err := s.node.desk.Submit(context.Background(), api.Submit{BizType: closeOrders, BizID: bizID, Delay: delay, Now: true, Attribute: string(f)})
	require.NoError(rt, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := uint64(got.Task.JobID)
	if s.ids = append(s.ids, id); s.tasks[id] == nil {
		s.tasks[id] = &modelTask{fate: f}
	}
}

// one picks a task.
func (s *modelCase) one(rt *rapid.T) uint64 {
	if len(s.ids) == 0 {
		rt.Skip("no task")
	}
	i := rapid.IntRange(0, len(s.ids)-1).Draw(rt, "task, counted from the last")
	return s.ids[len(s.ids)-1-i]
}

// allowed accepts the answers to a change of a task in any state.
func allowed(rt *rapid.T, err error) bool {
	var conflict *task.ConflictError
	if err != nil {
		require.ErrorAs(rt, err, &conflict)
	}
	return err == nil
}

func (s *modelCase) cancel(rt *rapid.T) {
	id := s.one(rt)
	if allowed(rt, s.node.desk.Cancel(context.Background(), id)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		require.False(rt, s.running[id], "cancelled while it runs")
		s.tasks[id].cancelled = true
	}
}

func (s *modelCase) reschedule(rt *rapid.T) {
	when := someDelay().Draw(rt, "delay")
	_, err := s.node.desk.Reschedule(context.Background(), s.one(rt), api.Change{Delay: &when})
	allowed(rt, err)
}

func (s *modelCase) redrive(rt *rapid.T) {
	id := s.one(rt)
	if s.row(id).Status != task.Dead {
		rt.Skip("not dead")
	}
	s.mu.Lock()
	s.tasks[id].fate = succeeds
	s.mu.Unlock()
	for { // it counts as running until the queue has its death
		if _, err := s.node.desk.Redrive(context.Background(), id); allowed(rt, err) {
			return
		}
	}
}

func (s *modelCase) wait(rt *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 60).Draw(rt, "ms")) * time.Millisecond) // in a bubble
}

func (s *modelCase) roughly() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rough = true
}

func (s *modelCase) flush(*rapid.T) {
	s.roughly()
	s.server.FlushAll()
}

func (s *modelCase) crash(*rapid.T) {
	s.roughly()
	s.node.crash()
	s.node = s.start(allPartitions...)
}

func (s *modelCase) restart(*rapid.T) {
	s.roughly()
	s.node.end()
	s.node = s.start(allPartitions...)
}

func (s *modelCase) own(rt *rapid.T) {
	s.roughly()
	p := rapid.SampledFrom(allPartitions).Draw(rt, "partition")
	mine := s.node.owned.Owns(p)
	s.node.owned.set(p, !mine)
	if mine && rapid.Bool().Draw(rt, "and back") { // before the timer notices
		s.node.owned.set(p, true)
	}
}

// change takes the type out of mode redis, or puts it back.
func (s *modelCase) change(*rapid.T) {
	s.roughly()
	if s.node.Serves(s.biz.ID, 0) {
		s.node.SetTypes(nil)
	} else {
		s.node.SetTypes([]redistimer.BizType{s.biz})
	}
}

// finish waits until all tasks have ended.
func (s *modelCase) finish(rt *rapid.T) {
	for _, p := range allPartitions {
		s.node.owned.set(p, true)
	}
	s.node.SetTypes([]redistimer.BizType{s.biz})
	// A type whose queue stays full takes no more of these.
	for range 2 * s.capacity {
		got, err := s.node.desk.Submit(context.Background(), api.Submit{BizType: closeOrders, BizID: 1, Now: true, Attribute: string(succeeds)})
		require.NoError(rt, err)
		s.mu.Lock()
		s.tasks[uint64(got.Task.JobID)] = &modelTask{fate: succeeds}
		s.mu.Unlock()
		s.ids = append(s.ids, uint64(got.Task.JobID))
	}
	var open []uint64
	deadline := time.Now().Add(await.Patience)
	for {
		rows, err := s.store.Load(context.Background(), s.ids)
		require.NoError(rt, err)
		require.Len(rt, rows, len(s.ids))
		open = open[:0]
		for _, row := range rows {
			if row.Status == task.Pending {
				open = append(open, row.JobID)
			}
		}
		s.check(rt)
		if len(open) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(2 * time.Millisecond) // in a bubble
	}
	for _, id := range open {
		stored, prepared := s.has(id)
		rt.Errorf("the task of submit %d is still pending; stored: %t, claimed: %t", slices.Index(s.ids, id)+1, stored, prepared)
	}
	for _, id := range s.ids {
		s.mu.Lock()
		want := s.tasks[id].final()
		s.mu.Unlock()
		require.Equal(rt, want, s.row(id).Status, "the task of submit %d", slices.Index(s.ids, id)+1)
	}
	for deadline = time.Now().Add(await.Patience); s.depth().Store+s.depth().Prepared > 0 && time.Now().Before(deadline); {
		time.Sleep(2 * time.Millisecond) // in a bubble
	}
	for i, id := range s.ids {
		stored, prepared := s.has(id)
		require.False(rt, stored || prepared, "the task of submit %d is left in its slot, stored: %t, claimed: %t", i+1, stored, prepared)
	}
}

func (s *modelCase) close() {
	if s.node != nil {
		s.node.end()
	}
}
