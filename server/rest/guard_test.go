package rest_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/server/rest"
)

// An answer that has begun cannot become a 500: it is cut off, so that nobody
// takes it for whole.
func TestPanicInTheMiddleOfAnAnswer(t *testing.T) {
	var log bytes.Buffer
	var cause any = "out of cheese"
	h := newFake(newFakeCenter(t), func(c *rest.Config) {
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
		h := newFake(newFakeCenter(t), func(c *rest.Config) {
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
	synctest.Test(t, func(t *testing.T) {
		d := newFakeCenter(t)
		server := rest.Server("", newFake(d), slog.New(slog.DiscardHandler))
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- server.Serve(&oneConn{conn: far, closed: make(chan struct{})}) }()
		began := time.Now()
		_, err := io.WriteString(near, "POST /v1/tasks HTTP/1.1\r\nHost: toc\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(near), nil)
		require.NoError(t, err)
		require.Equal(t, 408, answer.StatusCode)
		require.NoError(t, answer.Body.Close())
		require.WithinRange(t, time.Now(), began.Add(10*time.Second), began.Add(11*time.Second), "a body has ten seconds, and more the longer it is")
		require.Zero(t, d.Calls.Load())
		require.NoError(t, near.Close())
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

// oneConn is a listener for one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConn) Accept() (conn net.Conn, err error) {
	if conn, l.conn = l.conn, nil; conn != nil {
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
