package slots_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// TestCluster runs through the faults of a cluster, one after the other.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testrig.StartRedisCluster(t)
	c := &clusterRig{RedisCluster: cluster, slotRig: openSlots(t, func(testing.TB) ([]string, string) { return cluster.Addrs(), "" })}
	for _, one := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"a slot's keys are on one node", c.keysAreTogether},
		{"a node that is asked lacks the script", c.asksForAScript},
		{"a slot on its way is tried again, and given up", c.triesAgain},
		{"hash slots move under load", c.movesUnderLoad},
		{"the others serve while one is down", c.losesAMaster},
	} {
		if !t.Run(one.name, one.test) {
			return
		}
	}
}

// movesTo is the node to which all hash slots move. If two nodes take slots from each other at almost the same
// time, neither may have them in the end.
const movesTo = 2

type clusterRig struct {
	*testrig.RedisCluster
	*slotRig
}

// slotsOn returns n slots of a topic whose keys are on a node.
func (c *clusterRig) slotsOn(topic string, node, n int) []slots.Slot {
	var many []slots.Slot
	for i := 0; len(many) < n; i++ {
		slot := slots.Slot{Topic: topic, Partition: i}
		if c.NodeOf(c.hashSlot(slot)) == node {
			many = append(many, slot)
		}
	}
	return many
}

func (c *clusterRig) hashSlot(slot slots.Slot) int { return c.SlotOf(c.StoreKey(slot)) }

// node is a client of one node alone.
func (c *clusterRig) node(t testing.TB, node int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: c.Addrs()[node]})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func (c *clusterRig) keysAreTogether(t *testing.T) {
	for _, prefix := range []string{"", "shop:", "a.b-c_d:"} {
		s := slots.New(c.client, prefix)
		for i, topic := range []string{"order_close", "a", "A.b:c-d_e", "0", "_", "prepare_"} {
			slot := slots.Slot{Topic: topic, Partition: i * 100}
			want := c.SlotOf(s.StoreKey(slot))
			for _, key := range []string{s.PrepareKey(slot), s.DeadKey(slot)} {
				require.Equal(t, want, c.SlotOf(key), key)
			}
		}
	}
}

// While a hash slot moves, its node redirects clients for keys that it no longer has. The other node is not the
// slot's owner yet and may never have seen the script.
func (c *clusterRig) asksForAScript(t *testing.T) {
	ctx := t.Context()
	const from, to = 0, movesTo
	slot := c.slotsOn("ask", from, 1)[0]
	at := ago(time.Hour)
	keys := []string{c.StoreKey(slot), c.PrepareKey(slot), c.DeadKey(slot)}
	c.arm(t, slot, member(1, at, 0))
	require.Len(t, c.claimAll(t, slot), 1)
	c.arm(t, slot, member(2, at, 0), member(3, at, 0))
	c.settle(t, slots.SettleRequest{Slot: slot, Dead: []slots.Member{member(4, at, 0)}})

	c.OpenMigration(t, c.hashSlot(slot), from, to)
	host, port, err := net.SplitHostPort(c.Addrs()[to])
	require.NoError(t, err)
	migrate := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
	for _, key := range keys {
		migrate = append(migrate, key)
	}
	require.NoError(t, c.node(t, from).Do(ctx, migrate...).Err())
	forget := func() { require.NoError(t, c.node(t, to).ScriptFlush(ctx).Err()) }

	forget()
	got := c.claim(t, slots.ClaimRequest{Slot: slot, Limit: 1, Visibility: time.Hour})
	require.Equal(t, []slots.Member{member(2, at, 0)}, got.Members)
	forget()
	require.Equal(t, 3, c.arm(t, slot, member(1, at, 0), member(2, at, 0), member(3, at, 0)))
	forget()
	c.settle(t, slots.SettleRequest{Slot: slot, Done: []uint64{2}})

	c.Migrate(t, c.hashSlot(slot), from, to)
	c.settle(t, slots.SettleRequest{Slot: slot, Done: []uint64{1}})
	require.Equal(t, []slots.Member{member(3, at, 0)}, c.claimAll(t, slot))
	require.Len(t, c.state(t, slot).Dead, 1)
}

// A slot of which some keys do not exist cannot be used while it moves. The other slots of the pipeline are
// claimed once, and their claims are returned.
func (c *clusterRig) triesAgain(t *testing.T) {
	ctx := t.Context()
	const from, to = 0, movesTo
	many := c.slotsOn("again", from, 3)
	moving := many[0] // the first: the client would repeat all of the pipeline
	at := ago(time.Hour)
	var claims []slots.ClaimRequest
	for _, slot := range many {
		c.arm(t, slot, member(1, at, 0), member(2, at, 0), member(3, at, 0), member(4, at, 0))
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 1, Visibility: time.Hour})
	}
	c.OpenMigration(t, c.hashSlot(moving), from, to)

	got := c.Claim(ctx, claims)
	require.True(t, redis.IsTryAgainError(got[0].Err), "%v", got[0].Err)
	require.Len(t, c.state(t, moving).Store, 4)
	for i, one := range got[1:] {
		require.NoError(t, one.Err)
		require.Equal(t, []slots.Member{member(1, at, 0)}, one.Members)
		require.Len(t, c.state(t, many[i+1]).Prepare, 1, "claimed and returned")
	}
	armed := c.Arm(ctx, []slots.ArmRequest{{Slot: moving, Members: []slots.Member{member(5, at, 0)}}, {Slot: many[1], Members: []slots.Member{member(5, at, 0)}}})
	require.True(t, redis.IsTryAgainError(armed[0].Err), "%v", armed[0].Err)
	require.NoError(t, armed[1].Err)

	// A move that ends meanwhile goes unnoticed.
	done := make(chan []slots.ClaimResult, 1)
	go func() {
		for {
			if got := c.Claim(ctx, claims[:1]); got[0].Err == nil || !redis.IsTryAgainError(got[0].Err) {
				done <- got
				return
			}
		}
	}()
	c.Migrate(t, c.hashSlot(moving), from, to)
	got = <-done
	require.NoError(t, got[0].Err)
	require.Equal(t, []slots.Member{member(1, at, 0)}, got[0].Members)
}

