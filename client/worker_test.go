package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/processor"
)

// A worker that is told to stop while it asks for tasks runs those that are under way, and does not wait for others.
func TestWorkerStopsWhileItAsks(t *testing.T) {
	for name, row := range map[string]struct {
		answersAfter time.Duration // from the stop
		settled      int
	}{
		"an answer is under way": {400 * time.Millisecond, 1},
		"none is":                {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				settled := 0
				center := roundTrip(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/settle") {
						body, err := io.ReadAll(r.Body)
						require.NoError(t, err)
						require.JSONEq(t, `{"settle":[{"lease":"1-1","do":"ack"}]}`, string(body))
						settled++
						return answered(200, `{"results":[{"lease":"1-1","result":"ok"}]}`), nil
					}
					stop()
					select {
					case <-time.After(row.answersAfter):
						expires := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
						return answered(200, `{"tasks":[{"lease":"1-1","attempt":1,"expires_at":"`+expires+`","task":{"job_id":"1","biz_id":"1"}}]}`), nil
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				})
				w := client.Worker{Client: client.New("center", client.WithHTTPClient(&http.Client{Transport: center})), BizType: "a",
					Process: func(ctx context.Context, _ client.LeasedTask) error { return ctx.Err() }}
				began := time.Now()
				require.NoError(t, w.Run(ctx))
				require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
				require.Equal(t, row.settled, settled)
			})
		})
	}
}

// The center puts "discarded" before the reason of a rejected task, so the worker sends the reason without it.
func TestWorkerRejects(t *testing.T) {
	for reason, err := range map[string]error{
		"exit status 99":                processor.Discard(errors.New("exit status 99")),
		"":                              processor.Discard(nil),
		"fire: discarded: out of paper": fmt.Errorf("fire: %w", processor.Discard(errors.New("out of paper"))),
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var asked struct{ Settle []client.Settlement }
			center := roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/settle") {
					require.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
					return answered(200, `{"results":[{"lease":"1-1","result":"ok"}]}`), nil
				}
				stop()
				expires := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
				return answered(200, `{"tasks":[{"lease":"1-1","attempt":1,"expires_at":"`+expires+`","task":{"job_id":"1","biz_id":"1"}}]}`), nil
			})
			w := client.Worker{Client: client.New("center", client.WithHTTPClient(&http.Client{Transport: center})), BizType: "a",
				Process: func(context.Context, client.LeasedTask) error { return err }}
			require.NoError(t, w.Run(ctx))
			require.Equal(t, []client.Settlement{{Lease: "1-1", Do: client.Reject, Error: reason}}, asked.Settle)
		})
	}
}

// What no run could mend is refused before a task is leased.
func TestWorkerIsWrong(t *testing.T) {
	toc := client.New("center", client.WithHTTPClient(&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("it has asked for tasks")
		return nil, errors.New("stopped")
	})}))
	process := func(context.Context, client.LeasedTask) error { return nil }
	for says, w := range map[string]client.Worker{
		"Worker.Client is missing":                   {BizType: "a", Process: process},
		"Worker.BizType is missing":                  {Client: toc, Process: process},
		"Worker.Process is missing":                  {Client: toc, BizType: "a"},
		"Worker.Concurrency is -1: give 1 to 1000":   {Client: toc, BizType: "a", Process: process, Concurrency: -1},
		"Worker.Concurrency is 1001: give 1 to 1000": {Client: toc, BizType: "a", Process: process, Concurrency: 1001},
		"Worker.TTR is 99ms: give 100ms to 24h":      {Client: toc, BizType: "a", Process: process, TTR: 99 * time.Millisecond},
		"Worker.TTR is -1s: give 100ms to 24h":       {Client: toc, BizType: "a", Process: process, TTR: -time.Second},
		"Worker.TTR is 24h0m1s: give 100ms to 24h":   {Client: toc, BizType: "a", Process: process, TTR: 24*time.Hour + time.Second},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		require.ErrorContains(t, w.Run(ctx), says)
		stop()
	}
}

// pulling is a center that hands out n tasks, one at a time, and writes down what it is asked.
type pulling struct {
	t      *testing.T
	n      int
	older  bool // it does not know settle in a request for tasks
	fails  bool // the first request that settles gets no answer
	stop   context.CancelFunc
	mu     sync.Mutex // of what follows
	leased int
	asked  []string
}

