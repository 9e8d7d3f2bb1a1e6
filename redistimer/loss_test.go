package redistimer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// later is within the window of reads each minute.
const later = time.Minute

// A user without INFO is served as well. Before, no slot was ever filled: tasks beyond the horizon were 20 s
// late, and so were all tasks after a FLUSHALL.
func TestUserWithoutDangerousCommands(t *testing.T) {
	t.Parallel()
	server := testrig.StartRedis(t)
	c := open(t, private(server))
	require.NoError(t, c.redis.Do(t.Context(), "ACL", "SETUSER", "toc", "on", ">toc", "~*", "&*", "+@all", "-@dangerous").Err())
	c.username = "toc"
	c.biz.Horizon = 800 * time.Millisecond
	n := c.start(allPartitions...)
	c.allRead()
	id := n.submit(1, 2*time.Second).JobID
	c.settled(id, task.Processed)

	id = n.submit(1, later).JobID
	require.NoError(t, c.redis.FlushAll(t.Context()).Err())
	c.eventually(func() bool { return c.isArmed(id) }, "it is not armed again")
}

// Slots of masters that answer are filled, even if other masters do not answer. Before, none was filled until
// all masters had answered once.
func TestStartWithAMasterDown(t *testing.T) {
	t.Parallel()
	cluster := testrig.StartRedisCluster(t)
	c := open(t, func(testing.TB) ([]string, string) { return cluster.Addrs(), "" })
	c.biz.Horizon = 800 * time.Millisecond
	const down = 0
	isUp := func(p int) bool {
		return cluster.NodeOf(cluster.SlotOf(c.slots.StoreKey(slots.Slot{Topic: c.biz.Topic, Partition: p}))) != down
	}
	require.True(t, isUp(0) || isUp(1) || isUp(2) || isUp(3), "another topic is needed")
	cluster.Kill(down)
	n := c.start(allPartitions...)
	var ids []uint64
	for bizID := range uint64(16) {
		if row := n.submit(bizID, 2*time.Second); isUp(c.slot(row.JobID).Partition) {
			ids = append(ids, row.JobID)
		}
	}
	require.NotEmpty(t, ids)
	for _, id := range ids {
		c.eventually(func() bool { return c.row(id).Status == task.Processed }, "task %d did not run", id)
	}
}

// scanned stores tasks that are due later, by a node without types of mode redis.
func (c *center) scanned(n int) (ids []uint64) {
	c.modeScan = true
	scanned := c.start(allPartitions...)
	c.modeScan = false
	for i := range n {
		ids = append(ids, scanned.submit(uint64(i), later).JobID)
	}
	scanned.end()
	return ids
}

// Tasks that were stored while the type was scanned are armed when it is back in mode redis.
func TestATypeComesBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(n *node){"stopped": (*node).end, "killed": (*node).crash} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *center) {
				c.storeID = "s1"
				n := c.start(allPartitions...)
				c.allRead()
				end(n)
				id := c.scanned(1)[0]
				stored, _ := c.has(id)
				require.False(t, stored, "it was stored in mode scan")
				c.start(allPartitions...)
				c.eventually(func() bool { stored, _ := c.has(id); return stored }, "it is not armed")
			})
		})
	}
}