func (c *clusterRig) movesUnderLoad(t *testing.T) {
	const perSlot = 300
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var many []slots.Slot
	for node := range 3 {
		many = append(many, c.slotsOn("moving", node, 3)...)
	}
	at := ago(time.Hour)
	var arms []slots.ArmRequest
	var claims []slots.ClaimRequest
	var want []uint64
	for i, slot := range many {
		arm := slots.ArmRequest{Slot: slot}
		for k := range perSlot {
			id := uint64(i*perSlot + k)
			arm.Members = append(arm.Members, member(id, at, 0))
			want = append(want, id)
		}
		arms = append(arms, arm)
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 3, Visibility: time.Hour})
	}
	require.Equal(t, make([]slots.ArmResult, len(arms)), c.Arm(ctx, arms))

	var moved atomic.Bool
	got, last := make([][]uint64, 2), make([]error, 2)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			for ctx.Err() == nil {
				end := moved.Load()
				settles := make([]slots.SettleRequest, 0, len(many))
				var errs, claimed int
				for k, one := range c.Claim(ctx, claims) {
					if one.Err != nil {
						errs++ // a hash slot that moved slowly
						last[i] = one.Err
						continue
					}
					claimed += len(one.Members)
					got[i] = append(got[i], idsOf(one.Members)...)
					settles = append(settles, slots.SettleRequest{Slot: many[k], Done: idsOf(one.Members)})
				}
				for len(settles) > 0 && ctx.Err() == nil {
					var left []slots.SettleRequest
					for k, one := range c.Settle(ctx, settles) {
						if one.Err != nil {
							last[i] = one.Err
							left = append(left, settles[k])
						}
					}
					settles = left
				}
				if end && errs+claimed == 0 {
					return
				}
			}
		})
	}
	for _, slot := range many[:6] {
		c.Migrate(t, c.hashSlot(slot), c.NodeOf(c.hashSlot(slot)), movesTo)
	}
	moved.Store(true)
	wg.Wait()

	all := sorted(slices.Concat(got...))
	require.True(t, slices.Equal(want, all), "%d tasks were claimed %d times; the last errors: %v", len(want), len(all), last)
	require.Equal(t, make([]depth, len(many)), depthsOf(t, c.client, c.Slots, many...))
}

func (c *clusterRig) losesAMaster(t *testing.T) {
	ctx := t.Context()
	const down = movesTo
	var many []slots.Slot
	for i := range 4 {
		for node := range 3 {
			many = append(many, c.slotsOn("down", node, i+1)[i])
		}
	}
	at := ago(time.Hour)
	var arms []slots.ArmRequest
	var claims []slots.ClaimRequest
	for _, slot := range many {
		arms = append(arms, slots.ArmRequest{Slot: slot, Members: []slots.Member{member(7, at, 0)}})
		claims = append(claims, slots.ClaimRequest{Slot: slot, Limit: 1, Visibility: time.Hour})
	}
	require.Equal(t, make([]slots.ArmResult, len(many)), c.Arm(ctx, arms))
	patient := slots.New(dial(t, &redis.UniversalOptions{Addrs: c.Addrs(), DialerRetries: 1000, DialerRetryTimeout: 20 * time.Millisecond}), "")
	for _, one := range patient.Claim(ctx, []slots.ClaimRequest{{Slot: many[0]}, {Slot: many[1]}, {Slot: many[2]}}) {
		require.NoError(t, one.Err)
	}

	c.Kill(down)
	check := func(errs ...error) {
		t.Helper()
		require.Len(t, errs, len(many))
		for i, err := range errs {
			if i%3 == down {
				require.ErrorContains(t, err, c.StoreKey(many[i]))
			} else {
				require.NoError(t, err)
			}
		}
	}
	var errs []error
	for i, one := range c.Claim(ctx, claims) {
		errs = append(errs, one.Err)
		if i%3 != down {
			require.Equal(t, []slots.Member{member(7, at, 0)}, one.Members)
		}
	}
	check(errs...)
	check(armErrors(c.Arm(ctx, arms))...)

	// The same holds when the caller's time runs out while one slot moves.
	for i := range arms {
		arms[i].Members[0].JobID = 8
	}
	check(armErrors(c.Arm(ctx, arms))...)
	short, cancel := context.WithTimeout(ctx, 3*time.Second) // all of it passes; a slow machine asks the others in it, too
	defer cancel()
	for i, one := range patient.Claim(short, claims) {
		if i%3 == down {
			require.Error(t, one.Err)
			continue
		}
		require.NoError(t, one.Err)
		require.Equal(t, []slots.Member{member(8, at, 0)}, one.Members)
	}
	require.Error(t, short.Err())

	c.Start(down)
	require.Eventually(t, func() bool { // until the client knows
		return !slices.ContainsFunc(c.Drop(context.WithoutCancel(ctx), many), func(err error) bool { return err != nil })
	}, time.Minute, 10*time.Millisecond)
}

func armErrors(answers []slots.ArmResult) []error {
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.Err
	}
	return errs
}
