package store

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/sharding"
)

// mysqlBubble is a store on servers of a few words, in a bubble.
type mysqlBubble struct {
	*testing.T
	memnet.Net
	*mysqlBackend
	store *Store
}

const (
	newServer   = "new" // is read-only
	mysqlAt     = "db:3306"
	readTimeout = 7 * time.Second
)

// bubbleNet is the network of the bubble that runs now, which the driver knows by the name "bubble".
var bubbleNet atomic.Pointer[memnet.Net]

func init() {
	mysql.RegisterDialContext("bubble", func(ctx context.Context, address string) (net.Conn, error) {
		return bubbleNet.Load().Dial(ctx, "tcp", address)
	})
}

// onWords runs a test in a bubble.
func onWords(t *testing.T, f func(*mysqlBubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &mysqlBubble{T: t}
		bubbleNet.Store(&b.Net)
		defer b.serve("old")()
		s, err := Open(Config{
			Driver: MySQL, Layout: sharding.Layout{Databases: 1, TablesPerDatabase: 1, Partitions: 1},
			DSN: "root@bubble(" + mysqlAt + ")/toc_%d?timeout=" + readTimeout.String() + "&readTimeout=" + readTimeout.String(),
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		b.store, b.mysqlBackend = s, s.backend.(*mysqlBackend)
		f(b)
	})
}

// serve starts a server that answers each text with one row, by what the text asks for.
func (b *mysqlBubble) serve(name string) (stop func()) {
	l := b.Listen(mysqlAt)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go speak(conn, name)
		}
	}()
	return func() { _ = l.Close() }
}

// speak is the server's end of a connection: the handshake of MySQL, and queries.
func speak(conn net.Conn, name string) {
	defer conn.Close()
	const (
		capabilities = 0x00000001 | 0x00000008 | 0x00000200 | 0x00002000 | 0x00008000 | 0x00010000 | 0x00080000
		nativeAuth   = "mysql_native_password"
	)
	in := bufio.NewReader(conn)
	hello := []byte("\x0a8.4.0\x00\x01\x00\x00\x0012345678\x00")
	hello = binary.LittleEndian.AppendUint16(hello, capabilities&0xffff)
	hello = append(hello, 0x2d, 0x02, 0x00)
	hello = binary.LittleEndian.AppendUint16(hello, capabilities>>16)
	hello = append(hello, "\x15"+strings.Repeat("\x00", 10)+"123456789012\x00"+nativeAuth+"\x00"...)
	ok := []byte{0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00}
	eof := []byte{0xfe, 0x00, 0x00, 0x02, 0x00}
	write := func(sequence byte, packets ...[]byte) bool {
		var out []byte
		for _, p := range packets {
			out = append(out, byte(len(p)), byte(len(p)>>8), byte(len(p)>>16), sequence)
			out = append(out, p...)
			sequence++
		}
		_, err := conn.Write(out)
		return err == nil
	}
	read := func() ([]byte, bool) {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, false
		}
		p := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		_, err := io.ReadFull(in, p)
		return p, err == nil
	}
	column := []byte("\x03def\x00\x00\x00\x01c\x01c\x0c\x2d\x00\xff\xff\x00\x00\xfd\x00\x00\x00\x00\x00")
	if !write(0, hello) {
		return
	}
	if _, there := read(); !there || !write(2, ok) {
		return
	}
	for {
		ask, there := read()
		if !there || ask[0] != 0x03 { // no query
			return
		}
		cell := name
		switch text := string(ask[1:]); {
		case strings.Contains(text, "max_allowed_packet,CONNECTION_ID()"):
			cell = "16777216 1 " + name + " 8.4.0"
		case strings.Contains(text, "UTC_TIMESTAMP"):
			cell = "2026-01-02 15:04:05.000 1 0 " + name
		case strings.Contains(text, "read_only"):
			if cell = "0"; name == newServer {
				cell = "1"
			}
		}
		if !write(1, []byte{1}, column, eof, append([]byte{byte(len(cell))}, cell...), eof) {
			return
		}
	}
}

