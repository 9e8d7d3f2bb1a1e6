package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
)

// extending is a center that hands out tasks once, and writes down which leases it is asked to extend when.
type extending struct {
	t       *testing.T
	servers int                                       // default 1
	tasks   string                                    // the fields of each, one a line; $end is in 10 s
	extend  func(after time.Duration) (string, error) // the result
	ill     func(r *http.Request) *http.Response      // answers an extension instead; nil: it does not. An answer of nil: none comes
	stop    context.CancelFunc                        // once they are handed out
	began   time.Time

	mu      sync.Mutex // of what follows: a request that hangs does not hold up others
	asked   map[time.Duration][]client.Settlement
	settled map[string]client.Settlement

	unanswered int // extensions that were not answered well
}

var wellAnswered = &http.Response{}

func (c *extending) answer(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/settle") {
		c.stop()
		c.began = time.Now()
		tasks := strings.ReplaceAll(c.tasks, "$end", c.began.Add(10*time.Second).UTC().Format(time.RFC3339))
		tasks = strings.ReplaceAll(tasks, "$soon", c.began.Add(9*time.Second).UTC().Format(time.RFC3339))
		return answered(200, `{"tasks":[`+tasks+`]}`), nil
	}
	var asked struct{ Settle []client.Settlement }
	require.NoError(c.t, json.NewDecoder(r.Body).Decode(&asked))
	if c.ill != nil && asked.Settle[0].Do == client.Extend {
		if answer := c.ill(r); answer != wellAnswered {
			c.mu.Lock()
			c.unanswered++
			c.mu.Unlock()
			if answer != nil {
				return answer, nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
	}
	var results []client.SettleResult
	for _, s := range asked.Settle {
		result := client.SettleResult{Lease: s.Lease, Result: client.SettledOK}
		if s.Do == client.Extend {
			after := time.Since(c.began)
			c.mu.Lock()
			c.asked[after] = append(c.asked[after], s)
			c.mu.Unlock()
			var err error
			if result.Result, err = c.extend(after); err != nil {
				return nil, err
			}
		} else {
			c.mu.Lock()
			c.settled[s.Lease] = s
			c.mu.Unlock()
		}
		results = append(results, result)
	}
	body, err := json.Marshal(map[string]any{"results": results})
	require.NoError(c.t, err)
	return answered(200, string(body)), nil
}

// worked runs a worker on the tasks of the center.
func (c *extending) worked(w client.Worker) {
	ctx, stop := context.WithCancel(c.t.Context())
	c.stop, c.asked, c.settled = stop, map[time.Duration][]client.Settlement{}, map[string]client.Settlement{}
	options := []client.Option{client.WithHTTPClient(&http.Client{Transport: roundTrip(c.answer)})}
	options = append(options, client.WithServers([]string{"http://b", "http://c"}[:max(1, c.servers)-1]...))
	w.Client, w.BizType = client.New("http://a", options...), "orders"
	require.NoError(c.t, w.Run(ctx))
}

func well(time.Duration) (string, error) { return client.SettledOK, nil }

// The leases of runs that last are extended together, each when half of it is over, though the worker is told to stop. That of a
// task with a timeout of its own is left alone: it is the run's deadline.
func TestWorkerExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &extending{t: t, extend: well, tasks: `
			{"lease":"1-1","attempt":1,"expires_at":"$end","task":{"job_id":"1","biz_id":"12"}},
			{"lease":"2-1","attempt":1,"expires_at":"$end","task":{"job_id":"2","biz_id":"33"}},
			{"lease":"3-1","attempt":1,"expires_at":"$end","task":{"job_id":"3","biz_id":"9","timeout":"10s"}}`}
		c.worked(client.Worker{TTR: 10 * time.Second, Process: func(ctx context.Context, got client.LeasedTask) error {
			deadline, has := ctx.Deadline()
			require.Equal(t, got.Task.Timeout > 0, has)
			if has {
				require.Equal(t, 10*time.Second, time.Until(deadline))
			}
			time.Sleep(time.Duration(got.Task.BizID.Number) * time.Second)
			return ctx.Err()
		}})
		require.Equal(t, 33*time.Second, time.Since(c.began))
		require.Len(t, c.settled, 3)
		for _, s := range c.settled {
			require.Equal(t, client.Ack, string(s.Do))
		}
		require.Len(t, c.asked, 6, "at 5, 10 … 30 s")
		for after, list := range c.asked {
			require.Zero(t, after%(5*time.Second))
			want := []string{"2-1"}
			if after <= 10*time.Second {
				want = []string{"1-1", "2-1"}
			}
			var leases []string
			for _, s := range list {
				require.Equal(t, 10*time.Second, time.Duration(s.TTR))
				leases = append(leases, s.Lease)
			}
			require.ElementsMatch(t, want, leases)
		}
	})
}

