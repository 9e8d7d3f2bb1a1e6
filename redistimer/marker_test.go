package redistimer_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// later is beyond the first part that is filled of a slot whose marker is not trusted.
const later = 20 * time.Minute

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
	c.filled()
	id := n.submit(1, 2*time.Second).JobID
	c.settled(id, task.Processed)

	require.NoError(t, c.redis.FlushAll(t.Context()).Err())
	c.filled()
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

// Tasks that were stored while the type was scanned are armed when it is back in mode redis. Before, the old
// markers made the slots look complete, and only the sweep found tasks beyond the next 30 s.
func TestMarkersDoNotOutliveTheirOwner(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(n *node){"stopped": (*node).end, "killed": (*node).crash} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *center) {
				c.storeID = "s1"
				n := c.start(allPartitions...)
				c.filled()
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

// A marker is trusted after a hand-over, but not after a crash.
func TestAMarkerIsTrustedOnlyAfterAHandOver(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.storeID = "s1"
		const handed, taken = 0, 1
		a, b := c.start(handed, taken), c.start()
		c.serving(handed)
		c.serving(taken)
		var mu sync.Mutex
		read := map[int]bool{} // partitions in which b reads tasks that are due later
		b.store.reading = func(p int, q store.Due, real *store.Store) *store.DuePages {
			mu.Lock()
			defer mu.Unlock()
			if time.Until(q.Until) > time.Minute && time.Until(q.From.ActionTime) < 10*time.Minute {
				read[p] = true
			}
			return real.DuePages(p, q)
		}
		id := uint64(0)
		for bizID := uint64(1); id == 0; bizID++ {
			if row := a.submit(bizID, later); c.slot(row.JobID).Partition == handed {
				id = row.JobID
			}
		}
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "it is not armed")
		for _, p := range []int{handed, taken} {
			a.owned.set(p, false)
		}
		require.NoError(t, a.WaitPartition(t.Context(), handed))
		for _, p := range []int{handed, taken} {
			b.owned.set(p, true)
		}
		c.eventually(func() bool { mu.Lock(); defer mu.Unlock(); return read[taken] }, "the slot that was taken is not filled")
		c.serving(handed)
		stored, _ := c.has(id)
		require.True(t, stored)
		mu.Lock()
		defer mu.Unlock()
		require.False(t, read[handed], "the slot that was handed over is filled again")
	})
}

// A replica takes over without the last writes, and hands back without the last writes. Each has the markers,
// and the second server was asked by this process before.
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
	c.filled()
	n.submit(1, later) // the head of the slot
	for i, turn := range []struct{ from, to int }{{0, 1}, {1, 0}} {
		markers := func(i int) (list []string) {
			for p := range layout.Partitions {
				text, _ := clients[i].Get(t.Context(), c.slots.MarkerKey(c.slotOf(p))).Result()
				list = append(list, text)
			}
			return list
		}
		c.redis = clients[turn.from]
		c.eventually(func() bool { return slices.Equal(markers(0), markers(1)) }, "the replica is behind")
		require.NoError(t, clients[turn.to].Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		id := n.submit(1, later+time.Minute).JobID
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "it is not armed")
		c.redis = clients[turn.to]
		stored, _ := c.has(id)
		require.False(t, stored)
		n.link.turn(servers[turn.to].Addr())
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "turn %d: it is not armed again", i)
		c.filled()
		if i == 0 {
			follow(turn.from, turn.to)
		}
	}
}

// If two centers have the same names in Redis, the first keeps its slots, and the second is scanned. Before,
// each claimed the other's tasks, found no row and settled them: only the sweep ran them.
func TestTwoCentersOnOneRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, first *center) {
		second := openOn(t, first.server, first.addrs, "")
		first.storeID, second.storeID = "first", "second"
		a := first.start(allPartitions...)
		first.filled()
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
		for p := range layout.Partitions { // as they expire after a while
			require.NoError(t, first.redis.Del(t.Context(), first.slots.MarkerKey(first.slotOf(p))).Err())
		}
		second.eventually(func() bool { return b.Serves(second.biz.ID, 0) && b.Serves(second.biz.ID, 3) }, "the slots are free")
		second.filled()
		second.eventually(func() bool { return second.depth() == depth{} }, "tasks are left")
		require.Empty(t, b.Degraded())
	})
}

func (c *center) slotOf(partition int) slots.Slot {
	return slots.Slot{Topic: c.biz.Topic, Partition: partition}
}

// Redis evicts the queues and keeps the markers. Before, that went unnoticed.
func TestQueuesAreEvicted(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.filled()
		for i := range uint64(16) {
			n.submit(i, later)
		}
		c.eventually(func() bool { return c.depth().Store == 16 }, "not all are armed")
		for p := range layout.Partitions {
			require.NoError(t, c.redis.Unlink(t.Context(), c.slots.StoreKey(c.slotOf(p))).Err())
		}
		c.eventually(func() bool { return c.depth().Store == 16 }, "they are not armed again")
	})
}

// A task that is moved while its slot is filled runs at its new time. Before, the page that was read before the
// move restored the old time.
func TestRescheduleWhileTheSlotIsFilled(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.filled()
		id := n.submit(1, 30*time.Minute).JobID
		c.eventually(func() bool { stored, _ := c.has(id); return stored }, "it is not armed")
		held := n.link.hold("\r\nkeep\r\n")
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

// A clock was ahead, and is right again. Before, no slot was filled until the clock got there once more.
func TestClockWasAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.biz.Horizon = 2 * time.Second
		c.ahead.Store(int64(time.Hour))
		n := c.start(allPartitions...)
		c.filled()
		c.ahead.Store(0)
		id := n.submit(1, 4*time.Second).JobID
		c.settled(id, task.Processed)
	})
}

// An id in a slot of another partition, for example after a change of cluster.partitions. Before, its outcome
// was recorded in the database of the slot, where the row is not, and it ran again.
func TestTaskInASlotOfAnotherPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		n := c.start(allPartitions...)
		c.filled()
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
			n.Sweep(t.Context(), c.slot(id).Partition, []task.Task{row}) // as each tick does
			return row.Status == task.Processed
		}, "it is not processed")
		require.Zero(t, c.row(id).Attempts)
	})
}

// Markers of an earlier version, or set by hand, are not trusted, and do not count as another center's.
func TestOtherMarkersAreIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, c *center) {
		c.storeID = "s1"
		texts := []string{"filling", "1f2e3d 1786100000000", "1f2e3d 1f2e3e 1f2e3f 1f2e40 1f2e41 4786100000000", "toc/1 s1 2x2x4 handed host:1:x 4786100000000"}
		for p, text := range texts {
			require.NoError(t, c.redis.Set(t.Context(), c.slots.MarkerKey(c.slotOf(p)), text, 0).Err())
		}
		ids := c.scanned(16)
		n := c.start(allPartitions...)
		c.filled()
		for _, id := range ids {
			stored, _ := c.has(id)
			require.True(t, stored, "task %d is not armed", id)
		}
		require.Empty(t, n.Degraded())
		marker, err := c.redis.Get(t.Context(), c.slots.MarkerKey(c.slotOf(0))).Result()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(marker, "toc/2 s1 2x2x4 serving "), marker)
	})
}
