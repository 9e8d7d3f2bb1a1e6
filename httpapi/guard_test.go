package httpapi_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/httpapi"
)

// An answer that has begun cannot become a 500: it is cut off, so that nobody
// takes it for whole.
func TestPanicInTheMiddleOfAnAnswer(t *testing.T) {
	var log bytes.Buffer
	var cause any = "out of cheese"
	h := newFake(newFakeDesk(t), func(c *httpapi.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "toc_up 1\n")
			panic(cause)
		})
	})
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { call(h, "GET", "/metrics", "") })
	require.Contains(t, log.String(), "out of cheese")

	log.Reset()
	cause = http.ErrAbortHandler
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { call(h, "GET", "/metrics", "") })
	require.Empty(t, log.String(), "a handler that cuts its answer off itself is no error")
}

func TestRequestsAreLoggedAtDebugOnly(t *testing.T) {
	for level, lines := range map[slog.Level]int{slog.LevelDebug: 1, slog.LevelInfo: 0} {
		var log bytes.Buffer
		h := newFake(newFakeDesk(t), func(c *httpapi.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		})
		call(h, "GET", "/v1/nope?token=secret", "", "Authorization", "Bearer secret").problem(t, 404)
		require.Equal(t, lines, bytes.Count(log.Bytes(), []byte("\n")))
		require.NotContains(t, log.String(), "secret")
		if lines > 0 {
			require.Contains(t, log.String(), "method=GET path=/v1/nope status=404")
		}
	}
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	d := newFakeDesk(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := httpapi.Server("", newFake(d), slog.New(slog.DiscardHandler))
	server.ReadTimeout = 50 * time.Millisecond
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v1/tasks HTTP/1.1\r\nHost: toc\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 408, answer.StatusCode)
	require.NoError(t, answer.Body.Close())
	require.Zero(t, d.calls.Load())
}
