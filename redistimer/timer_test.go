package redistimer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestTimerEmbedded(t *testing.T) {
	t.Parallel()
	exerciseTimer(t, nil)
}

func TestTimerServer(t *testing.T) {
	t.Parallel()
	exerciseTimer(t, sharedRedis)
}

// exerciseTimer tests the contract of the engine on every kind of Redis: at a place, or in bubbles if it is nil.
func exerciseTimer(t *testing.T, place slotPlace) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, c *center)
		pace bool // the test needs a machine that keeps pace with the clock, as in a bubble
	}{
		{"a task fires once, at its time", firesOnce, false},
		{"any node wakes the owner", wakesTheOwner, false},
		{"a failed run comes back at its back-off", backsOff, false},
		{"the dead are kept, and redriven", diesAndLives, false},
		{"the dead are discarded, and purged", diesForGood, false},
		{"a claim that arrives after it was given up is rolled back", recoversLateClaims, true},
		{"a held claim does not expire", keepsHeldClaims, true},
		{"a slow type claims only what it has room for", keepsToItsRoom, true},
		{"a queue of one", hasRoomForOne, false},
		{"another node takes a partition over", changesHands, true},
		{"a partition is handed over", handsOver, false},
		{"tasks that were not armed are reported, and found", findsWhatIsNotArmed, true},
		{"a change meets a settle on its way", changesWhileSettling, false},
		{"a task is finished while its claim is settled", finishesWhileSettling, true},
		{"a task goes far away and comes back at once", goesAndComesBack, true},
	} {
		switch {
		case place == nil:
			t.Run(c.name, func(t *testing.T) { inBubble(t, c.test) })
		case !c.pace:
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.test(t, open(t, place))
			})
		}
	}
}

func firesOnce(t *testing.T, c *center) {
	n := c.start(allPartitions...)
	ids := make([]uint64, 60)
	for i := range ids {
		ids[i] = n.submit(uint64(i), time.Duration(rand.IntN(700))*time.Millisecond).JobID
	}
	for _, id := range ids {
		c.settled(id, task.Processed)
		require.Len(t, c.runsOf(id), 1)
	}
	require.Equal(t, depth{}, c.depth())
}

// Rows that are due soon are also read every few seconds. A node that does not own the slot must be faster than that,
// each time: a bubble shows it.
func wakesTheOwner(t *testing.T, c *center) {
	c.start(allPartitions...)
	c.allRead()
	other := c.start()
	for i := range 12 {
		asked := time.Now()
		id := other.submit(uint64(i), 20*time.Millisecond).JobID
		c.settled(id, task.Processed)
		if c.server != nil {
			require.Less(t, time.Since(asked), time.Second)
		}
	}
}

func backsOff(t *testing.T, c *center) {
	c.process = func(_ context.Context, t task.Task) error {
		if t.Attempts < 3 {
			return errors.New("the shop is closed")
		}
		return nil
	}
	n := c.start(allPartitions...)
	id := n.submit(1, 0).JobID
	require.Equal(t, 3, c.settled(id, task.Processed).Attempts)
	runs := c.runsOf(id)
	require.Len(t, runs, 4)
	for i := 1; i < len(runs); i++ {
		require.GreaterOrEqual(t, runs[i].at.Sub(runs[i-1].at), c.biz.BackoffMin<<(i-1))
	}
}

func diesAndLives(t *testing.T, c *center) {
	c.biz.MaxRetries = 0
	var open atomic.Bool
	c.process = func(context.Context, task.Task) error {
		if open.Load() {
			return nil
		}
		return errors.New("the shop is closed")
	}
	n := c.start(allPartitions...)
	id := n.submit(1, 0).JobID
	c.settled(id, task.Dead)
	isKept := func() bool { return c.score(c.slots.DeadKey(c.slot(id)), id) != 0 }
	c.eventually(isKept, "it is not among the dead")
	// A submit may arm its task after the scanner has found it in the store, and after its death.
	c.slots.Arm(t.Context(), []slots.ArmRequest{{Slot: c.slot(id), Members: []slots.Member{{JobID: id, At: time.Now()}}}})
	c.settled(id, task.Dead)
	c.eventually(isKept, "it is not among the dead any more")
	open.Store(true)
	_, err := n.desk.Redrive(t.Context(), id)
	require.NoError(t, err)
	c.settled(id, task.Processed)
	c.eventually(func() bool { return c.depth() == depth{} }, "it is in its slot still") // its arming may come after its end, too
}

