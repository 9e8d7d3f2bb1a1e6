package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
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

// Consumers hang up while they wait, at any node, by a request or a stream: none takes a lease with it. What falls due
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
			if i%4 == 0 {
				waiting.Go(func() { assert.Empty(t, readStream(ctx, t, nodes[i/4%2], "?credit=10", nil)) })
			}
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

// A stream at any node sends the tasks of all nodes.
func TestAStreamOfAllNodes(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := pulled(inPatientCluster(t, consul.Addr(), consul.Prefix()), time.Hour)
	nodes := runNodes(t, cfg, 2)
	const n = 60
	start := time.Now().Add(500 * time.Millisecond)
	var list []client.Submit
	for i := range n {
		list = append(list, client.Submit{BizType: "order_close", BizID: rand.Uint64(), ActionTime: start.Add(time.Duration(i) * 20 * time.Millisecond)})
	}
	submitted := make(chan error, 1)
	ctx := await.Context(t)
	got := readStream(ctx, t, nodes[1], "?credit=60", func() {
		_, err := askHTTP(nodes[0]).SubmitBatch(ctx, list)
		submitted <- err
	})
	require.NoError(t, <-submitted)
	require.Len(t, got, n, "and then it ends")
	ids := map[uint64]bool{}
	for _, one := range got {
		ids[uint64(one.Task.JobID)] = true
	}
	require.Len(t, ids, n)
	settleAllOf(t, askHTTP(nodes[0]), got)
}

// readStream reads a stream until it ends or ctx does. begun is called when it has begun.
func readStream(ctx context.Context, t *testing.T, at *center, query string, begun func()) (list []client.LeasedTask) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Addr()+"/v1/biz-types/order_close/stream"+query, nil)
	if !assert.NoError(t, err) {
		return nil
	}
	ask.Header.Set("Authorization", "Bearer let-me-in-0123456")
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := c.Do(ask)
	if err != nil {
		assert.ErrorIs(t, err, context.Canceled)
		return nil
	}
	defer answer.Body.Close()
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	if begun != nil {
		begun()
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		text, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is || text == "{}" {
			continue
		}
		var one client.LeasedTask
		if assert.NoError(t, json.Unmarshal([]byte(text), &one)) {
			list = append(list, one)
		}
	}
	return list
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
