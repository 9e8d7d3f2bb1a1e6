package rest_test

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/server/rest"
)

// Idle connections do not keep others out. Before, each kept its descriptor for minutes, and when none was left nothing was
// fired: 140 of them made tasks dead.
func TestConnectionsAreBounded(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 3)
	server := rest.Server("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest.LetIn(r)
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	}), slog.New(slog.DiscardHandler))
	rest.LimitConnections(server, 3)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(await.Patience)))
		return conn
	}
	get := func(conn net.Conn, path string) {
		_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
	}
	answered := func(conn net.Conn) bool {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err == nil && answer.StatusCode == http.StatusOK
	}
	closed := func(conn net.Conn) {
		t.Helper()
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}

	var first, asked net.Conn
	first = dial() // never asks
	asked = dial() // asks, and then is idle
	get(asked, "/")
	require.True(t, answered(asked))
	// A connection whose answer was read may be idle a moment later only: until then it is kept, and a new one refused.
	isServed := func() bool {
		conn := dial()
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		return err == nil && answered(conn)
	}
	for _, one := range []net.Conn{first, asked} { // whatever the server's goroutines do in between, new ones push it out
		await.That(t, func() bool {
			isServed()
			require.NoError(t, one.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err := one.Read(make([]byte, 1))
			return errors.Is(err, io.EOF)
		}, "the connection that has been idle longest is closed")
	}

	var busy []chan bool
	for len(busy) < 3 {
		conn := dial()
		_, _ = io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") // it may be refused by now
		served := make(chan bool, 1)
		go func() { served <- answered(conn) }()
		select {
		case <-entered:
			busy = append(busy, served)
		case is := <-served: // the one before has its answer, and was not idle yet
			require.False(t, is)
		}
	}
	closed(dial()) // all three are busy
	close(release)
	for _, served := range busy {
		require.True(t, <-served, "who is served is not cut off")
	}
	await.That(t, isServed, "a new connection is served, once the others have their answers")
}
