package slots_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

func TestSlotsEmbedded(t *testing.T) {
	t.Parallel()
	exerciseSlots(t, func(t testing.TB) ([]string, string) { return []string{miniredis.RunT(t).Addr()}, "" })
}

func TestSlotsServer(t *testing.T) {
	t.Parallel()
	exerciseSlots(t, placeOn(testrig.StartRedis(t).Addr()))
}

func TestSlotsCluster(t *testing.T) {
	t.Parallel()
	exerciseSlots(t, placeOn(testrig.StartRedisCluster(t).Addrs()...))
}

// placeOn gives each test the same servers, which no other package uses: scripts have no prefix.
func placeOn(addrs ...string) slotPlace {
	var tests atomic.Int64
	return func(testing.TB) ([]string, string) { return addrs, "t" + strconv.FormatInt(tests.Add(1), 10) + ":" }
}

// exerciseSlots tests the contract of Slots on every kind of Redis.
func exerciseSlots(t *testing.T, place slotPlace) {
	s := slotSuite{place}
	// They remove the scripts of all, so they end before the parallel tests begin.
	t.Run("a server that lost everything", s.pulses)
	t.Run("scripts that Redis forgot", s.reloadsScripts)
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		// arming_test.go
		{"arming again updates", s.armsAgain},
		{"a claimed task is not armed", s.armsNoClaimed},
		{"rows that were read make no stored task later", s.armsNew},
		{"what is armed is not dead", s.armsTheDead},
		// claim_test.go
		{"armed, claimed, settled", s.roundTrip},
		{"tasks that are not late are claimed apart", s.claimsFreshTasksApart},
		{"scores are exact", s.scoresAreExact},
		{"every 64-bit id is kept", s.keepsEveryID},
		{"tasks are claimed in order", s.claimsInOrder},
		{"only what is due is claimed", s.claimsTheDue},
		{"a limit of 0 claims nothing", s.looks},
		{"two claimers never get the same task", s.claimsOnce},
		{"members that are not job_ids are removed", s.removesInvalidMembers},
		// settle_test.go
		{"settling works without a claim", s.settles},
		{"what comes back is a skiplist", s.beginsAsASkiplist},
		{"a release moves back what is still claimed", s.releases},
		{"the dead are bounded", s.boundsTheDead},
		{"unused queues expire", s.expires},
		{"claims are listed in pages", s.listsClaims},
		// wake_test.go
		{"an earlier head is a wake-up", s.wakes},
		// many_test.go
		{"many slots in one call", s.manySlots},
		{"more members than a run takes", s.manyMembers},
		{"nothing to do", s.nothing},
		{"a slot's own error", s.oneSlotFails},
		{"slots that are dropped", s.drops},
		// pulse_test.go
		{"a server of another center", s.pulsesForeign},
		{"a call whose context is over", s.isCancelled},
		// model_test.go
		{"a slot agrees with a model", s.agreesWithAModel},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.test(t) })
	}
}

// slotPlace gives a test a Redis: addresses, of which several are a cluster, and a prefix of its own.
type slotPlace func(t testing.TB) (addrs []string, prefix string)

type slotSuite struct{ place slotPlace }

// slotRig is the Slots of one test and a client of its own.
type slotRig struct {
	*slots.Slots
	client redis.UniversalClient
	addrs  []string
	prefix string
}

func (s slotSuite) open(t testing.TB) *slotRig { return openSlots(t, s.place) }

func openSlots(t testing.TB, place slotPlace) *slotRig {
	t.Helper()
	addrs, prefix := place(t)
	r := &slotRig{client: dial(t, &redis.UniversalOptions{Addrs: addrs, DialerRetries: 1}), addrs: addrs, prefix: prefix}
	r.Slots = slots.New(r.client, prefix)
	return r
}