// A replica takes over without the last writes, and hands back without the last writes. Each has the keys of this
// process, and was asked by it before.
func TestReplicaTakesOverAndHandsBack(t *testing.T) {
	t.Parallel()
	const delay = testrig.Option("--repl-diskless-sync-delay")
	servers := []*testrig.PrivateRedis{testrig.StartRedis(t, delay, "0"), testrig.StartRedis(t, delay, "0")}
	clients := []redis.UniversalClient{}
	for _, s := range servers {
		clients = append(clients, dial(t, &redis.UniversalOptions{Addrs: []string{s.Addr()}}))
	}
	c := open(t, private(servers[0]))
	follow := func(replica, master int) {
		host, port, err := net.SplitHostPort(servers[master].Addr())
		require.NoError(t, err)
		require.NoError(t, clients[replica].Do(t.Context(), "REPLICAOF", host, port).Err())
		c.eventually(func() bool {
			info, err := clients[replica].Info(t.Context(), "replication").Result()
			return err == nil && strings.Contains(info, "master_link_status:up")
		}, "no replica")
	}
	follow(1, 0)
	n := c.start(allPartitions...)
	c.allRead()
	n.submit(1, later) // the head of the slot
	for i, turn := range []struct{ from, to int }{{0, 1}, {1, 0}} {
		c.redis = clients[turn.from]
		c.eventually(func() bool {
			keys, err := clients[turn.to].Keys(t.Context(), "*toc:node:*").Result()
			return err == nil && len(keys) == 1
		}, "the replica is behind")
		require.NoError(t, clients[turn.to].Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		id := n.submit(1, later+10*time.Second).JobID
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "it is not armed")
		c.redis = clients[turn.to]
		stored, _ := c.has(id)
		require.False(t, stored)
		n.link.turn(servers[turn.to].Addr())
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "turn %d: it is not armed again", i)
		if i == 0 {
			follow(turn.from, turn.to)
		}
	}
}

// If two centers have the same names in Redis, the first keeps its slots, and the second is scanned. Before,
// each claimed the other's tasks, found no row and settled them.
func TestTwoCentersOnOneRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, first *center) {
		second := openOn(t, first.server, first.addrs, "")
		first.storeID, second.storeID = "first", "second"
		a := first.start(allPartitions...)
		first.allRead()
		b := second.start(allPartitions...)
		second.eventually(func() bool {
			return !b.Serves(second.biz.ID, 0) && !b.Serves(second.biz.ID, 1) && !b.Serves(second.biz.ID, 2) && !b.Serves(second.biz.ID, 3)
		}, "the second takes slots of the first")
		require.Contains(t, b.Degraded(), "4 of 4 slots")
		require.Contains(t, b.Degraded(), "redis.prefix")
		require.True(t, b.fellBack(), "the scanner was not notified")

		var ids []uint64
		for i := range uint64(16) {
			ids = append(ids, a.submit(i, 100*time.Millisecond).JobID)
			b.submit(i, 100*time.Millisecond)
		}
		for _, id := range ids {
			first.settled(id, task.Processed)
			require.Len(t, first.runsOf(id), 1)
		}
		require.Equal(t, depth{}, first.depth(), "nothing of the second is there")
		require.Empty(t, a.Degraded())
		require.True(t, a.Serves(first.biz.ID, 0))

		a.end()
		require.NoError(t, first.redis.Del(t.Context(), first.slots.CenterKey(0)).Err()) // as it expires after a while
		second.eventually(func() bool { return b.Serves(second.biz.ID, 0) && b.Serves(second.biz.ID, 3) }, "the slots are free")
		second.allRead()
		second.eventually(func() bool { return second.depth() == depth{} }, "tasks are left")
		require.Empty(t, b.Degraded())
	})
}

func (c *center) slotOf(partition int) slots.Slot {
	return slots.Slot{Topic: c.biz.Topic, Partition: partition}
}

// Redis evicts the queues. The loss of a head is noticed when it is due, other losses by the next read.
func TestQueuesAreEvicted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		ids := c.park(n, 16, later/2)
		for p := range layout.Partitions {
			require.NoError(t, c.redis.Unlink(t.Context(), c.slots.StoreKey(c.slotOf(p))).Err())
		}
		for _, id := range ids {
			c.settled(id, task.Processed)
			require.Less(t, c.runsOf(id)[0].at.Sub(c.row(id).ActionTime), 100*time.Millisecond)
		}
	})
}

// A task that is moved while its rows are read runs at its new time. Before, the page that was read before the
// move restored the old time.
func TestRescheduleDuringARead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		id := n.submit(1, later).JobID
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "it is not armed")
		held := n.link.hold(fmt.Sprintf("\r\n%d\r\n", id))
		require.NoError(t, c.redis.FlushAll(t.Context()).Err())
		<-held.reached
		when := time.Second
		_, err := n.desk.Reschedule(t.Context(), id, api.Change{Delay: &when})
		require.NoError(t, err)
		c.eventually(func() bool { stored, prepared := c.has(id); return stored || prepared }, "it is not armed again")
		close(held.goOn)
		c.settled(id, task.Processed)
		require.Len(t, c.runsOf(id), 1)
	})
}

