package tlsclient_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// echo is a server that sends back what it reads.
type echo struct {
	addr   string
	config atomic.Pointer[tls.Config] // of new connections; nil: plain text
}

// serve starts a server with a certificate. clients is the authority of the clients' certificates; nil asks for none.
func serve(t *testing.T, pair testrig.Pair, clients *testrig.Authority) *echo {
	e := &echo{}
	if pair.Cert != "" {
		e.use(t, pair, clients)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e.addr = l.Addr().String()
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				if config := e.config.Load(); config != nil {
					conn = tls.Server(conn, config)
					defer conn.Close()
				} else {
					first := make([]byte, 1)
					if _, err := conn.Read(first); err != nil || first[0] == 22 { // a handshake, which is no word of this protocol
						_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
						return
					}
					_, _ = conn.Write(first)
				}
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	return e
}

func (e *echo) use(t *testing.T, pair testrig.Pair, clients *testrig.Authority) {
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	if clients != nil {
		text, err := os.ReadFile(clients.File)
		require.NoError(t, err)
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(text)
	}
	e.config.Store(config)
}

// call sends a word and reads it back.
func call(t *testing.T, c *tlsclient.Client, addr string) error {
	conn, err := c.Dialer(await.Patience, nil)(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(await.Patience))
	const word = "*1\r\n$4\r\nPING\r\n" // longer than the head of a record of TLS
	if _, err := io.WriteString(conn, word); err != nil {
		return err
	}
	answer := make([]byte, len(word))
	_, err = io.ReadFull(conn, answer)
	return err
}

func TestHandshakes(t *testing.T) {
	t.Parallel()
	ours, theirs := testrig.NewAuthority(t, "our authority"), testrig.NewAuthority(t, "their authority")
	client, foreign := ours.Issue(), theirs.Issue()
	ca := tlsclient.Files{CA: ours.File}
	with := func(p testrig.Pair) tlsclient.Files { return tlsclient.Files{CA: ours.File, Cert: p.Cert, Key: p.Key} }
	for name, c := range map[string]struct {
		server  testrig.Pair
		clients *testrig.Authority
		old     uint16 // the server speaks this version at most
		files   tlsclient.Files
		says    []string // nil: it connects
	}{
		"right":      {server: ours.Issue(), files: ca},
		"plain text": {},
		"another authority": {server: theirs.Issue(), files: ca, says: []string{
			`redis.tls.ca: "` + ours.File + `" lacks the authority of the certificate of ADDR, issued by "their authority"`, "unknown authority"}},
		"the machine's authorities": {server: ours.Issue(), files: tlsclient.Files{CA: "system"}, says: []string{
			"redis.tls.ca: this machine does not trust the certificate of ADDR", "ca is system", "write the path of a PEM file"}},
		"expired": {server: ours.IssueExpired(), files: ca, says: []string{
			`redis.tls: the certificate of ADDR, "toc test", is valid from`, "renew it on the server"}},
		"another name": {server: ours.IssueFor("redis.example"), files: ca, says: []string{
			"redis.tls.server_name: the certificate of ADDR has the names redis.example; write one of them"}},
		"another name that is given": {server: ours.IssueFor("redis.example"), files: tlsclient.Files{CA: ours.File, ServerName: "redis.example"}},
		"a given name that it has not": {server: ours.Issue(), files: tlsclient.Files{CA: ours.File, ServerName: "redis.example"}, says: []string{
			"redis.tls.server_name: the certificate of ADDR has the names localhost, 127.0.0.1, ::1"}},
		"a server in plain text":          {files: ca, says: []string{"redis.tls.ca: ADDR does not speak TLS; write the address of the port that does, or leave ca empty"}},
		"a client in plain text":          {server: ours.Issue(), says: []string{"redis.tls.ca: ADDR", "TLS only", "write system, or the path of a PEM file"}},
		"a certificate":                   {server: ours.Issue(), clients: ours, files: with(client)},
		"no certificate":                  {server: ours.Issue(), clients: ours, files: ca, says: []string{"redis.tls.cert: ADDR demands a client certificate; write cert and key"}},
		"no certificate in TLS 1.2":       {server: ours.Issue(), clients: ours, old: tls.VersionTLS12, files: ca, says: []string{"redis.tls.cert: ADDR demands a client certificate"}},
		"a foreign certificate":           {server: ours.Issue(), clients: ours, files: with(foreign), says: []string{`redis.tls.cert: ADDR refuses the certificate in "` + foreign.Cert + `"`}},
		"a certificate that nobody wants": {server: ours.Issue(), files: with(foreign)},
		"TLS 1.1":                         {server: ours.Issue(), old: tls.VersionTLS11, files: ca, says: []string{"redis.tls: ADDR speaks neither TLS 1.2 nor TLS 1.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.server, c.clients)
			if c.old != 0 {
				s.config.Load().MinVersion, s.config.Load().MaxVersion = tls.VersionTLS10, c.old
			}
			err := call(t, tlsclient.New("redis.tls", c.files, nil), s.addr)
			if c.says == nil {
				require.NoError(t, err)
			}
			for _, text := range c.says {
				require.ErrorContains(t, err, strings.ReplaceAll(text, "ADDR", s.addr))
			}
		})
	}
}

// A server that takes the bytes of a handshake for a part of a command is silent, as Redis is.
func TestSilentHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c := tlsclient.New("redis.tls", tlsclient.Files{CA: testrig.NewAuthority(t, "a").File}, nil)
	_, err = c.Dialer(50*time.Millisecond, nil)(t.Context(), "tcp", l.Addr().String())
	require.ErrorContains(t, err, "redis.tls: "+l.Addr().String()+" does not answer the handshake; it may not speak TLS at this port")
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	a := testrig.NewAuthority(t, "authority")
	pair, other, expired := a.Issue(), a.Issue(), a.IssueExpired()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	text := file("text", "no certificate\n")
	cut := file("cut", read(a.File)+read(pair.Cert)[:200])
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for name, c := range map[string]struct {
		files tlsclient.Files
		says  []string
	}{
		"plain text":                   {},
		"system":                       {files: tlsclient.Files{CA: "system"}},
		"all":                          {files: tlsclient.Files{CA: a.File, Cert: pair.Cert, Key: pair.Key, ServerName: "x"}},
		"a bundle with an expired one": {files: tlsclient.Files{CA: file("bundle", read(expired.Cert)+read(a.File))}},
		"no ca":                        {tlsclient.Files{Cert: pair.Cert, Key: pair.Key}, []string{"ca: is empty, so there is no TLS; write system"}},
		"only a name":                  {tlsclient.Files{ServerName: "x"}, []string{"ca: is empty"}},
		"no key":                       {tlsclient.Files{CA: "system", Cert: pair.Cert}, []string{"key: is empty, and there is a cert"}},
		"no cert":                      {tlsclient.Files{CA: "system", Key: pair.Key}, []string{"cert: is empty, and there is a key"}},
		"missing":                      {tlsclient.Files{CA: "/nosuch/ca", Cert: "/nosuch/cert", Key: "/nosuch/key"}, []string{"ca: cannot be read: ", "/nosuch/ca", "cert: cannot be read: ", "/nosuch/cert", "key: cannot be read: ", "/nosuch/key"}},
		"a directory":                  {tlsclient.Files{CA: dir}, []string{"ca: cannot be read: ", dir, "is not a regular file"}},
		"a pipe":                       {tlsclient.Files{CA: pipe}, []string{"ca: cannot be read: ", pipe, "is not a regular file"}},
		"no PEM":                       {tlsclient.Files{CA: text}, []string{"ca: ", text, "has no certificate in PEM form"}},
		"a key as ca":                  {tlsclient.Files{CA: pair.Key}, []string{"ca: ", pair.Key, "has no certificate in PEM form"}},
		"a cut bundle":                 {tlsclient.Files{CA: cut}, []string{"ca: ", cut, "ends within a certificate"}},
		"an expired ca":                {tlsclient.Files{CA: expired.Cert}, []string{"ca: ", expired.Cert, "has only certificates that have expired, the last at "}},
		"an expired cert":              {tlsclient.Files{CA: a.File, Cert: expired.Cert, Key: expired.Key}, []string{"cert: ", expired.Cert, "has expired at "}},
		"another's key":                {tlsclient.Files{CA: a.File, Cert: pair.Cert, Key: other.Key}, []string{"key: ", other.Key, "is not the key of the certificate in ", pair.Cert}},
		"a cert as key":                {tlsclient.Files{CA: a.File, Cert: pair.Cert, Key: pair.Cert}, []string{"key: ", pair.Cert, "has no private key in PEM form"}},
		"an encrypted key":             {tlsclient.Files{CA: a.File, Cert: pair.Cert, Key: file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMTIz\n-----END ENCRYPTED PRIVATE KEY-----\n")}, []string{"key: ", "encrypted", "write the path of an unencrypted key in PEM form"}},
	} {
		err := c.files.Check()
		if c.says == nil {
			require.NoError(t, err, name)
		}
		for _, says := range c.says {
			require.ErrorContains(t, err, says, name)
		}
		if err != nil {
			require.NotContains(t, err.Error(), "MTIz", "no key is shown")
		}
	}
}

// replace puts other files in the place of a pair, each by a rename.
func replace(t *testing.T, place, by testrig.Pair) {
	for to, from := range map[string]string{place.Cert: by.Cert, place.Key: by.Key} {
		replaceFile(t, to, from)
	}
}

func replaceFile(t *testing.T, to, from string) {
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to+".new", text, 0o600))
	require.NoError(t, os.Rename(to+".new", to))
}