// ask makes a statement of a pool, and returns the name of the server.
func (b *mysqlBubble) ask() (name string, err error) {
	err = b.pools[0].QueryRowContext(b.Context(), "SELECT name").Scan(&name)
	return name, err
}

// took is how long f takes.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// connect makes n connections that are idle then.
func (b *mysqlBubble) connect(n int) {
	conns := make([]*sql.Conn, n)
	for i := range conns {
		var err error
		conns[i], err = b.pools[0].Conn(b.Context())
		require.NoError(b, err)
	}
	for _, c := range conns {
		require.NoError(b, c.Close())
	}
	require.Equal(b, n, b.Open())
}

// All connections fall silent, while new ones work: each of them fails one call.
func TestSilentConnectionsAreLeft(t *testing.T) {
	t.Run("statements", func(t *testing.T) {
		onWords(t, func(b *mysqlBubble) {
			const connections = 4
			b.connect(connections)
			b.Silence()
			ask := func() {
				_, err := b.ask()
				require.Error(b, err)
			}
			for range connections {
				require.Equal(b, readTimeout, took(ask))
			}
			ask = func() {
				name, err := b.ask()
				require.NoError(b, err)
				require.Equal(b, "old", name)
			}
			require.Zero(b, took(ask))
			require.Equal(b, 1, b.Open(), "the silent ones are closed")
		})
	})
	t.Run("probes", func(t *testing.T) {
		onWords(t, func(b *mysqlBubble) {
			probe := func() bool { return b.store.Probe(b.Context(), 0).Usable() }
			require.True(b, probe())
			b.Silence()
			ping := func() {
				_, err := b.ping(b.Context(), 0)
				require.ErrorIs(b, err, context.DeadlineExceeded)
			}
			require.Equal(b, probeTimeout, took(ping))
			require.Zero(b, took(func() { require.True(b, probe()) }))
			b.Silence()
			require.Equal(b, probeTimeout, took(func() { require.False(b, probe()) }))
			require.Zero(b, took(func() { require.True(b, probe()) }))
		})
	})
	t.Run("single node's hold", func(t *testing.T) {
		onWords(t, func(b *mysqlBubble) {
			beat := func() error {
				_, _, err := b.swapHolder(b.Context(), 0, "seen", claim{})
				return err
			}
			require.NoError(b, beat())
			b.Silence()
			require.Equal(b, holderTimeout, took(func() { require.Error(b, beat()) }))
			require.Zero(b, took(func() { require.NoError(b, beat()) }))
		})
	})
}

// The name of the server gets a new one, while the old one still answers. Each pool is used once a second.
func TestAServerWithANewAddressIsFollowed(t *testing.T) {
	follow := func(b *mysqlBubble, least, most time.Duration, isNew func() bool) {
		require.False(b, isNew())
		defer b.serve(newServer)()
		moved := time.Now()
		for !isNew() {
			time.Sleep(time.Second)
			require.LessOrEqual(b, time.Since(moved), most+time.Second)
		}
		require.GreaterOrEqual(b, time.Since(moved), least, "connections are reused until then")
	}
	t.Run("statements", func(t *testing.T) {
		onWords(t, func(b *mysqlBubble) {
			follow(b, maxAge*2/3, maxAge, func() bool {
				name, err := b.ask()
				require.NoError(b, err)
				return name == newServer
			})
		})
	})
	t.Run("probes", func(t *testing.T) {
		onWords(t, func(b *mysqlBubble) {
			follow(b, 0, pingAge, func() bool { return b.store.Probe(b.Context(), 0).IsReadOnly() })
		})
	})
	t.Run("single node's hold", func(t *testing.T) {
		onWords(t, func(b *mysqlBubble) {
			follow(b, 0, maxAge, func() bool {
				row, _, err := b.swapHolder(b.Context(), 0, "seen", claim{})
				require.NoError(b, err)
				return row == newServer
			})
		})
	})
}

// Connections without a statement are closed.
func TestIdleConnectionsAreClosed(t *testing.T) {
	onWords(t, func(b *mysqlBubble) {
		b.connect(4)
		time.Sleep(idleTime - time.Second)
		require.Equal(b, 4, b.Open())
		time.Sleep(3 * time.Second)
		require.Zero(b, b.Open())
	})
}