// A clock was ahead, and is right again. Before, no task was found until the clock got there once more.
func TestClockWasAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.biz.Horizon = 2 * time.Second
		c.ahead.Store(int64(time.Hour))
		n := c.start(allPartitions...)
		c.allRead()
		c.ahead.Store(0)
		id := n.submit(1, 4*time.Second).JobID
		c.settled(id, task.Processed)
	})
}

// A round that waits for the next head looks at the clock each second: no timer shows that it was set.
func TestAClockThatIsSetForward(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		row := n.submit(1, 20*time.Second)
		c.eventually(func() bool { return c.isArmed(row.JobID) }, "it is not armed")
		c.ahead.Store(int64(19 * time.Second))
		set := time.Now()
		c.eventually(func() bool { _, claimed := c.has(row.JobID); return claimed }, "it is not claimed")
		require.Less(t, time.Since(set), 3*time.Second)
	})
}

// An id in a slot of another partition, for example after a change of cluster.partitions. Before, its outcome
// was recorded in the database of the slot, where the row is not, and it ran again.
func TestTaskInASlotOfAnotherPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.allRead()
		for i := range uint64(8) {
			row := n.submit(i, later)
			own := c.slot(row.JobID)
			c.eventually(func() bool { stored, _ := c.has(row.JobID); return stored }, "it is not armed")
			at := time.Now().UTC().Truncate(time.Millisecond)
			_, err := c.store.Move(t.Context(), store.Move{JobID: row.JobID, From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: &at}})
			require.NoError(t, err)
			other := c.slotOf((own.Partition + 2) % layout.Partitions) // of the other database
			c.slots.Arm(t.Context(), []slots.ArmRequest{{Slot: other, Members: []slots.Member{{JobID: row.JobID, At: at}}}})
			c.settled(row.JobID, task.Processed)
			require.Len(t, c.runsOf(row.JobID), 1)
		}
		c.eventually(func() bool { return c.depth() == depth{} }, "something is left")
	})
}

// An operator resets the attempts of a task that waits for its back-off. Before, the slot's higher count of
// attempts won over the row until the end of the back-off.
func TestEditBySQLDuringTheBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.biz.BackoffMin, c.biz.BackoffMax = 10*time.Minute, time.Hour
		var once sync.Once
		c.process = func(context.Context, task.Task) (err error) {
			once.Do(func() { err = errors.New("the shop is closed") })
			return err
		}
		n := c.start(allPartitions...)
		id := n.submit(1, 0).JobID
		c.eventually(func() bool { stored, _ := c.has(id); return stored && c.row(id).Attempts == 1 }, "no failed run was counted")
		at, attempts := time.Now().UTC().Add(-20*time.Second).Truncate(time.Millisecond), 0
		_, err := c.store.Move(t.Context(), store.Move{JobID: id, From: task.Pending, To: task.Pending, Set: store.Set{ActionTime: &at, Attempts: &attempts}})
		require.NoError(t, err)
		c.eventually(func() bool {
			row := c.row(id)
			return row.Status == task.Processed
		}, "it is not processed")
		require.Zero(t, c.row(id).Attempts)
	})
}

// countReads counts the reads of all partitions.
func (c *center) countReads() *atomic.Int64 {
	var reads atomic.Int64
	c.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
		reads.Add(1)
		return real.DuePages(p, q)
	}
	return &reads
}