// New connections use new files. Files that cannot be used leave the old ones in force, with one warning.
func TestReread(t *testing.T) {
	t.Parallel()
	old, next := testrig.NewAuthority(t, "old"), testrig.NewAuthority(t, "next")
	place, ca := old.Issue(), filepath.Join(t.TempDir(), "ca.pem")
	first := testrig.Pair{Cert: place.Cert + ".first", Key: place.Key + ".first"}
	replaceFile(t, ca, old.File)
	replace(t, first, place)
	var log bytes.Buffer
	c := tlsclient.New("store.mysql.tls", tlsclient.Files{CA: ca, Cert: place.Cert, Key: place.Key}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, c.Check())
	s := serve(t, old.Issue(), old)
	require.NoError(t, call(t, c, s.addr))

	// A pair that does not match, then a file that is no certificate, then one that is gone.
	replaceFile(t, place.Key, next.Issue().Key)
	for range 3 {
		require.NoError(t, call(t, c, s.addr), "the old pair is in force")
	}
	require.ErrorContains(t, c.Check(), "store.mysql.tls.key: ")
	require.ErrorContains(t, c.Check(), place.Key)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), place.Key)
	require.NoError(t, os.WriteFile(ca, []byte("garbage"), 0o600))
	require.NoError(t, os.Remove(place.Cert))
	require.NoError(t, call(t, c, s.addr))
	require.ErrorContains(t, c.Check(), "store.mysql.tls.ca: ")
	require.ErrorContains(t, c.Check(), "store.mysql.tls.cert: ")

	// The server's authority changes: the pair and the authority of the new one are used.
	s.use(t, next.Issue(), next)
	require.ErrorContains(t, call(t, c, s.addr), "store.mysql.tls.ca: ", "the old authority is in force")
	replaceFile(t, ca, next.File)
	replace(t, place, next.Issue())
	require.NoError(t, call(t, c, s.addr))
	require.NoError(t, c.Check())
	require.Contains(t, log.String(), "certificates re-read")
}