// diesForGood: a task that was discarded leaves the dead queue, one whose discard was undone is in it again, and what died
// long ago leaves it, too.
func diesForGood(t *testing.T, c *center) {
	c.biz.MaxRetries = 0
	c.process = func(context.Context, task.Task) error { return errors.New("the shop is closed") }
	n := c.start(allPartitions...)
	id := n.submit(1, 0).JobID
	isKept := func() bool { return c.score(c.slots.DeadKey(c.slot(id)), id) != 0 }
	died := c.settled(id, task.Dead).Modified
	c.eventually(isKept, "it is not among the dead")
	changed, err := n.desk.DiscardDead(t.Context(), api.DeadRequest{})
	require.NoError(t, err)
	require.Equal(t, 1, changed.Discarded)
	c.eventually(func() bool { return !isKept() }, "it is among the dead still")

	id = n.submit(2, time.Hour).JobID // becomes dead as by an undo
	_, err = c.store.Move(t.Context(), store.Move{JobID: id, From: task.Pending, To: task.Dead})
	require.NoError(t, err)
	n.Moved([]dispatch.Change{{JobID: id, Status: task.Dead}})
	c.eventually(isKept, "it is not among the dead again")
	p := c.slot(id).Partition
	n.PurgeDead(t.Context(), p, died)
	require.True(t, isKept())
	n.PurgeDead(t.Context(), p, time.Now().Add(time.Minute))
	require.False(t, isKept())
}