// The claims of a node that was killed are rolled back at once, although visibility was longer when they were made. Before, they
// stayed until it was over, and their rows were read without a pause until then.
func TestClaimsOfALongerVisibility(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick, c.biz.Visibility = 10*time.Second, 10*time.Minute
		reads := c.countReads()
		g := newGate()
		c.process = g.process
		n := c.start(allPartitions...)
		c.allRead()
		one := n.submit(1, time.Second)
		c.eventually(func() bool { return g.inside.Load() == 1 }, "it does not run")
		n.crash()
		g.open()
		c.biz.Visibility = time.Minute
		reads.Store(0)
		c.start(allPartitions...)
		time.Sleep(10 * time.Second) // in a bubble
		require.Less(t, reads.Load(), int64(30))
		require.Equal(t, task.Processed, c.row(one.JobID).Status)
		require.Less(t, c.runsOf(one.JobID)[1].at.Sub(c.runsOf(one.JobID)[0].at), time.Second)
	})
}

// A type comes back while its slots are being emptied: what was armed in between is armed again.
func TestATypeComesBackWhileItsSlotsAreEmptied(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		for i := range 8 { // each second of a cycle
			time.Sleep(20*time.Second + time.Duration(i)*time.Second) // in a bubble
			empties := n.link.hold("unlink")
			n.SetTypes(nil)
			<-empties.reached
			n.SetTypes([]redistimer.BizType{c.biz})
			c.allRead()
			one := n.submit(1, 2*time.Second)
			close(empties.goOn)
			time.Sleep(100 * time.Millisecond) // in a bubble
			n.submit(1, time.Second)           // the slot has a head that it does not miss
			c.settled(one.JobID, task.Processed)
			require.Less(t, c.runsOf(one.JobID)[0].at.Sub(one.ActionTime), 100*time.Millisecond)
		}
	})
}

// A lease that ends by the clock of the node and goes on, with no word of either, leaves no slot behind. Before, the slots that
// were due in between were not asked again.
func TestALeaseThatGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick = 10 * time.Second
		n := c.start(allPartitions...)
		c.allRead()
		set := func(mine bool) {
			n.owned.mu.Lock()
			defer n.owned.mu.Unlock()
			for p := range allPartitions {
				n.owned.owned[p] = mine
			}
		}
		one := n.submit(1, 2*time.Second)
		set(false)
		time.Sleep(3 * time.Second) // in a bubble
		set(true)
		back := time.Now()
		c.settled(one.JobID, task.Processed)
		require.Less(t, time.Since(back), 500*time.Millisecond)
	})
}

// The clock is set back by an hour while rows of claims are read: they seem to be due in an hour, beyond the horizon. When it is
// right again they are read at once.
func TestAClockThatWasSetBackForAMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.tick, c.biz.Horizon = 10*time.Second, 10*time.Second
		n := c.start(allPartitions...)
		c.allRead()
		time.Sleep(20 * time.Second) // in a bubble
		wrong := func() { c.ahead.Store(int64(-time.Hour)) }
		n.store.loaded.Store(&wrong)
		one := n.submit(1, time.Second)
		c.eventually(func() bool { _, claimed := c.has(one.JobID); return c.ahead.Load() != 0 && !claimed }, "it is not claimed")
		require.False(t, c.isArmed(one.JobID))
		c.ahead.Store(0)
		n.ClockSet()
		c.settled(one.JobID, task.Processed)
		require.Less(t, c.runsOf(one.JobID)[0].at.Sub(one.ActionTime), 500*time.Millisecond)
	})
}

// Under load the settlements of a slot share a call for up to half a second. Those of a partition that is lost go at once: its next
// owner may wait for them.
func TestSettlementsOfALostPartitionGoAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		for i := range uint64(600) {
			n.submit(i, 20*time.Millisecond)
			time.Sleep(2 * time.Millisecond) // in a bubble
		}
		time.Sleep(25 * time.Millisecond) // in a bubble: all have run, so that no later settlement sends the ones that wait
		held := c.depth().Prepared
		require.Greater(t, held, int64(20), "too few settlements wait for others: the test shows nothing")
		for p := range allPartitions {
			n.owned.set(p, false)
		}
		time.Sleep(10 * time.Millisecond) // in a bubble; without the loss they would wait for 50 ms without another one
		require.Less(t, c.depth().Prepared, held/4, "only the ones whose outcomes are not recorded yet")
	})
}
