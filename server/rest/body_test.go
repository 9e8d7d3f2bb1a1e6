package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
)

func TestContentTypes(t *testing.T) {
	h := newFake(newFakeCenter(t))
	for _, right := range []string{
		"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", `application/json; charset="utf-8"`, "",
	} {
		require.Equal(t, 201, call(h, "POST", "/v1/tasks", submitBody, "Content-Type", right).Code, right)
	}
	for _, wrong := range []string{
		"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "application/cbor",
		"application/json; charset=utf-16", "application/jsonl", "json", "*/*", ";", "application/problem+json", "a/b+json;+", "+;", "\x00",
	} {
		for _, target := range []string{"/v1/tasks", "/v1/tasks/batch", "/v1/dead/redrive", "/v1/cluster/wake"} {
			p := call(h, "POST", target, submitBody, "Content-Type", wrong).problem(t, 415)
			require.Equal(t, []string{"body"}, p.locations())
		}
		call(h, "PATCH", "/v1/tasks/1", `{"delay":"1h"}`, "Content-Type", wrong).problem(t, 415)
	}
	for _, encoding := range []string{"gzip", "br", "deflate, gzip"} {
		call(h, "POST", "/v1/tasks", submitBody, "Content-Encoding", encoding).problem(t, 415)
	}
	require.Equal(t, 201, call(h, "POST", "/v1/tasks", submitBody, "Content-Encoding", "identity").Code)
}

// Whatever a caller would like, it gets JSON.
func TestAccept(t *testing.T) {
	h := newFake(newFakeCenter(t))
	for _, accept := range []string{"", "*/*", "application/json", "text/html", "application/cbor", "application/json;q=0", ";;,,q=", "a/b;q=9999999999999999999"} {
		a := call(h, "GET", "/v1/tasks/1", "", "Accept", accept)
		require.Equal(t, 200, a.Code, accept)
		require.Equal(t, "application/json", a.Header().Get("Content-Type"), accept)
	}
}

// serve runs the API on a real server with a small limit.
func serve(t *testing.T, d *fakecenter.Center, maxBody int64) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := rest.Server("", newFake(d, func(c *rest.Config) { c.MaxBody = maxBody }), slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return l.Addr().String()
}

// exchange sends bytes as they are and reads one answer.
func exchange(t *testing.T, addr, request string) *http.Response {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, request)
	require.NoError(t, err, "the whole request can be sent")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestLargeBodies(t *testing.T) {
	const most = 32 << 10
	d := newFakeCenter(t)
	addr := serve(t, d, 8<<20)
	pad := func(size int) string { return submitBody + strings.Repeat(" ", size-len(submitBody)) }
	const head = "POST /v1/tasks HTTP/1.1\r\nHost: toc\r\nContent-Type: application/json\r\n"

	t.Run("just fits", func(t *testing.T) {
		require.Equal(t, 201, exchange(t, addr, fmt.Sprintf(head+"Content-Length: %d\r\n\r\n", most)+pad(most)).StatusCode)
	})
	t.Run("one byte more", func(t *testing.T) {
		require.Equal(t, 413, exchange(t, addr, fmt.Sprintf(head+"Content-Length: %d\r\n\r\n", most+1)+pad(most+1)).StatusCode)
	})
	t.Run("several times more, all of it sent first", func(t *testing.T) {
		answer := exchange(t, addr, fmt.Sprintf(head+"Content-Length: %d\r\n\r\n", 4*most)+pad(4*most))
		require.Equal(t, 413, answer.StatusCode)
		require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
	})
	t.Run("chunked", func(t *testing.T) {
		answer := exchange(t, addr, fmt.Sprintf(head+"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", 2*most, pad(2*most)))
		require.Equal(t, 413, answer.StatusCode)
	})
	t.Run("refused before it is sent", func(t *testing.T) {
		answer := exchange(t, addr, fmt.Sprintf(head+"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", 1<<40))
		require.Equal(t, 413, answer.StatusCode)
	})
	require.EqualValues(t, 1, d.Calls.Load())
}

func TestBrokenBodies(t *testing.T) {
	d := newFakeCenter(t)
	addr := serve(t, d, 1<<20)
	const head = "POST /v1/tasks HTTP/1.1\r\nHost: toc\r\nContent-Type: application/json\r\n"
	require.Equal(t, 400, exchange(t, addr, head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n"+submitBody).StatusCode)

	// The caller hangs up in the middle.
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = io.WriteString(conn, head+"Content-Length: 1000\r\n\r\n"+submitBody)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 400, answer.StatusCode)
	require.NoError(t, conn.Close())
	require.Zero(t, d.Calls.Load(), "half a body is none")
}

func TestServerLimits(t *testing.T) {
	s := rest.Server("127.0.0.1:0", http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	require.Equal(t, "127.0.0.1:0", s.Addr)
	for _, limit := range []int64{int64(s.ReadHeaderTimeout), int64(s.ReadTimeout), int64(s.WriteTimeout), int64(s.IdleTimeout), int64(s.MaxHeaderBytes)} {
		require.Positive(t, limit)
	}
	addr := serve(t, newFakeCenter(t), 1<<20)
	require.Equal(t, 431, exchange(t, addr, "GET /healthz HTTP/1.1\r\nHost: toc\r\nX: "+strings.Repeat("x", 100_000)+"\r\n\r\n").StatusCode)
}