func (p *pulling) answer(r *http.Request) (*http.Response, error) {
	var asked struct {
		Settle []client.Settlement
		Wait   string
	}
	require.NoError(p.t, json.NewDecoder(r.Body).Decode(&asked))
	said, results := strings.TrimPrefix(r.URL.Path, "/v1/"), ""
	for i, s := range asked.Settle {
		said += " " + string(s.Do) + " " + s.Lease
		results += strings.Repeat(",", min(i, 1)) + `{"lease":"` + s.Lease + `","result":"ok"}`
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, said)
	switch {
	case p.fails && len(asked.Settle) > 0:
		p.fails = false
		return nil, errors.New("lost")
	case strings.HasSuffix(r.URL.Path, "/settle"):
		return answered(200, `{"results":[`+results+`]}`), nil
	case p.older && len(asked.Settle) > 0:
		refusal := answered(422, `{"status":422,"errors":[{"location":"body.settle","message":"is no field of this body"}]}`)
		refusal.Header = http.Header{"Content-Type": {"application/problem+json"}}
		return refusal, nil
	case p.leased == p.n && len(asked.Settle) > 0:
		return answered(200, `{"tasks":[],"results":[`+results+`]}`), nil
	case p.leased == p.n:
		p.mu.Unlock()
		time.Sleep(time.Second)
		p.stop()
		<-r.Context().Done()
		p.mu.Lock()
		return nil, r.Context().Err()
	}
	p.leased++
	return answered(200, fmt.Sprintf(`{"tasks":[{"lease":"%d-1","attempt":1,"expires_at":%q,"task":{"job_id":"1","biz_id":"1"}}],"results":[%s]}`, p.leased,
		time.Now().Add(time.Minute).UTC().Format(time.RFC3339), results)), nil
}

// What has ended is settled by the next request for tasks, where the worker was waiting to make one.
func TestWorkerSettlesWithItsNextLease(t *testing.T) {
	const lease, settle = "biz-types/a/lease", "leases/settle"
	for name, row := range map[string]struct {
		center *pulling
		asked  []string
	}{
		"as it is":    {&pulling{n: 3}, []string{lease, lease + " ack 1-1", lease + " ack 2-1", lease + " ack 3-1", lease}},
		"an older":    {&pulling{n: 2, older: true}, []string{lease, lease + " ack 1-1", settle + " ack 1-1", lease, settle + " ack 2-1", lease}},
		"a lost one":  {&pulling{n: 1, fails: true}, []string{lease, lease + " ack 1-1", settle + " ack 1-1", lease}},
		"an idle one": {&pulling{}, []string{lease}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				center := row.center
				center.t, center.stop = t, stop
				w := client.Worker{Client: client.New("center", client.WithHTTPClient(&http.Client{Transport: roundTrip(center.answer)})), BizType: "a", Concurrency: 1,
					Process: func(context.Context, client.LeasedTask) error { time.Sleep(time.Millisecond); return nil }}
				require.NoError(t, w.Run(ctx))
				require.ElementsMatch(t, row.asked, center.asked)
			})
		})
	}
}

// An outcome that cannot be settled is settled apart: requests for tasks and the outcomes of others do not wait for it again.
func TestALockedOutcomeHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, locked = 20, "1-1"
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began, leased, acked := time.Now(), 0, 0
		var mu sync.Mutex
		center := roundTrip(func(r *http.Request) (*http.Response, error) {
			var asked struct{ Settle []client.Settlement }
			require.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
			results, meetsLock := make([]string, len(asked.Settle)), false
			for i, s := range asked.Settle {
				result := "ok"
				if s.Lease == locked && time.Since(began) < 20*time.Second {
					result, meetsLock = "unavailable", true
				}
				results[i] = fmt.Sprintf(`{"lease":%q,"result":%q}`, s.Lease, result)
			}
			if meetsLock {
				time.Sleep(2 * time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, one := range results {
				if strings.Contains(one, "ok") {
					acked++
				}
			}
			tasks := ""
			if strings.HasSuffix(r.URL.Path, "/lease") {
				if leased == n && len(results) == 0 {
					mu.Unlock()
					pause := time.NewTimer(time.Minute)
					defer mu.Lock()
					defer pause.Stop()
					select {
					case <-pause.C:
						return answered(200, `{"tasks":[]}`), nil
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				}
				if leased < n {
					leased++
					tasks = fmt.Sprintf(`{"lease":"%d-1","attempt":1,"expires_at":%q,"task":{"job_id":"1","biz_id":"1"}}`, leased,
						time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
				}
			}
			return answered(200, `{"tasks":[`+tasks+`],"results":[`+strings.Join(results, ",")+`]}`), nil
		})
		ran, last := 0, time.Duration(0)
		w := client.Worker{Client: client.New("center", client.WithHTTPClient(&http.Client{Transport: center})), BizType: "a", Concurrency: 1,
			Process: func(context.Context, client.LeasedTask) error {
				ran, last = ran+1, time.Since(began)
				return nil
			}}
		time.AfterFunc(50*time.Second, stop)
		require.NoError(t, w.Run(ctx))
		require.Equal(t, []int{n, n}, []int{ran, acked}, "each is settled in the end")
		require.Less(t, last, 3*time.Second)
	})
}