// The files and the server's certificate may be replaced while a handshake runs: its connection is made all the same.
func TestReplacedDuringAHandshake(t *testing.T) {
	t.Parallel()
	old, next := testrig.NewAuthority(t, "old"), testrig.NewAuthority(t, "next")
	newer := next.Issue()
	for name, connect := range map[string]func(c *tlsclient.Client, addr string) error{
		"by the dialer": func(c *tlsclient.Client, addr string) error { return call(t, c, addr) },
		"by MySQL's connector": func(c *tlsclient.Client, addr string) error {
			_, err := c.ExplainMySQLConnects(handshaker{c, addr}, addr).Connect(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := filepath.Join(t.TempDir(), "ca.pem")
			replaceFile(t, ca, old.File)
			c := tlsclient.New("redis.tls", tlsclient.Files{CA: ca}, nil)
			require.NoError(t, c.Check())
			s, handshakes := serve(t, old.Issue(), nil), atomic.Int64{}
			s.config.Store(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				if handshakes.Add(1) == 1 {
					replaceFile(t, ca, next.File)
				}
				cert, err := tls.LoadX509KeyPair(newer.Cert, newer.Key)
				return &tls.Config{Certificates: []tls.Certificate{cert}}, err
			}})
			require.NoError(t, connect(c, s.addr))
			require.EqualValues(t, 2, handshakes.Load())
			replaceFile(t, ca, old.File)
			require.ErrorContains(t, connect(c, s.addr), "redis.tls.ca: ")
			require.EqualValues(t, 3, handshakes.Load(), "nothing was replaced, so it is not tried again")
		})
	}
}

