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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/server/rest"
)

// listening serves h, with at most so many connections, and returns how to connect. It is for a bubble.
func listening(t *testing.T, h http.Handler, most int) (dial func() net.Conn) {
	n := new(memnet.Net)
	server := rest.Server("", h, slog.New(slog.DiscardHandler))
	rest.LimitConnections(server, most)
	l := n.Listen("toc:80")
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return func() net.Conn {
		conn, err := n.Dial(t.Context(), "tcp", "toc:80")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	_, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n"))
	require.NoError(t, err)
}

// readAll reads answers until the server ends the connection.
func readAll(t *testing.T, conn net.Conn) (statuses []int) {
	in := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			return statuses
		}
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		statuses = append(statuses, answer.StatusCode)
	}
}

// Who is refused is not waited for: at 799f0ec each such connection was kept for a minute, with all of its headers.
func TestWhoIsRefusedLosesTheConnection(t *testing.T) {
	manyHeaders := strings.Repeat("a:\n", 101)
	for name, c := range map[string]struct {
		request string
		want    int
	}{
		"no token":             {"POST /v1/tasks HTTP/1.1\nHost: a\nContent-Length: 200000\n\n", 401},
		"no token for no page": {"POST /nothing HTTP/1.1\nHost: a\nContent-Length: 200000\n\n", 401},
		"another site":         {"POST /v1/tasks HTTP/1.1\nHost: a\nAuthorization: Bearer alpha\nSec-Fetch-Site: cross-site\nContent-Length: 200000\n\n", 403},
		"many headers":         {"GET /healthz HTTP/1.1\nHost: b\n" + manyHeaders + "\n", 431},
		"long headers":         {"GET /healthz HTTP/1.1\nHost: b\nlong: " + strings.Repeat("x", 24<<10) + "\n\n", 431},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := listening(t, newFake(newFakeCenter(t), withTokens("alpha")), 3)()
				send(t, conn, c.request)
				began := time.Now()
				require.Equal(t, []int{c.want}, readAll(t, conn))
				require.Less(t, time.Since(began), 2*time.Second)
			})
		})
	}
}

// Connections that have proved nothing keep nobody out, whatever they are doing. At 799f0ec as many as there may be shut the door.
func TestStrangersMakeRoom(t *testing.T) {
	const withheld = "GET /healthz HTTP/1.1\nHost: a\nContent-Length: 200000\n\n" // the server waits for this body
	synctest.Test(t, func(t *testing.T) {
		dial := listening(t, newFake(newFakeCenter(t), withTokens("alpha")), 3)
		for range 3 {
			send(t, dial(), withheld)
		}
		for i := range 3 {
			conn := dial()
			for range 2 {
				send(t, conn, "GET /v1/tasks/1 HTTP/1.1\nHost: a\nAuthorization: Bearer alpha\n\n")
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err, fmt.Sprint(i))
				require.Equal(t, 200, answer.StatusCode)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, err)
			}
			send(t, dial(), withheld) // another stranger
			synctest.Wait()
		}
	})
}
