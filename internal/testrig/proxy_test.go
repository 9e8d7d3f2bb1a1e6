package testrig

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// echoServer answers each connection with its own words, and tells afterwards what each one said, long ones cut
// short.
func echoServer(t *testing.T) (addr string, said <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	words := make(chan string, 16)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				var first beginning
				_, _ = io.Copy(conn, io.TeeReader(conn, &first))
				words <- string(first)
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		all.Wait()
	})
	return l.Addr().String(), words
}

// beginning remembers the first bytes that are written to it.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	const most = 16
	*b = append(*b, p[:min(len(p), most-len(*b))]...)
	return len(p), nil
}

func dialProxy(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(await.Patience)))
	return conn.(*net.TCPConn)
}

func say(t *testing.T, conn net.Conn, words string) {
	t.Helper()
	_, err := io.WriteString(conn, words)
	require.NoError(t, err)
}

func requireHear(t *testing.T, conn net.Conn, words string) {
	t.Helper()
	heard := make([]byte, len(words))
	_, err := io.ReadFull(conn, heard)
	require.NoError(t, err)
	require.Equal(t, words, string(heard))
}

func TestAProxyPassesWhatBothSidesSay(t *testing.T) {
	t.Parallel()
	addr, _ := echoServer(t)
	p := StartProxy(t, addr)
	var clients sync.WaitGroup
	for range 4 {
		conn := dialProxy(t, p)
		sent := make([]byte, 1<<20)
		_, _ = rand.Read(sent)
		clients.Go(func() {
			_, _ = conn.Write(sent)
			_ = conn.CloseWrite() // the server's last words come all the same
		})
		clients.Go(func() {
			heard, err := io.ReadAll(conn)
			if err != nil || !bytes.Equal(sent, heard) {
				t.Errorf("%d of %d bytes came back: %v", len(heard), len(sent), err)
			}
		})
	}
	clients.Wait()
}

func TestACutDropsAndRefuses(t *testing.T) {
	t.Parallel()
	addr, said := echoServer(t)
	p := StartProxy(t, addr)
	conn := dialProxy(t, p)
	say(t, conn, "a")
	requireHear(t, conn, "a")

	p.Cut()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, "a", <-said, "the server is told too")
	_, err = net.Dial("tcp", p.Addr())
	require.ErrorContains(t, err, "connection refused")
	p.Cut() // cut already

	p.Mend()
	conn = dialProxy(t, p)
	say(t, conn, "b")
	requireHear(t, conn, "b")
	p.Mend() // whole already
	say(t, conn, "c")
	requireHear(t, conn, "c")
}

func TestAStallHoldsBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	addr, _ := echoServer(t)
	p := StartProxy(t, addr)
	old := dialProxy(t, p)
	say(t, old, "a")
	requireHear(t, old, "a")

	p.Stall()
	young := dialProxy(t, p)
	for _, conn := range []*net.TCPConn{old, young} {
		say(t, conn, "b")
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(await.Patience)))
		say(t, conn, "c")
	}

	p.Mend()
	for _, conn := range []*net.TCPConn{old, young} {
		requireHear(t, conn, "bc")
		say(t, conn, "d")
		requireHear(t, conn, "d")
	}
}

func TestWhatStalledWhenTheLineWasCutIsLost(t *testing.T) {
	t.Parallel()
	addr, said := echoServer(t)
	p := StartProxy(t, addr)
	conn := dialProxy(t, p)
	say(t, conn, "a")
	requireHear(t, conn, "a")

	p.Stall()
	say(t, conn, "b")
	p.Cut()
	p.Stall() // a line that comes back from a cut may be a stalled one
	conn = dialProxy(t, p)
	p.Mend()
	require.Equal(t, "a", <-said)
	say(t, conn, "c")
	requireHear(t, conn, "c")
}

// The line may be cut while much is under way, again and again: TestMain sees to it that no goroutine stays.
func TestACutInFullFlow(t *testing.T) {
	t.Parallel()
	addr, said := echoServer(t)
	p := StartProxy(t, addr)
	for range 5 {
		var clients sync.WaitGroup
		for range 2 {
			conn := dialProxy(t, p)
			say(t, conn, "a")
			requireHear(t, conn, "a")
			clients.Go(func() { _, _ = io.Copy(conn, neverending{}) })
			clients.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		}
		p.Cut()
		clients.Wait()
		for range 2 {
			require.NotEmpty(t, <-said)
		}
		p.Mend()
	}
}

type neverending struct{}

func (neverending) Read(p []byte) (int, error) { return len(p), nil }

func TestWhoBreaksOffIsHeardOnTheOtherSide(t *testing.T) {
	t.Parallel()
	addr, said := echoServer(t)
	p := StartProxy(t, addr)
	conn := dialProxy(t, p)
	say(t, conn, "a")
	requireHear(t, conn, "a")
	require.NoError(t, conn.SetLinger(0)) // a reset, not an end
	require.NoError(t, conn.Close())
	require.Equal(t, "a", <-said)
}

func TestAProxyToNobodyHangsUp(t *testing.T) {
	t.Parallel()
	l, err := listenFree()
	require.NoError(t, err)
	p := StartProxy(t, l.Addr().String())
	require.NoError(t, l.Close())
	_, err = dialProxy(t, p).Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// Before, another test's proxy could take the port of a cut one, and what was to be refused was answered.
func TestNoTestTakesThePortOfACutProxy(t *testing.T) {
	t.Parallel()
	p := StartProxy(t, "127.0.0.1:1")
	p.Cut()
	_, port, err := net.SplitHostPort(p.Addr())
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	runtime.GC()
	runtime.GC()
	for _, port := range []int{n, n ^ 1, n ^ 2} { // those of a server that comes back
		require.False(t, reserve(port))
	}
}

func TestAProxyToARealServer(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	p := StartProxy(t, r.Addr())
	pong, err := redisCall(t.Context(), p.Addr(), "PING")
	require.NoError(t, err)
	require.Equal(t, "PONG", pong)
	p.Cut()
	_, err = redisCall(t.Context(), p.Addr(), "PING")
	require.Error(t, err)
	pong, err = redisCall(t.Context(), r.Addr(), "PING")
	require.NoError(t, err, "the server never noticed")
	require.Equal(t, "PONG", pong)
}
