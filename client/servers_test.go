package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
)

// one is a server of a center with several.
type one struct {
	*httptest.Server
	calls  atomic.Int64
	status atomic.Int64 // 0: it answers well; -1: it hangs up
}

func startOne(t *testing.T) *one {
	s := &one{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.calls.Add(1)
		switch status := s.status.Load(); status {
		case -1:
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		case 0:
			_, _ = w.Write([]byte(`{"job_id":"7","outcome":"cancelled","results":[]}`))
		default:
			w.WriteHeader(int(status))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func gone(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
}

func open(t *testing.T, url string, others ...string) *client.Client {
	c := client.New(url, client.WithServers(others...))
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// A server that is not there is passed by, by any request, and not asked first again.
func TestAServerIsNotThere(t *testing.T) {
	a, b := startOne(t), startOne(t)
	c := open(t, gone(t), a.URL, b.URL)
	for range 3 {
		err := c.Cancel(t.Context(), 7)
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, a.calls.Load())
	a.Close()
	c.CloseIdleConnections()
	err := c.Cancel(t.Context(), 7)
	require.NoError(t, err)
	require.EqualValues(t, 1, b.calls.Load())

	_, err = open(t, gone(t), gone(t)).Get(t.Context(), 7)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
}

// What may have been done is asked of another server only if it is safe to repeat.
func TestAnAnswerIsLost(t *testing.T) {
	key := client.Submit{BizType: "a", BizID: 1, Delay: time.Minute, DedupKey: "k"}
	moves, again, noKey := key, key, key
	moves.OnDuplicate, again.OnDuplicate, noKey.DedupKey = client.Move, client.Again, ""
	for name, row := range map[string]struct {
		call func(c *client.Client) error
		safe bool
	}{
		"get":            {func(c *client.Client) error { _, err := c.Get(t.Context(), 7); return err }, true},
		"submit":         {func(c *client.Client) error { _, err := c.Submit(t.Context(), noKey); return err }, false},
		"submit by key":  {func(c *client.Client) error { _, err := c.Submit(t.Context(), key); return err }, true},
		"submit to move": {func(c *client.Client) error { _, err := c.Submit(t.Context(), moves); return err }, false},
		"submit again":   {func(c *client.Client) error { _, err := c.Submit(t.Context(), again); return err }, false},
		"batch of keys": {func(c *client.Client) error {
			_, err := c.SubmitBatch(t.Context(), []client.Submit{key, key})
			return err
		}, true},
		"batch, one none": {func(c *client.Client) error {
			_, err := c.SubmitBatch(t.Context(), []client.Submit{key, noKey})
			return err
		}, false},
		"cancel":  {func(c *client.Client) error { return c.Cancel(t.Context(), 7) }, false},
		"redrive": {func(c *client.Client) error { _, err := c.RedriveDead(t.Context(), client.RedriveDead{}); return err }, false},
	} {
		for _, status := range []int64{-1, 502, 503, 504} {
			a, b := startOne(t), startOne(t)
			a.status.Store(status)
			err := row.call(open(t, a.URL, b.URL))
			if row.safe {
				require.NoError(t, err, name)
			} else {
				require.Error(t, err, name)
			}
			require.EqualValues(t, 1, a.calls.Load(), "%s: net/http may repeat it at one server only if it is safe", name)
			require.Equal(t, row.safe, b.calls.Load() == 1, name)
		}
	}
}

// A refusal is an answer, whoever gives it.
func TestARefusalIsFinal(t *testing.T) {
	a, b := startOne(t), startOne(t)
	for _, status := range []int64{400, 401, 404, 409, 422, 500} {
		a.status.Store(status)
		_, err := open(t, a.URL, b.URL).Get(t.Context(), 7)
		var refused *client.Error
		require.ErrorAs(t, err, &refused)
		require.EqualValues(t, status, refused.Status)
	}
	require.Zero(t, b.calls.Load())
}

func TestAServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		toc := func() *client.Client {
			return client.New("http://a", client.WithServers("http://b"), client.WithHTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if asked[r.URL.Host]++; r.URL.Host == "a" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return answered(200, `{"job_id":"7"}`), nil
			})}))
		}
		c, began := toc(), time.Now()
		_, err := c.Get(t.Context(), 7)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
		_, err = c.Get(t.Context(), 7)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"a": 1, "b": 2}, asked, "the other one is asked first")

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		c = toc()
		_, err = c.Get(ctx, 7)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the caller's time is over")
		began = time.Now()
		_, err = c.Get(t.Context(), 7)
		require.NoError(t, err)
		require.Zero(t, time.Since(began), "the other one is asked first")
	})
}
