package httppool_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// fixture is a pool whose calls go to one server.
type fixture struct {
	*testing.T
	memnet.Net
	protocol string
	pool     *httppool.Pool
	url      string
}

// inBubbles runs a test in a bubble for each of these protocols.
func inBubbles(t *testing.T, h http.Handler, protocols []string, f func(*fixture)) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fixture{T: t, protocol: protocol}
				transport := &http.Transport{MaxIdleConnsPerHost: 64}
				b.Enter(transport)
				b.pool = httppool.New(transport)
				base, stop := b.Serve(t, "example.com:443", protocol, h)
				defer stop()
				b.url = base
				defer b.pool.CloseIdleConnections()
				f(b)
			})
		})
	}
}

// call calls the server, and returns its answer.
func (f *fixture) call(limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(f.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, nil)
	require.NoError(f, err)
	resp, err := f.pool.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// h2Only: HTTP/1.1 has no pings, and net/http closes its connection when a call is given up.
var h2Only = memnet.Protocols[1:]

// A name gets a new server while the old one still answers.
func TestANameIsFollowedUnderSteadyLoad(t *testing.T) {
	inBubbles(t, says("old"), memnet.Protocols, func(f *fixture) {
		call := func() string {
			text, err := f.call(time.Second)
			require.NoError(f, err)
			time.Sleep(100 * time.Millisecond)
			return text
		}
		require.Equal(f, "old", call())
		_, stop := f.Serve(f, "example.com:443", f.protocol, says("new"))
		defer stop()
		moved := time.Now()
		for call() == "old" {
			require.Less(f, time.Since(moved), 2*httppool.MaxAge)
		}
		require.LessOrEqual(f, time.Since(moved), httppool.MaxAge+time.Second)
		require.GreaterOrEqual(f, time.Since(moved), httppool.MaxAge/2, "connections are reused until then")
		require.Equal(f, 2, f.Dialed())
	})
}

// A call under way on a connection that is replaced ends on it.
func TestCallsOutliveTheAgeOfTheirConnection(t *testing.T) {
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("slow") != "" {
			time.Sleep(3 * httppool.MaxAge)
		}
	})
	inBubbles(t, slow, memnet.Protocols, func(f *fixture) {
		var calls sync.WaitGroup
		calls.Go(func() {
			r, err := http.NewRequestWithContext(f.Context(), http.MethodPost, f.url, nil)
			require.NoError(f, err)
			r.Header.Set("slow", "1")
			resp, err := f.pool.RoundTrip(r)
			require.NoError(f, err)
			require.NoError(f, resp.Body.Close())
		})
		for range 40 {
			time.Sleep(5 * time.Second)
			_, err := f.call(time.Second)
			require.NoError(f, err)
		}
		calls.Wait()
	})
}

// An HTTP/2 connection on which nothing arrives is found dead by a ping, whether calls wait on it or not.
func TestASilentConnectionIsPinged(t *testing.T) {
	inBubbles(t, says("ok"), h2Only, func(f *fixture) {
		_, err := f.call(time.Second)
		require.NoError(f, err)
		f.Silence()
		began := time.Now()
		_, err = f.call(time.Hour)
		require.True(f, httppool.IsLost(err), "%v", err)
		require.LessOrEqual(f, time.Since(began), httppool.SendPingAfter+httppool.PingTimeout)
		_, err = f.call(time.Second)
		require.NoError(f, err)

		f.Silence()
		time.Sleep(httppool.SendPingAfter + httppool.PingTimeout + time.Millisecond)
		_, err = f.call(time.Second)
		require.NoError(f, err, "an idle one is found, too")
	})
}

// A connection without a call is closed, and not before its time.
func TestAnIdleConnectionIsClosed(t *testing.T) {
	inBubbles(t, says("ok"), memnet.Protocols, func(f *fixture) {
		_, err := f.call(time.Second)
		require.NoError(f, err)
		time.Sleep(httppool.IdleTimeout - time.Millisecond)
		require.Equal(f, 1, f.Open())
		time.Sleep(2 * time.Millisecond)
		require.Zero(f, f.Open())
	})
}

// Many connections fall silent at once. One call without an answer is enough to leave all of them.
func TestSilentConnectionsFailOneCall(t *testing.T) {
	inBubbles(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond) }), memnet.Protocols, func(f *fixture) {
		var warmUp sync.WaitGroup
		for range 20 {
			warmUp.Go(func() {
				_, err := f.call(time.Second)
				require.NoError(f, err)
			})
		}
		warmUp.Wait()
		f.Silence()
		failed := 0
		for range 20 {
			if _, err := f.call(time.Second); err != nil {
				failed++
			}
		}
		require.Equal(f, 1, failed)
	})
}

// A receiver that is only slow gets no new connection for each call.
func TestCallsThatAreTooSlowShareNewConnections(t *testing.T) {
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { time.Sleep(150 * time.Millisecond) })
	inBubbles(t, slow, h2Only, func(f *fixture) {
		const calls = 100
		for range calls {
			_, err := f.call(100 * time.Millisecond)
			require.ErrorIs(f, err, context.DeadlineExceeded)
		}
		most := 2 + int(calls*100*time.Millisecond/httppool.SuspectEvery)
		require.LessOrEqual(f, f.Dialed(), most)
		time.Sleep(time.Second)
	})
}

// The table of docs/production.md has these times.
func TestTheTableOfConnectionsIsTrue(t *testing.T) {
	const name = "webhooks, Go client, node to node, Consul, traces"
	require.Equal(t, []string{
		fmt.Sprintf("by a call whose time ends; then all to this host are replaced, at most every %s. HTTP/2 also by a ping, after %s + %s",
			httppool.SuspectEvery, httppool.SendPingAfter, httppool.PingTimeout),
		httppool.IdleTimeout.String(), httppool.MaxAge.String() + ", less up to a third",
	}, testrig.DocsRow(t, "../../docs/production.md", name))
}