// gate delays runs until it is opened.
type gate struct {
	opened chan struct{}
	once   sync.Once
	inside atomic.Int32
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

func (g *gate) process(ctx context.Context, _ task.Task) error {
	g.inside.Add(1)
	defer g.inside.Add(-1)
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Redis may serve a call long after it timed out here, when the earlier claims have been settled or rolled
// back. Only the number of claims shows it.
func recoversLateClaims(t *testing.T, c *center) {
	n := c.start(allPartitions...)
	c.allRead()
	id := n.submit(1, time.Second).JobID
	late := c.slots.Claim(t.Context(), []slots.ClaimRequest{
		{Slot: c.slot(id), Limit: 10, Ahead: time.Hour, Visibility: c.biz.Visibility}})[0]
	require.NoError(t, late.Err)
	require.Len(t, late.Members, 1)
	c.settled(id, task.Processed)
	require.Len(t, c.runsOf(id), 1)
	require.Zero(t, c.runsOf(id)[0].task.Attempts)
}

func keepsHeldClaims(t *testing.T, c *center) {
	c.biz.Visibility, c.biz.Workers = 100*time.Millisecond, 2
	g := newGate()
	c.process = func(ctx context.Context, t task.Task) error {
		if t.Attribute == "long" {
			return g.process(ctx, t)
		}
		return nil
	}
	n := c.start(allPartitions...)
	got, err := n.desk.Submit(t.Context(), api.Submit{BizType: closeOrders, BizID: 1, Now: true, Attribute: "long"})
	require.NoError(t, err)
	id := uint64(got.Task.JobID)
	c.eventually(func() bool { return g.inside.Load() == 1 }, "it does not run")
	// Each of these is a poll of the slot, many of them after the claim expired.
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		c.settled(n.submit(1, 60*time.Millisecond).JobID, task.Processed)
	}
	require.Len(t, c.runsOf(id), 1)
	g.open()
	c.settled(id, task.Processed)
	require.Len(t, c.runsOf(id), 1)
	expired := c.expiredClaims()
	require.Zero(t, expired)
}

func keepsToItsRoom(t *testing.T, c *center) {
	c.capacity, c.biz.Workers = 40, 2
	var most atomic.Int64
	c.process = func(context.Context, task.Task) error {
		time.Sleep(3 * time.Millisecond) // in a bubble
		return nil
	}
	n := c.start(allPartitions...)
	now := time.Now().Add(300 * time.Millisecond)
	requests := make([]api.Submit, 300)
	for i := range requests {
		requests[i] = api.Submit{BizType: closeOrders, BizID: uint64(i), ActionTime: now}
	}
	submitted, err := n.desk.SubmitBatch(t.Context(), requests)
	require.NoError(t, err)
	c.eventually(func() bool {
		d := c.depth()
		if d.Prepared > most.Load() {
			most.Store(d.Prepared)
		}
		return time.Now().After(now) && d.Prepared+d.Store == 0
	}, "tasks are left")
	// Three quarters of what the queue holds at one instant. The slots are not counted at one, so a task may count in two of them.
	require.LessOrEqual(t, most.Load(), 2*int64(c.capacity), "of 300 that are due")
	for _, s := range submitted {
		require.Nil(t, s.Err)
		require.Len(t, c.runsOf(uint64(s.JobID)), 1)
	}
}

func hasRoomForOne(t *testing.T, c *center) {
	c.capacity, c.biz.Workers = 1, 1
	n := c.start(allPartitions...)
	var ids []uint64
	for i := range 20 {
		ids = append(ids, n.submit(uint64(i), 0).JobID)
	}
	for _, id := range ids {
		c.settled(id, task.Processed)
	}
}

// The claims of a node that loses a partition end there; the other tasks belong to the new owner.
func changesHands(t *testing.T, c *center) {
	a, b := c.start(allPartitions...), c.start()
	c.allRead()
	var ids []uint64
	for i := range 16 {
		ids = append(ids, a.submit(uint64(i), time.Second).JobID)
	}
	for p := range layout.Partitions {
		a.owned.set(p, false)
		b.owned.set(p, true)
	}
	for _, id := range ids {
		c.settled(id, task.Processed)
		require.Len(t, c.runsOf(id), 1)
	}
	require.Equal(t, depth{}, c.depth())
}

// When WaitPartition returns, the node has no claim of the partition: runs have ended, and tasks that had not
// started are back in their slot.
func handsOver(t *testing.T, c *center) {
	g := newGate()
	c.process = g.process
	a, b := c.start(allPartitions...), c.start()
	c.allRead()
	var ids []uint64
	for i := range 40 {
		ids = append(ids, a.submit(uint64(i), 0).JobID)
	}
	c.eventually(func() bool { return g.inside.Load() == int32(c.biz.Workers) }, "the workers are not busy")
	runs := slices.IndexFunc(ids, func(id uint64) bool { return len(c.runsOf(id)) == 1 })
	held := c.slot(ids[runs]).Partition
	for p := range layout.Partitions {
		a.owned.set(p, false)
	}
	a.queue.DropPartitions(func(int) bool { return true })
	emptied := make(chan error, layout.Partitions)
	for p := range layout.Partitions {
		go func() { emptied <- a.WaitPartition(context.Background(), p) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.WaitPartition(ctx, held), context.DeadlineExceeded, "its task still runs")
	g.open()
	for range layout.Partitions {
		require.NoError(t, <-emptied)
	}
	require.Zero(t, c.depth().Prepared, "a claim was left behind")
	for p := range layout.Partitions {
		b.owned.set(p, true)
	}
	for _, id := range ids {
		c.settled(id, task.Processed)
		require.Len(t, c.runsOf(id), 1)
	}
}

// A node that cannot reach Redis reports the tasks of any partition that it could not arm, and the owner finds
// them when it is notified.
func findsWhatIsNotArmed(t *testing.T, c *center) {
	a, b := c.start(), c.start(allPartitions...)
	c.allRead()
	a.link.cut()
	row := a.submit(1, 500*time.Millisecond)
	require.Equal(t, row.JobID, (<-a.unarmed).JobID)
	require.Empty(t, c.runsOf(row.JobID))
	b.Reread()
	c.settled(row.JobID, task.Processed)
	require.Len(t, c.runsOf(row.JobID), 1)
	require.Empty(t, b.unarmed)
}

// A redrive may come before Redis knows of the death.
func changesWhileSettling(t *testing.T, c *center) {
	c.biz.MaxRetries = 0
	c.process = func(_ context.Context, t task.Task) error {
		if len(c.runsOf(t.JobID)) < 2 {
			return errors.New("the shop is closed")
		}
		return nil
	}
	n := c.start(allPartitions...)
	var wg sync.WaitGroup
	var ids []uint64
	for i := range 40 {
		id := n.submit(uint64(i), 0).JobID
		wg.Go(func() {
			c.eventually(func() bool { return c.row(id).Status == task.Dead }, "task %d is not dead", id)
			c.eventually(func() bool { // it is running until the death is recorded in memory, too
				_, err := n.desk.Redrive(context.Background(), id)
				var conflict *task.ConflictError
				if err != nil {
					require.ErrorAs(t, err, &conflict)
				}
				return err == nil
			}, "task %d is still running", id)
		})
		ids = append(ids, id)
	}
	wg.Wait()
	for _, id := range ids {
		c.settled(id, task.Processed)
	}
}

// A consumer acknowledges a task at once, while Redis is being told that its lease ends in an hour. A removal that Redis does not
// answer in time is left to the next claim, so there are several tries.
func finishesWhileSettling(t *testing.T, c *center) {
	c.biz.BackoffMin, c.biz.BackoffMax = 10*time.Minute, time.Hour
	var g atomic.Pointer[gate]
	c.process = func(ctx context.Context, t task.Task) error {
		_ = g.Load().process(ctx, t)
		return errors.New("again in a while")
	}
	n := c.start(allPartitions...)
	c.allRead() // which arms tasks, too
	for try := range uint64(5) {
		g.Store(newGate())
		id, other := n.submit(2*try, 0).JobID, n.submit(2*try+1, 30*time.Minute).JobID
		c.eventually(func() bool { return g.Load().inside.Load() == 1 }, "it does not run")
		held := n.link.hold(fmt.Sprintf("\r\n%d\r\n", id))
		g.Load().open()
		<-held.reached
		for _, one := range []uint64{id, other} {
			moved, err := c.store.Move(t.Context(), store.Move{JobID: one, From: task.Pending, To: task.Processed})
			require.NoError(t, err)
			require.True(t, moved)
		}
		for _, one := range []uint64{id, other} { // the other one is removed after the first one
			n.moved(dispatch.Edited, task.Task{JobID: one, BizType: c.biz.ID, Status: task.Processed})
		}
		c.eventually(func() bool { stored, _ := c.has(other); return !stored }, "the other one is still in its slot")
		_, read := n.store.read.Load(other)
		_, prepared := c.has(id)
		close(held.goOn)
		require.False(t, read, "its row was read")
		if !prepared {
			continue // what was held was not the settlement but an arm of the task
		}
		gone := 0                                                                                                          // looks; during one it can go from queue to queue
		for end := time.Now().Add(2 * time.Second); gone < 2 && time.Now().Before(end); time.Sleep(2 * time.Millisecond) { // in a bubble
			if stored, prepared := c.has(id); stored || prepared {
				gone = 0
			} else {
				gone++
			}
		}
		if gone == 2 {
			return
		}
	}
	t.Error("in no try it was gone for good")
}

// The row is read when the task is due much later, and the task is removed from its slot when it is due soon
// again.
func goesAndComesBack(t *testing.T, c *center) {
	n := c.start(allPartitions...)
	c.allRead()
	id := n.submit(1, 30*time.Minute).JobID
	read, goOn := make(chan struct{}), make(chan struct{})
	hold := func() { close(read); <-goOn }
	n.store.loaded.Store(&hold)
	move := func(delay time.Duration) {
		when := delay
		_, err := n.desk.Reschedule(t.Context(), id, api.Change{Delay: &when})
		require.NoError(t, err)
	}
	move(5 * time.Hour)
	<-read
	move(2 * time.Second)
	close(goOn)
	c.settled(id, task.Processed)
	require.Len(t, c.runsOf(id), 1)
}

// Redis loses allPartitions while tasks run, wait for a worker and wait for their time.
func TestTimerOnARedisThatLosesEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.biz.Workers, c.capacity = 2, 24
		var g atomic.Pointer[gate]
		g.Store(newGate())
		c.process = func(ctx context.Context, t task.Task) error { return g.Load().process(ctx, t) }
		n := c.start(allPartitions...)
		c.allRead()
		var ids []uint64
		for i := range 10 {
			ids = append(ids, n.submit(uint64(i), 0).JobID)
		}
		for i := range 10 {
			n.submit(uint64(i), later)
		}
		c.eventually(func() bool { return g.Load().inside.Load() == 2 && c.depth().Prepared >= 10 }, "not claimed")
		c.server.FlushAll()
		c.eventually(func() bool { return c.depth() == depth{Store: 10} }, "those that nobody holds are not there again")
		g.Load().open()
		for _, id := range ids {
			c.settled(id, task.Processed)
			require.Len(t, c.runsOf(id), 1)
			require.Zero(t, c.runsOf(id)[0].task.Attempts)
		}
		require.Equal(t, depth{Store: 10}, c.depth())

		// There is as much room as before: three quarters of the queue, in portions of five.
		g.Store(newGate())
		for i := range 40 {
			ids = append(ids, n.submit(uint64(i), 0).JobID)
		}
		c.eventually(func() bool { return c.depth().Prepared >= 14 }, "the room is not used")
		g.Load().open()
		for _, id := range ids {
			c.settled(id, task.Processed)
		}
	})
}

