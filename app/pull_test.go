package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// pulled makes the business type of a configuration one whose tasks are leased for so long.
func pulled(cfg configs.Config, ttr time.Duration) configs.Config {
	b := &cfg.BizTypes[0]
	b.Processor = configs.ProcessorPull
	b.Pull = configs.Pull{TTR: ttr, MaxInFlight: 1000}
	b.Backoff.Min, b.Backoff.Max = 100*time.Millisecond, 200*time.Millisecond
	return cfg
}

// pullers are consumers that write down who had which task when.
type pullers struct {
	mu      sync.Mutex
	leases  map[uint64][]span // by job_id
	acked   map[uint64]int    // answers ok to an ack
	failed  map[uint64]int    // runs that failed: nacked, or not settled
	unsure  map[uint64]int    // runs that may have failed: their settlement had no answer
	refused int               // requests for leases that had no answer: what they have leased is not known
	settles map[string]int    // by result
}

// span is the time for which a consumer had a task for certain.
type span struct {
	from, to time.Time
	attempt  int
}

func newPullers() *pullers {
	return &pullers{leases: map[uint64][]span{}, acked: map[uint64]int{}, failed: map[uint64]int{}, unsure: map[uint64]int{}, settles: map[string]int{}}
}

// work leases and settles, at another server each time, until ctx ends. Of ten tasks one is given back, one is kept until
// its lease ends, and one is extended first. What cannot be settled now is settled with what is leased next.
func (p *pullers) work(ctx context.Context, t *testing.T, servers func() *client.Client) {
	type inHand struct {
		client.LeasedTask
		since time.Time
		do    client.Settlement
	}
	for open := []inHand(nil); ctx.Err() == nil || len(open) > 0; {
		ask := client.AskLease{Max: 1 + rand.IntN(20), Wait: time.Second}
		if len(open) > 0 {
			ask.Wait = 50 * time.Millisecond
		}
		got, err := servers().Lease(ctx, "order_close", ask)
		if err != nil {
			if ctx.Err() == nil {
				p.mu.Lock()
				p.refused++
				p.mu.Unlock()
			}
			if len(open) == 0 {
				continue
			}
		}
		now := time.Now()
		for _, one := range got.Tasks {
			do := client.Settlement{Lease: one.Lease.String(), Do: client.Ack}
			switch rand.IntN(10) {
			case 0:
				do.Do = client.Nack
			case 1:
				p.note(one, now, one.ExpiresAt.Time(), true)
				continue
			case 2:
				extend := client.Settlement{Lease: do.Lease, Do: client.Extend}
				if r, err := servers().Settle(ctx, extend); err == nil {
					assert.Contains(t, []string{client.SettledOK, client.SettledLost, client.SettledUnavailable}, r[0].Result)
				}
			}
			open = append(open, inHand{one, now, do})
		}
		if len(open) == 0 {
			continue
		}
		var settle []client.Settlement
		for _, one := range open {
			settle = append(settle, one.do)
		}
		sent, sending := time.Now(), open
		results, err := servers().Settle(context.WithoutCancel(ctx), settle...)
		at := time.Now()
		open = nil
		for i, one := range sending {
			if err != nil { // what has become of them is unknown; a repeat would tell no more
				p.unknown(one.LeasedTask, one.since)
				continue
			}
			r := results[i].Result
			p.mu.Lock()
			p.settles[r]++
			p.mu.Unlock()
			switch r {
			case client.SettledOK:
				if one.do.Do == client.Nack { // another may have it before the answer is here
					p.note(one.LeasedTask, one.since, sent, true)
					continue
				}
				p.note(one.LeasedTask, one.since, at, false)
				p.mu.Lock()
				p.acked[uint64(one.Task.JobID)]++
				p.mu.Unlock()
			case client.SettledLost: // this machine was slow: the lease has ended
				p.note(one.LeasedTask, one.since, one.since, true)
			case client.SettledUnavailable:
				if at.Before(one.ExpiresAt.Time()) {
					open = append(open, one)
				} else {
					p.unknown(one.LeasedTask, one.since)
				}
			}
		}
	}
}

func (p *pullers) unknown(one client.LeasedTask, at time.Time) {
	p.note(one, at, at, false)
	p.mu.Lock()
	p.unsure[uint64(one.Task.JobID)]++
	p.mu.Unlock()
}

func (p *pullers) note(one client.LeasedTask, from, to time.Time, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := uint64(one.Task.JobID)
	p.leases[id] = append(p.leases[id], span{from, to, one.Attempt})
	if failed {
		p.failed[id]++
	}
}