// The context of a run ends with its lease, and its cause tells why.
func TestWorkerLosesALease(t *testing.T) {
	for name, row := range map[string]struct {
		maxRun time.Duration
		extend func(after time.Duration) (string, error)
		ends   time.Duration
		cause  error
		asked  int
	}{
		"it is lost": {0, func(after time.Duration) (string, error) {
			if after > 7*time.Second {
				return client.SettledLost, nil
			}
			return client.SettledOK, nil
		}, 10 * time.Second, client.ErrLeaseLost, 2},
		"the center is away": {0, func(time.Duration) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return "", errors.New("away")
		}, 10 * time.Second, context.DeadlineExceeded, 10},
		"its database is away for a while": {0, func(after time.Duration) (string, error) {
			if after < 8*time.Second {
				return client.SettledUnavailable, nil
			}
			return client.SettledLost, nil
		}, 8361600 * time.Microsecond, client.ErrLeaseLost, 6},
		"it has run for long enough":    {12 * time.Second, well, 20 * time.Second, context.DeadlineExceeded, 2},
		"it runs for an hour":           {0, well, time.Hour + 10*time.Second, context.DeadlineExceeded, 720},
		"leases are not to be extended": {-1, well, 10 * time.Second, context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &extending{t: t, extend: row.extend, tasks: `{"lease":"1-1","attempt":1,"expires_at":"$end","task":{"job_id":"1","biz_id":"1"}}`}
				c.worked(client.Worker{MaxRun: row.maxRun, Process: func(ctx context.Context, _ client.LeasedTask) error {
					<-ctx.Done()
					require.Equal(t, row.ends, time.Since(c.began))
					require.Equal(t, row.cause, context.Cause(ctx))
					return context.Cause(ctx)
				}})
				require.Len(t, c.asked, row.asked)
				require.Equal(t, client.Nack, string(c.settled["1-1"].Do))
			})
		})
	}
}

// Extensions get through where a server, or a request, does not answer, and end where they are refused for good.
func TestWorkerExtendsDespiteFaults(t *testing.T) {
	once := func(answer *http.Response) func(*http.Request) *http.Response {
		asked := false
		return func(*http.Request) *http.Response {
			if asked {
				return wellAnswered
			}
			asked = true
			return answer
		}
	}
	ofA := func(answer func() *http.Response) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			if r.URL.Host == "a" {
				return answer()
			}
			return wellAnswered
		}
	}
	for name, row := range map[string]struct {
		servers    int
		ill        func(r *http.Request) *http.Response
		ttr        time.Duration
		end        string // of the first lease, for this machine
		unanswered int
		ends       time.Duration // of the run, which would last for 33 s
	}{
		"a server is silent":     {2, ofA(func() *http.Response { return nil }), 10 * time.Second, "$end", 1, 33 * time.Second},
		"a server drains":        {2, ofA(func() *http.Response { return answered(503, `{"title":"draining"}`) }), 10 * time.Second, "$end", 1, 33 * time.Second},
		"a request is lost":      {1, once(nil), 3 * time.Second, "$end", 1, 33 * time.Second},
		"a server answers late":  {2, func(*http.Request) *http.Response { time.Sleep(900 * time.Millisecond); return wellAnswered }, 3 * time.Second, "$end", 0, 33 * time.Second},
		"a node is silent":       {3, func(*http.Request) *http.Response { time.Sleep(2 * time.Second); return wellAnswered }, 10 * time.Second, "$end", 0, 33 * time.Second},
		"the token is withdrawn": {2, func(*http.Request) *http.Response { return answered(401, `{"title":"no"}`) }, 0, "$end", 13, 10 * time.Second},
		"this clock is ahead":    {2, func(*http.Request) *http.Response { time.Sleep(60 * time.Millisecond); return wellAnswered }, 0, "2000-01-01T00:00:00Z", 0, 33 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &extending{t: t, servers: row.servers, extend: well, ill: row.ill, tasks: `{"lease":"1-1","attempt":1,"expires_at":"` + row.end + `","task":{"job_id":"1","biz_id":"1"}}`}
				var ended time.Duration
				c.worked(client.Worker{TTR: row.ttr, Process: func(ctx context.Context, _ client.LeasedTask) error {
					select {
					case <-time.After(33 * time.Second):
					case <-ctx.Done():
					}
					ended = time.Since(c.began)
					return nil
				}})
				require.Equal(t, row.ends, ended)
				require.Equal(t, row.unanswered, c.unanswered)
				require.Less(t, len(c.asked), 80)
			})
		})
	}
}

// A run that ends its goroutine has failed: its lease is not extended any more.
func TestWorkerWhoseRunEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &extending{t: t, extend: well, tasks: `{"lease":"1-1","attempt":1,"expires_at":"$end","task":{"job_id":"1","biz_id":"1"}}`}
		c.worked(client.Worker{Process: func(context.Context, client.LeasedTask) error {
			time.Sleep(7 * time.Second)
			runtime.Goexit()
			return nil
		}})
		require.Len(t, c.asked, 1)
		require.Equal(t, client.Nack, string(c.settled["1-1"].Do))
	})
}

// An extension that gets no answer does not hold up those of other leases.
func TestWorkerExtendsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var later atomic.Bool
		c := &extending{t: t, extend: well, tasks: `{"lease":"1-1","attempt":1,"expires_at":"$end","task":{"job_id":"1","biz_id":"1"}},
			{"lease":"2-1","attempt":1,"expires_at":"$soon","task":{"job_id":"2","biz_id":"2"}}`,
			ill: func(*http.Request) *http.Response {
				if later.Swap(true) {
					return wellAnswered
				}
				return nil // of the lease that ends soon
			}}
		c.worked(client.Worker{Process: func(ctx context.Context, got client.LeasedTask) error {
			select {
			case <-time.After(20 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}})
		require.Equal(t, client.Ack, string(c.settled["1-1"].Do))
		require.Len(t, c.asked[5*time.Second], 1, "while the other request hangs")
		require.Equal(t, client.Ack, string(c.settled["2-1"].Do))
	})
}
