package tlsclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/internal/outside"
)

// Client connects to the servers of one section of the settings. Its methods may be called concurrently.
type Client struct {
	section string // redis.tls: errors begin with it
	files   Files
	logger  *slog.Logger

	mu      logqueue.Mutex
	looked  bool
	seen    [3]stamp     // the files at the last look
	inForce certificates // as last read without a problem
	isRead  bool         // inForce is set
	problem error        // why the files are not in force as they are; nil: they are
}

// New returns a Client. It reads nothing before its first use. section is the key of the settings, such as
// redis.tls. Files without a CA mean plain text. A nil logger logs nothing.
func New(section string, files Files, logger *slog.Logger) *Client {
	return &Client{section: section, files: files, logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
}

// IsOn reports whether the connections are TLS. Those of a nil Client are plain text.
func (c *Client) IsOn() bool { return c != nil && c.files.CA != "" }

// Check reads the files if they have changed. It returns the problem of the files as they are, though older
// certificates may be in force.
func (c *Client) Check() error {
	if !c.IsOn() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if pair := c.inForce.pair; c.problem == nil && pair != nil && time.Now().After(pair.Leaf.NotAfter) {
		return c.named(&Problem{"cert", fmt.Sprintf("%q has expired at %s; put a new certificate there", c.files.Cert,
			moment(pair.Leaf.NotAfter))})
	}
	return c.problem
}

// Config returns the settings of one connection to a server at host or host:port. The client of a protocol that
// starts TLS itself uses it; the others use Dialer.
func (c *Client) Config(addr string) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if !c.isRead {
		return nil, c.problem
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.inForce.roots, ServerName: cmp.Or(c.files.ServerName, host(addr))}
	pair := c.inForce.pair
	// The pair is shown to any server that asks, also if its list of authorities lacks ours: then it says so.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair == nil {
			return new(tls.Certificate), nil
		}
		return pair, nil
	}
	return config, nil
}

// Dialer returns a function that connects to host:port by dial. The timeout holds for the connect and the handshake
// together; 0 is no limit.
func (c *Client) Dialer(timeout time.Duration, dial outside.Dial) outside.Dial {
	dial = dial.Within(0)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return byCurrentFiles(c, func() (net.Conn, error) { return c.connect(ctx, dial, network, addr) })
	}
}

func (c *Client) connect(ctx context.Context, dial outside.Dial, network, addr string) (net.Conn, error) {
	raw, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return raw, nil
	}
	if !c.IsOn() {
		if tcp, ok := raw.(*net.TCPConn); ok {
			return &plainConn{TCPConn: tcp, client: c, addr: addr}, nil
		}
		return raw, nil
	}
	config, err := c.Config(addr)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, c.wrong("", err, "%s does not answer the handshake; it may not speak TLS at this port", addr)
		}
		return nil, c.explain(addr, err)
	}
	return &tlsConn{Conn: conn, client: c, addr: addr}, nil
}

// byCurrentFiles calls connect, and once more if it fails while the files are replaced: the handshake may have begun with
// the certificates before, and the server have those after.
func byCurrentFiles[Conn any](c *Client, connect func() (Conn, error)) (Conn, error) {
	began := c.current()
	conn, err := connect()
	if err != nil && !c.current().equal(began) {
		return connect()
	}
	return conn, err
}

// current returns the certificates that are in force. A Client for plain text has none.
func (c *Client) current() certificates {
	if !c.IsOn() {
		return certificates{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return c.inForce
}

func host(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// stamp is what shows that a file has changed.
type stamp struct {
	info os.FileInfo // nil: it cannot be read
	at   time.Time   // of the look
}

// settled is the age of a change from which the file's time shows the next change: some file systems have a time
// of two seconds.
const settled = 3 * time.Second

func (s stamp) isCurrent(path string) bool {
	if path == "" || path == System {
		return true
	}
	now, err := os.Stat(path)
	if err != nil || s.info == nil {
		return false // the reason may be another one now
	}
	return os.SameFile(s.info, now) && s.info.Size() == now.Size() && s.info.ModTime().Equal(now.ModTime()) &&
		s.at.Sub(now.ModTime()) > settled
}

// look reads the files if they may have changed. The lock is held.
func (c *Client) look() {
	paths := [3]string{c.files.CA, c.files.Cert, c.files.Key}
	current := c.looked && c.problem == nil
	for i, path := range paths {
		current = current && c.seen[i].isCurrent(path)
	}
	if current {
		return
	}
	for i, path := range paths { // before they are read: a change meanwhile shows at the next look
		info, _ := os.Stat(path)
		c.seen[i] = stamp{info, time.Now()}
	}
	c.looked = true
	found, err := c.files.read(time.Now())
	if err == nil {
		changed := c.isRead && !found.equal(c.inForce)
		c.inForce, c.isRead = found, true
		if changed {
			c.mu.Log(c.logger, slog.LevelInfo, "certificates re-read", "section", c.section)
		}
		c.problem = nil
		return
	}
	err = c.named(err)
	if c.isRead && (c.problem == nil || c.problem.Error() != err.Error()) {
		c.mu.Log(c.logger, slog.LevelWarn, "certificates cannot be re-read; the old ones stay in force", "error", err)
	}
	c.problem = err
}

func (c certificates) equal(other certificates) bool {
	sameRoots := c.roots == other.roots || c.roots != nil && other.roots != nil && c.roots.Equal(other.roots)
	return sameRoots && (c.pair == nil) == (other.pair == nil) && (c.pair == nil || c.pair.Leaf.Equal(other.pair.Leaf))
}
