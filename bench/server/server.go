// Package server brings up the servers of a benchmark: MariaDB, Redis,
// PostgreSQL, beanstalkd and Consul, on free loopback ports, with the settings
// that the results name. It starts each server and reads its use of CPU and memory.
// The measurements are no part of it.
//
// Servers die with the process that started them, and their directories go with
// the scratch directory, which is the caller's.
package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// ErrMissing is a program that this machine does not have.
var ErrMissing = errors.New("is not installed: run scripts/bench-deps.sh")

// Kind is one kind of server.
type Kind struct {
	Name    string
	title   string // as people write it
	program string
	args    func(dir string, port int) []string
	prepare func(ctx context.Context, k Kind, dir string) error // nil: nothing to do
	version []string                                            // arguments that print it
	ready   func(ctx context.Context, addr string) error        // nil: it accepts connections
	unroot  bool                                                // does not run as root
	stop    syscall.Signal                                      // ends it at once, leaving nothing in the kernel
}

// Server is a running server.
type Server struct {
	Kind
	Addr string // host:port
	proc *child.Process
	dir  string
}

const (
	startTimeout = time.Minute
	portAttempts = 5
)

// Settings is the command line by which the results name the server's settings:
// without what is different in each run.
func (k Kind) Settings() string {
	var kept []string
	const here = "DIR"
	for _, a := range k.args(here, 0) {
		if !strings.Contains(a, here) {
			kept = append(kept, a)
		}
	}
	return k.program + " " + strings.Join(kept, " ")
}

var number = regexp.MustCompile(`\d+\.\d+[.\d]*`)

// Version is the program's name and number, or an error that is ErrMissing.
func (k Kind) Version(ctx context.Context) (string, error) {
	path, err := find(k.program)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, k.version...).Output()
	return k.title + " " + string(number.Find(out)), err
}

// Start starts a server with a new directory below scratch and waits until it answers.
func (k Kind) Start(ctx context.Context, scratch string) (*Server, error) {
	path, err := find(k.program)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(scratch, k.Name+"-")
	if err != nil {
		return nil, err
	}
	s, err := k.startIn(ctx, path, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (k Kind) startIn(ctx context.Context, path, dir string) (*Server, error) {
	if err := k.give(dir); err != nil {
		return nil, err
	}
	if k.prepare != nil {
		if err := k.prepare(ctx, k, dir); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", k.Name, err)
		}
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s, err := k.launch(ctx, path, dir, port)
		if !errors.Is(err, syscall.EADDRINUSE) || attempt == portAttempts {
			return s, err
		}
	}
}

func (k Kind) launch(ctx context.Context, path, dir string, port int) (*Server, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, k.args(dir, port)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := k.as(cmd); err != nil {
		return nil, err
	}
	proc, err := child.Start(cmd, k.stop)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", k.Name, err)
	}
	s := &Server{Kind: k, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), proc: proc, dir: dir}
	if err := s.await(ctx); err != nil {
		s.end()
		said, _ := os.ReadFile(log.Name())
		if bytes.Contains(said, []byte("ddress already in use")) {
			err = errors.Join(err, syscall.EADDRINUSE)
		}
		return nil, fmt.Errorf("%s: %w\n%s", k.Name, err, said[max(0, len(said)-2048):])
	}
	return s, nil
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ready := s.ready
	if ready == nil {
		ready = accepts
	}
	for {
		err := ready(ctx, s.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-s.proc.Done():
			return fmt.Errorf("ended at once: %w", cmp.Or(s.proc.Wait(), errors.New("without an error")))
		case <-ctx.Done():
			return fmt.Errorf("does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// PID is the server's process, the parent of any others that it has.
func (s *Server) PID() int { return s.proc.Pid() }

// Stop ends the server without ceremony and removes its data.
func (s *Server) Stop() error {
	s.end()
	return os.RemoveAll(s.dir)
}

// Kill is kill -9 of the server's processes.
func (s *Server) Kill() {
	family, _ := descendants(s.PID())
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.proc.Done()
}

// Restart starts a killed server on its data and its port, and waits until it answers.
func (s *Server) Restart(ctx context.Context) error {
	path, err := find(s.program)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(s.Addr[strings.LastIndexByte(s.Addr, ':')+1:])
	if err != nil {
		return err
	}
	again, err := s.launch(ctx, path, s.dir, port)
	if err == nil {
		s.proc = again.proc
	}
	return err
}

func (s *Server) end() {
	_ = s.proc.Signal(s.stop)
	select {
	case <-s.proc.Done():
	case <-time.After(30 * time.Second):
		_ = s.proc.Signal(syscall.SIGKILL)
		<-s.proc.Done()
	}
}

func accepts(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// find looks in PATH, then where distributions put servers.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	dirs := []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"}
	postgres, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(postgres) // the newest first
	dirs = append(dirs, postgres...)
	if cache, err := os.UserCacheDir(); err == nil {
		consul, _ := filepath.Glob(filepath.Join(cache, "toc/consul-*/usr/bin"))
		dirs = append(dirs, consul...)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w", name, ErrMissing)
}

// freePort looks below the range that the kernel gives to outgoing connections.
func freePort() (int, error) {
	const first, last = 15000, 31990
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first))))
		if err == nil {
			return l.Addr().(*net.TCPAddr).Port, l.Close()
		}
	}
	return 0, errors.New("no free loopback port")
}