// check compares what the consumers have seen with the rows.
func (p *pullers) check(t *testing.T, rows []client.Task, exact bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range rows {
		id := uint64(row.JobID)
		require.Equal(t, "processed", row.Status)
		require.LessOrEqual(t, p.acked[id], 1, "an ack of task %d was answered ok twice", id)
		if exact {
			if p.unsure[id] == 0 {
				require.Equal(t, 1, p.acked[id])
			}
			require.GreaterOrEqual(t, row.Attempts, p.failed[id])
			require.LessOrEqual(t, row.Attempts, p.failed[id]+p.unsure[id]+p.refused)
		}
		for i, a := range p.leases[id] {
			for _, b := range p.leases[id][:i] {
				require.False(t, a.from.Before(b.to) && b.from.Before(a.to), "task %d was handed out twice at the same time", id)
				require.NotEqual(t, a.attempt, b.attempt, "an attempt of task %d was handed out twice", id)
			}
		}
	}
}

// Consumers lease tasks at their time. Each task is settled once, never in two hands, and its attempts are the runs that failed.
func TestPull(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, pulled(cfg, 2*time.Second))
		api := client.New("http://" + c.Addr())
		const n = 100
		start := time.Now().Add(time.Second)
		list := make([]client.Submit, n)
		for i := range list {
			list[i] = client.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: start.Add(time.Duration(i) * 15 * time.Millisecond)}
		}
		stored, err := c.Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		p := newPullers()
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		for range 3 {
			working.Go(func() { p.work(ctx, t, func() *client.Client { return api }) })
		}
		awaitRows(t, cfg, task.Processed, n)
		stop()
		working.Wait()
		rows := make([]client.Task, n)
		for i, s := range stored {
			rows[i], err = c.Tasks().Get(t.Context(), uint64(s.JobID))
			require.NoError(t, err)
		}
		p.check(t, rows, true)
		require.Zero(t, p.settles[client.SettledInvalid])
	})
}

// A leased task runs, as far as others can tell.
func TestALeasedTaskCannotBeChanged(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, pulled(cfg, time.Minute))
		api := client.New("http://" + c.Addr())
		s, err := api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 42, Now: true, DedupKey: "k", Timeout: 30 * time.Second})
		require.NoError(t, err)
		id := uint64(s.Task.JobID)
		asked := time.Now()
		one := leaseOne(t, api, client.AskLease{TTR: time.Hour})
		require.Equal(t, s.Task.JobID, one.Task.JobID)
		require.Equal(t, s.Task.ActionTime, one.Task.ActionTime)
		require.WithinRange(t, one.ExpiresAt.Time(), asked.Add(30*time.Second), time.Now().Add(30*time.Second+time.Second), "the task's own timeout")

		requireOutcome(t, task.ConflictRunning, api.Cancel(t.Context(), id))
		_, err = api.Reschedule(t.Context(), id, client.Change{Delay: new(time.Hour)})
		requireOutcome(t, task.ConflictRunning, err)
		_, err = api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 42, Delay: time.Hour, DedupKey: "k", OnDuplicate: client.Move})
		requireOutcome(t, task.ConflictRunning, err)
		shown, err := api.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "pending", shown.Status)
		require.Equal(t, one.ExpiresAt, shown.Running.Until)
		require.Equal(t, one.ExpiresAt, shown.ActionTime)
		require.Equal(t, s.Task.ActionTime, shown.DueTime)
		why, err := api.Why(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "running", why.Where)
		require.Contains(t, fmt.Sprint(why.Because), "a consumer has leased it until")

		results, err := api.Settle(t.Context(),
			client.Settlement{Lease: "x", Do: client.Ack},
			client.Settlement{Lease: one.Lease.String(), Do: client.Reject, Error: "paid"},
			client.Settlement{Lease: one.Lease.String(), Do: client.Ack})
		require.NoError(t, err)
		require.Equal(t, []client.SettleResult{{Lease: "x", Result: "invalid"}, {Lease: one.Lease.String(), Result: "ok"}, {Lease: one.Lease.String(), Result: "lost"}}, results)
		requireOutcome(t, task.ConflictCancelled, api.Cancel(t.Context(), id))
		shown, err = api.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "discarded: paid", shown.LastError)

		_, err = api.Pause(t.Context(), "order_close", client.Pause{})
		require.NoError(t, err)
		got, err := api.Lease(t.Context(), "order_close", client.AskLease{Wait: 100 * time.Millisecond})
		require.NoError(t, err)
		require.Empty(t, got.Tasks)
		require.True(t, got.Paused)
	})
}

// Who asks now and then, and does not wait, gets what has lain due for a while.
func TestALeaseWithoutWaitGetsWhatIsDue(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, pulled(cfg, time.Minute))
		api := client.New("http://" + c.Addr())
		const n = 20
		for i := range uint64(n) {
			_, err := api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: i, Now: true})
			require.NoError(t, err)
		}
		got := 0
		for asks := 0; got < n; asks++ {
			require.Less(t, asks, 60, "only %d of %d were handed out", got, n)
			leased, err := api.Lease(t.Context(), "order_close", client.AskLease{Max: n})
			require.NoError(t, err)
			got += len(leased.Tasks)
			if got < n {
				time.Sleep(2500 * time.Millisecond) // real time: what is read then is old again
			}
		}
	})
}

