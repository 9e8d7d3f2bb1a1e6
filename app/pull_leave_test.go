package app_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// Consumers hang up while they wait, at any node: none takes a lease with it. What falls due
// afterwards is handed out at once, as a first attempt.
func TestConsumersThatHangUp(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := pulled(inPatientCluster(t, consul.Addr(), consul.Prefix()), time.Hour)
	nodes := runNodes(t, cfg, 2)
	apis := []*client.Client{askHTTP(nodes[0]), askHTTP(nodes[1])}
	for range 3 {
		ctx, hangUp := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i := range 40 {
			waiting.Go(func() {
				_, err := apis[i%2].Lease(ctx, "order_close", client.AskLease{Max: 10, Wait: 30 * time.Second})
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(300 * time.Millisecond) // real time: they wait
		hangUp()
		waiting.Wait()
		due := time.Now().Add(200 * time.Millisecond)
		var list []client.Submit
		for range 20 {
			list = append(list, client.Submit{BizType: "order_close", BizID: rand.Uint64(), ActionTime: due})
		}
		_, err := apis[0].SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		got := leaseAll(t, apis[1], len(list))
		for _, one := range got {
			require.Equal(t, 1, one.Attempt)
		}
		settleAllOf(t, apis[0], got)
	}
}

// leaseOne leases the next task.
func leaseOne(t *testing.T, api *client.Client, ask client.AskLease) client.LeasedTask {
	t.Helper()
	ask.Wait = 10 * time.Second
	var got client.Leased
	await.That(t, func() (leased bool) {
		var err error
		got, err = api.Lease(t.Context(), "order_close", ask)
		return err == nil && len(got.Tasks) == 1
	}, "a task is leased")
	return got.Tasks[0]
}

// leaseAll leases n tasks.
func leaseAll(t *testing.T, api *client.Client, n int) (list []client.LeasedTask) {
	t.Helper()
	await.That(t, func() bool {
		got, err := api.Lease(t.Context(), "order_close", client.AskLease{Max: n, Wait: time.Second})
		if !errors.Is(err, task.ErrUnavailable) { // a node is about to lock its partitions again
			require.NoError(t, err)
		}
		list = append(list, got.Tasks...)
		return len(list) >= n
	}, "%d tasks are handed out", n)
	return list
}

// settleAllOf acknowledges leases.
func settleAllOf(t *testing.T, api *client.Client, list []client.LeasedTask) {
	t.Helper()
	var settle []client.Settlement
	for _, one := range list {
		settle = append(settle, client.Settlement{Lease: one.Lease.String(), Do: client.Ack})
	}
	await.That(t, func() bool {
		results, err := api.Settle(t.Context(), settle...)
		require.NoError(t, err)
		var again []client.Settlement
		for i, r := range results {
			if r.Result == client.SettledUnavailable { // as above
				again = append(again, settle[i])
			} else {
				require.Equal(t, client.SettledOK, r.Result)
			}
		}
		settle = again
		return len(settle) == 0
	}, "%d leases are settled", len(list))
}