// A task that is armed while its slot is being polled is not in the answer.
func TestWakeUpsDuringAPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		owner, other := c.start(allPartitions...), c.start()
		c.allRead()
		owner.link.slow.Store(int64(20 * time.Millisecond))
		for i := range uint64(12) {
			first := other.submit(i, 0).JobID
			time.Sleep(10 * time.Millisecond) // in a bubble: the poll is under way
			second := other.submit(i, 0).JobID
			c.settled(first, task.Processed)
			c.settled(second, task.Processed)
			for _, r := range append(c.runsOf(first), c.runsOf(second)...) {
				require.Less(t, r.at.Sub(r.task.ActionTime), time.Second, "it waited for the next look")
			}
		}
	})
}

// A server that was replaced by an older copy of itself has the keys of this process, but lacks tasks.
func TestTimerOnARestartedServer(t *testing.T) {
	t.Parallel()
	server := testrig.StartRedis(t, "--appendonly", "no")
	c := open(t, func(testing.TB) ([]string, string) { return []string{server.Addr()}, "" })
	n := c.start(allPartitions...)
	c.allRead()
	require.NoError(t, c.redis.Save(t.Context()).Err())
	var ids []uint64
	for i := range 12 {
		ids = append(ids, n.submit(uint64(i), later).JobID)
	}
	server.Kill()
	server.Start()
	now := time.Duration(0)
	for _, id := range ids {
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "task %d is not armed again", id)
		_, err := n.desk.Reschedule(t.Context(), id, api.Change{Delay: &now})
		require.NoError(t, err)
		c.settled(id, task.Processed)
		require.Len(t, c.runsOf(id), 1)
	}
}