func dial(t testing.TB, options *redis.UniversalOptions) redis.UniversalClient {
	options.ReadTimeout = time.Minute // a slow machine is not a fault
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// orders is the slot of tests that need only one.
var orders = slots.Slot{Topic: "order:close", Partition: 17}

// tester is the common part of a test and a rapid check.
type tester interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// state is everything that Redis has of a slot. Scores are texts, since floats would compare equal that are
// printed differently.
type state struct {
	Store, Prepare, Dead map[string]string
}

func (r *slotRig) state(t tester, slot slots.Slot) state {
	t.Helper()
	return state{
		Store:   r.queue(t, r.StoreKey(slot)),
		Prepare: r.queue(t, r.PrepareKey(slot)),
		Dead:    r.queue(t, r.DeadKey(slot)),
	}
}

func (r *slotRig) queue(t tester, key string) map[string]string {
	t.Helper()
	list, err := r.client.ZRangeWithScores(t.Context(), key, 0, -1).Result()
	require.NoError(t, err)
	queue := make(map[string]string, len(list))
	for _, z := range list {
		queue[z.Member.(string)] = strconv.FormatFloat(z.Score, 'f', -1, 64)
	}
	return queue
}

// score is the documented form of a score.
func score(at time.Time, attempts int) string {
	return fmt.Sprintf("%d%03d", at.UnixMilli(), attempts)
}

func (r *slotRig) arm(t tester, slot slots.Slot, members ...slots.Member) int {
	t.Helper()
	answers := r.Arm(t.Context(), []slots.ArmRequest{{Slot: slot, Members: members}})
	require.Len(t, answers, 1)
	require.NoError(t, answers[0].Err)
	return answers[0].Known
}

func (r *slotRig) claim(t tester, c slots.ClaimRequest) slots.ClaimResult {
	t.Helper()
	answers := r.Claim(t.Context(), []slots.ClaimRequest{c})
	require.Len(t, answers, 1)
	require.NoError(t, answers[0].Err)
	return answers[0]
}

// claimAll claims the due tasks for an hour, at most 1000.
func (r *slotRig) claimAll(t tester, slot slots.Slot) []slots.Member {
	t.Helper()
	return r.claim(t, slots.ClaimRequest{Slot: slot, Limit: 1000, Visibility: time.Hour}).Members
}

func (r *slotRig) settle(t tester, s slots.SettleRequest) {
	t.Helper()
	require.Equal(t, []slots.SettleResult{{}}, r.Settle(t.Context(), []slots.SettleRequest{s}))
}

// giveBack gives claims back, and returns how many there were.
func (r *slotRig) giveBack(t tester, slot slots.Slot, members ...slots.Member) int {
	t.Helper()
	answers := r.Settle(t.Context(), []slots.SettleRequest{{Slot: slot, GiveBack: members}})
	require.Len(t, answers, 1)
	require.NoError(t, answers[0].Err)
	return answers[0].GivenBack
}

func settleErrors(answers []slots.SettleResult) []error {
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.Err
	}
	return errs
}

// now is Redis's clock.
func (r *slotRig) now(t tester) time.Time {
	t.Helper()
	return r.claim(t, slots.ClaimRequest{Slot: orders}).Now
}

// masters calls f for every server.
func (r *slotRig) masters(t testing.TB, f func(ctx context.Context, client *redis.Client) error) {
	t.Helper()
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachMaster(t.Context(), f))
		return
	}
	require.NoError(t, f(t.Context(), r.client.(*redis.Client)))
}

// ago and ahead are whole milliseconds, and hours from now, so that the run time of a test does not matter.
func ago(d time.Duration) time.Time   { return time.Now().Add(-d).UTC().Truncate(time.Millisecond) }
func ahead(d time.Duration) time.Time { return ago(-d) }

func member(id uint64, at time.Time, attempts int) slots.Member {
	return slots.Member{JobID: id, At: at, Attempts: attempts}
}

func idsOf(members []slots.Member) []uint64 {
	ids := make([]uint64, len(members))
	for i := range members {
		ids[i] = members[i].JobID
	}
	return ids
}

func sorted(ids []uint64) []uint64 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

// depth is how many members the queues of a slot have.
type depth struct{ Store, Prepared, Dead int64 }

// depthsOf counts in one pipeline.
func depthsOf(t require.TestingT, client redis.UniversalClient, s *slots.Slots, many ...slots.Slot) []depth {
	ctx := context.Background()
	pipe := client.Pipeline()
	var counts []*redis.IntCmd
	for _, slot := range many {
		counts = append(counts, pipe.ZCard(ctx, s.StoreKey(slot)), pipe.ZCard(ctx, s.PrepareKey(slot)), pipe.ZCard(ctx, s.DeadKey(slot)))
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	var list []depth
	for i := range many {
		list = append(list, depth{counts[3*i].Val(), counts[3*i+1].Val(), counts[3*i+2].Val()})
	}
	return list
}