// handshaker is a connector that makes no more than a handshake.
type handshaker struct {
	client *tlsclient.Client
	addr   string
}

func (handshaker) Driver() driver.Driver { return nil }

func (h handshaker) Connect(context.Context) (driver.Conn, error) {
	config, err := h.client.Config(h.addr)
	if err != nil {
		return nil, err
	}
	conn, err := tls.Dial("tcp", h.addr, config)
	if err == nil {
		err = conn.Close()
	}
	return nil, err
}

// Kubernetes turns a symlink. The contents may have the same size and time.
func TestRereadThroughASymlink(t *testing.T) {
	t.Parallel()
	a, b := testrig.NewAuthority(t, "a"), testrig.NewAuthority(t, "b")
	dir := t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, from := range map[string]*testrig.Authority{"1": a, "2": b} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		replaceFile(t, filepath.Join(dir, name, "ca.pem"), from.File)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name, "ca.pem"), long, long))
	}
	turn := func(to string) {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, "tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "data")))
	}
	turn("1")
	c := tlsclient.New("redis.tls", tlsclient.Files{CA: filepath.Join(dir, "data", "ca.pem")}, nil)
	onA, onB := serve(t, a.Issue(), nil), serve(t, b.Issue(), nil)
	require.NoError(t, call(t, c, onA.addr))
	require.Error(t, call(t, c, onB.addr))
	turn("2")
	require.NoError(t, call(t, c, onB.addr))
	require.Error(t, call(t, c, onA.addr))
}

// Files that do not change are read once: they may even be gone from their directory's cache.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	a := testrig.NewAuthority(t, "a")
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(a.File, long, long))
	c := tlsclient.New("redis.tls", tlsclient.Files{CA: a.File}, nil)
	require.NoError(t, c.Check())
	text, err := os.ReadFile(a.File)
	require.NoError(t, err)
	file, err := os.OpenFile(a.File, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat([]byte("x"), len(text))) // in place, with size and time as before
	require.NoError(t, errors.Join(err, file.Close(), os.Chtimes(a.File, long, long)))
	require.NoError(t, c.Check())
}

// A file that changes right after it was read may keep its size and its time.
func TestFreshFilesAreReadAgain(t *testing.T) {
	a := testrig.NewAuthority(t, "a")
	fresh := time.Now().Add(time.Hour) // by a clock that cannot catch up with the test
	require.NoError(t, os.Chtimes(a.File, fresh, fresh))
	c := tlsclient.New("redis.tls", tlsclient.Files{CA: a.File}, nil)
	require.NoError(t, c.Check())
	info, err := os.Stat(a.File)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.File, bytes.Repeat([]byte("x"), int(info.Size())), 0o600))
	require.NoError(t, os.Chtimes(a.File, fresh, fresh))
	require.ErrorContains(t, c.Check(), "redis.tls.ca: ")
}

// While certificates are exchanged again and again, no connect fails.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	old, next := testrig.NewAuthority(t, "old"), testrig.NewAuthority(t, "next")
	both := filepath.Join(t.TempDir(), "both.pem")
	texts := []byte{}
	for _, a := range []*testrig.Authority{old, next} {
		text, err := os.ReadFile(a.File)
		require.NoError(t, err)
		texts = append(texts, text...)
	}
	require.NoError(t, os.WriteFile(both, texts, 0o600))
	trusting := *old
	trusting.File = both
	s := serve(t, old.Issue(), &trusting)
	place := old.Issue()
	c := tlsclient.New("redis.tls", tlsclient.Files{CA: both, Cert: place.Cert, Key: place.Key}, nil)
	require.NoError(t, c.Check())

	done := make(chan struct{})
	var calls sync.WaitGroup
	var failed atomic.Pointer[error]
	var made atomic.Int64
	for range 4 {
		calls.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := call(t, c, s.addr); err != nil {
					failed.Store(&err)
				}
				made.Add(1)
			}
		})
	}
	for _, by := range []*testrig.Authority{next, old, next} {
		before := made.Load()
		replace(t, place, by.Issue())
		s.use(t, by.Issue(), &trusting)
		await.That(t, func() bool { return made.Load() > before+20 }, "connections are made")
	}
	close(done)
	calls.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
}