// Without tasks there is next to nothing to do, and neither with a backlog that has no room.
func TestIdleTimer(t *testing.T) {
	t.Parallel()
	for _, backlog := range []int{0, 100} {
		t.Run(fmt.Sprintf("backlog of %d", backlog), func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *center) {
				c.capacity, c.biz.Workers = 40, 1
				g := newGate()
				c.process = g.process
				n := c.start(allPartitions...)
				c.allRead()
				for i := range backlog {
					n.submit(uint64(i), 0)
				}
				if backlog > 0 {
					c.eventually(func() bool { return g.inside.Load() == 1 && c.depth().Prepared >= 20 }, "not claimed")
				}
				time.Sleep(500 * time.Millisecond) // in a bubble: calls under way end
				before := c.server.CommandCount()
				time.Sleep(time.Minute) // in a bubble
				perSecond := (c.server.CommandCount() - before) / 60
				t.Logf("%d commands a second", perSecond)
				require.Less(t, perSecond, 40)
				g.open()
			})
		})
	}
}

// Tasks that a silent Redis does not accept are reported and found, and do not pile up.
func TestArmingIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start() // without a partition: it arms tasks of others' slots
		n.link.silent.Store(true)
		const many = 60_000
		batch := func(seq int) (tasks []task.Task) {
			for i := range many {
				id, err := sharding.JobID(sharding.Epoch.Add(time.Duration(i)*time.Millisecond), 0, seq)
				require.NoError(t, err)
				tasks = append(tasks, task.Task{JobID: id, BizType: c.biz.ID, ActionTime: time.Now()})
			}
			return tasks
		}
		first, second := batch(1), batch(2)
		armed := make(chan uint64, 1)
		go func() {
			for i := range 2 * many {
				if id := (<-n.unarmed).JobID; i == 0 {
					armed <- id
				}
			}
			close(armed)
		}()
		n.moved(dispatch.Inserted, first...)
		n.moved(dispatch.Inserted, second...)
		require.Equal(t, second[0].JobID, <-armed, "there was no room for it, so it did not wait")
		<-armed
		n.link.silent.Store(false)
	})
}