// Any node hands out and settles the tasks of all, while nodes come and go: leases outlive them.
func TestPullInACluster(t *testing.T) {
	t.Parallel()
	c := testrig.Consul(t)
	cfg := pulled(inPatientCluster(t, c.Addr(), c.Prefix()), 3*time.Second)
	nodes := runNodes(t, cfg, 2)
	var mu sync.Mutex
	apis := []*client.Client{askHTTP(nodes[0]), askHTTP(nodes[1])}
	servers := func() *client.Client {
		mu.Lock()
		defer mu.Unlock()
		return apis[rand.IntN(len(apis))]
	}

	// A consumer that waits at one node gets what falls due at the other.
	for range 3 {
		due := time.Now().Add(700 * time.Millisecond)
		s, err := servers().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: rand.Uint64(), ActionTime: due})
		require.NoError(t, err)
		got := leaseOne(t, apis[0], client.AskLease{})
		require.Equal(t, s.Task.JobID, got.Task.JobID)
		results, err := apis[1].Settle(t.Context(), client.Settlement{Lease: got.Lease.String(), Do: client.Ack})
		require.NoError(t, err)
		require.Equal(t, client.SettledOK, results[0].Result)
	}

	const n = 200
	start := time.Now().Add(time.Second)
	list := make([]client.Submit, n)
	for i := range list {
		list[i] = client.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: start.Add(time.Duration(i) * 16 * time.Millisecond)}
	}
	stored, err := nodes[0].Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	p := newPullers()
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() { p.work(ctx, t, servers) })
	}
	await.That(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.acked) > 50 }, "some tasks are settled")
	cfg.Node.Name = "node-2"
	third := run(t, cfg)
	mu.Lock()
	apis = append(apis, askHTTP(third))
	mu.Unlock()
	awaitShares(t, append(nodes, third))
	mu.Lock()
	apis = apis[1:]
	mu.Unlock()
	require.NoError(t, nodes[0].stop())
	awaitRows(t, cfg, task.Processed, n+3)
	stop()
	working.Wait()
	rows := make([]client.Task, n)
	for i, s := range stored {
		rows[i], err = third.Tasks().Get(t.Context(), uint64(s.JobID))
		require.NoError(t, err)
	}
	p.check(t, rows, false)
}

// A stream sends tasks as they fall due, as many as it has credit for.
func TestPullStream(t *testing.T) {
	t.Parallel()
	cfg := pulled(fewTables(t), time.Minute)
	c := run(t, cfg)
	url := "http://" + c.Addr() + "/v1/biz-types/order_close/stream"
	for query, status := range map[string]int{"?credit=0": 422, "?credit=x": 422, "?ttr=1ms": 422, "?max=1": 422} {
		r, err := http.Get(url + query)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, status, r.StatusCode, query)
	}
	for header, status := range map[[2]string]int{{"Sec-Fetch-Site", "cross-site"}: 403, {"User-Agent", "Mozilla/5.0 (a picture of another page)"}: 406} {
		foreign, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		foreign.Header.Set(header[0], header[1])
		r, err := http.DefaultClient.Do(foreign)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, status, r.StatusCode, header[0])
	}

	r, err := http.Get(url + "?credit=3&ttr=30s")
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, 200, r.StatusCode)
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	start := time.Now().Add(time.Second)
	var list []client.Submit
	for i := range 5 {
		list = append(list, client.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: start.Add(time.Duration(i) * 500 * time.Millisecond)})
	}
	_, err = c.Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	var seen []string
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: {\"lease\"")
		if !is {
			continue
		}
		var one client.LeasedTask
		require.NoError(t, json.Unmarshal([]byte(`{"lease"`+data), &one))
		require.WithinRange(t, one.ExpiresAt.Time(), start.Add(30*time.Second), time.Now().Add(30*time.Second+time.Millisecond), "rounded up to a millisecond")
		results, err := client.New("http://"+c.Addr()).Settle(t.Context(), client.Settlement{Lease: one.Lease.String(), Do: client.Ack})
		require.NoError(t, err)
		require.Equal(t, client.SettledOK, results[0].Result)
		seen = append(seen, one.Task.BizID.String())
	}
	require.NoError(t, lines.Err())
	require.Len(t, seen, 3, "and then the stream ends")
	require.Subset(t, []string{"0", "1", "2", "3", "4"}, seen)
	require.Equal(t, 3, countStatus(t, cfg, task.Processed))
}
