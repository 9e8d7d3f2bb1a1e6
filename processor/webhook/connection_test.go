package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

func TestCloseHangsUp(t *testing.T) {
	r, _ := record(t)
	w := open(t, webhook.Config{URL: r.URL})
	require.NoError(t, w.Process(t.Context(), order()))
	require.NoError(t, w.Close())
	<-r.closed
}

// TestServerThatHangsUpWhenIdle closes each connection as the second call on it
// comes in, the way a keep-alive time-out that crosses a call does.
func TestServerThatHangsUpWhenIdle(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	addr := script(t, ok, hangUp)
	w := open(t, webhook.Config{URL: "http://" + addr})
	for range 10 {
		require.NoError(t, w.Process(t.Context(), order()))
	}
}

// TestCrashingReceiverIsCalledTwiceAtMost has many connections idle: each of
// them could be tried.
func TestCrashingReceiverIsCalledTwiceAtMost(t *testing.T) {
	var crash atomic.Bool
	var calls atomic.Int32
	var together sync.WaitGroup
	together.Add(orderClose.Workers)
	r := serve(t, func(http.ResponseWriter, *http.Request) {
		if crash.Load() {
			calls.Add(1)
			panic(http.ErrAbortHandler)
		}
		together.Done()
		together.Wait() // so that each call has its own connection
	})
	w := open(t, webhook.Config{URL: r.URL})
	var all errgroup.Group
	for range orderClose.Workers {
		all.Go(func() error { return w.Process(t.Context(), order()) })
	}
	require.NoError(t, all.Wait())
	require.Equal(t, orderClose.Workers, r.connections())

	crash.Store(true)
	require.ErrorContains(t, w.Process(t.Context(), order()), "EOF")
	require.EqualValues(t, 2, calls.Load())
	require.Equal(t, orderClose.Workers+1, r.connections(), "the repeat has a new connection")
}

// TestCrashAmongHealthyCalls has one task that crashes the receiver while
// others bring connections back all the time, so that a repeat may get one of
// theirs instead of a new one.
func TestCrashAmongHealthyCalls(t *testing.T) {
	const crashing, runs = 666, 40
	var calls atomic.Int32
	r := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("webhook-id") == strconv.Itoa(crashing) {
			calls.Add(1)
			panic(http.ErrAbortHandler)
		}
	})
	w := open(t, webhook.Config{URL: r.URL})
	ctx, stop := context.WithCancel(t.Context())
	var healthy errgroup.Group
	for range 4 {
		healthy.Go(func() error {
			for ctx.Err() == nil {
				if err := w.Process(t.Context(), order()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	most := int32(0)
	for range runs {
		before := calls.Load()
		require.Error(t, w.Process(t.Context(), task.Task{JobID: crashing}))
		most = max(most, calls.Load()-before)
	}
	stop()
	require.NoError(t, healthy.Wait(), "healthy calls do not suffer")
	require.LessOrEqual(t, most, int32(2))
}

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	r := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // before the server is closed

	err := open(t, webhook.Config{URL: r.URL, Timeout: 50 * time.Millisecond}).Process(t.Context(), order())
	require.ErrorContains(t, err, "POST "+r.Listener.Addr().String()+": no answer within ")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = open(t, webhook.Config{URL: r.URL, Timeout: time.Hour}).Process(ctx, order())
	require.ErrorIs(t, err, context.DeadlineExceeded, "the business type's timeout holds in any case")

	ctx, stop := context.WithCancel(t.Context())
	stop()
	err = open(t, webhook.Config{URL: r.URL}).Process(ctx, order())
	require.ErrorContains(t, err, "stopped after ")
	require.ErrorIs(t, err, context.Canceled)
}

// TestStatusDecidesHoweverTheBodyEnds has a receiver that never ends its body.
func TestStatusDecidesHoweverTheBodyEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the end of a body is waited for a second")
	}
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, open(t, webhook.Config{URL: r.URL}).Process(ctx, order()))
	require.NoError(t, ctx.Err())
	<-r.closed
}

func TestEndlessBodyIsNotReadToItsEnd(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusBadGateway} {
		r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			for chunk := make([]byte, 32<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		err := open(t, webhook.Config{URL: r.URL}).Process(t.Context(), order())
		require.Equal(t, code == http.StatusOK, err == nil)
		<-r.closed
	}
}

// hangUp as an answer closes the connection instead.
const hangUp = ""

// script is a server that gives each connection the same answers, one a request,
// and closes it after the last.
func script(t *testing.T, answers ...string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns errgroup.Group
	conns.Go(func() error {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			conns.Go(func() error { defer conn.Close(); return play(conn, answers) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, conns.Wait())
	})
	return l.Addr().String()
}

func play(conn net.Conn, answers []string) error {
	in := bufio.NewReader(conn)
	for _, answer := range answers {
		req, err := http.ReadRequest(in)
		if err != nil {
			return nil // the caller hung up
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return nil
		}
	}
	return nil
}
