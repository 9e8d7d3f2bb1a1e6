package testrig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig/child"
)

const (
	startTimeout = time.Minute
	stopTimeout  = time.Minute
	probeEvery   = 10 * time.Millisecond
	probeTimeout = 5 * time.Second
	portAttempts = 5
)

// engine is what one kind of server must know.
type engine interface {
	// name is for messages: "mysql".
	name() string
	// prepare fills a new, empty directory with what the server needs to start. It is called once per directory.
	prepare(ctx context.Context, dir string) error
	// command is the server in the foreground, logging to its standard output or error.
	command(dir string, port int) *exec.Cmd
	// ready is nil once the server that answers on port is the one whose data is in dir and whose process is pid,
	// and not a stranger that took the port first.
	ready(ctx context.Context, dir string, port, pid int) error
}

// server is one server with its own directory and port. It keeps both when it is started again.
type server struct {
	engine engine
	work   *workdir
	port   int

	mu   sync.Mutex
	proc *child.Process // nil while it is down
}

// launch makes a directory, finds a port and starts a server that is ready for its first client.
func launch(ctx context.Context, e engine) (*server, error) {
	work, err := newWorkdir()
	if err != nil {
		return nil, err
	}
	s := &server{engine: e, work: work}
	if err := s.launch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("launch %s: %w", e.name(), err), s.discard())
	}
	return s, nil
}

func (s *server) launch(ctx context.Context) error {
	if err := s.engine.prepare(ctx, s.dir()); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		if err = s.start(ctx); !errors.Is(err, syscall.EADDRINUSE) || attempt == portAttempts {
			return err
		}
	}
}

func (s *server) dir() string  { return s.work.path }
func (s *server) addr() string { return loopback(s.port) }

// start starts the server and waits until it answers. Starting a server that runs is an error.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return errors.New("it is already running")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	log, err := os.Create(filepath.Join(s.dir(), "log"))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own handle
	cmd := s.engine.command(s.dir(), s.port)
	cmd.Stdout, cmd.Stderr = log, log
	// SIGKILL: an orphan's data is of no use to anyone, so it need not take its time.
	proc, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if err := s.awaitReady(ctx, proc); err != nil {
		_ = proc.Signal(syscall.SIGKILL)
		<-proc.Done()
		return err
	}
	s.proc = proc
	return nil
}

func (s *server) awaitReady(ctx context.Context, proc *child.Process) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := s.probe(ctx, proc.Pid())
		if err == nil {
			return nil
		}
		select {
		case <-proc.Done():
			return s.died(proc.Wait())
		case <-ctx.Done():
			return fmt.Errorf("wait for it to answer on %s: %w (last: %w)\n%s", s.addr(), context.Cause(ctx), err, s.logTail())
		case <-tick.C:
		}
	}
}

// probe asks once. A stranger on our port may accept and never answer: it gets no more than probeTimeout.
func (s *server) probe(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.engine.ready(ctx, s.dir(), s.port, pid)
}

// died explains why a server ended before it was ready. A taken port is worth another try: it matches EADDRINUSE.
func (s *server) died(err error) error {
	tail := s.logTail()
	if bytes.Contains(tail, []byte("ddress already in use")) {
		err = errors.Join(err, syscall.EADDRINUSE)
	}
	return fmt.Errorf("it ended at once: %w\n%s", err, tail)
}

func (s *server) logTail() []byte {
	const most = 4 << 10
	log, err := os.ReadFile(filepath.Join(s.dir(), "log"))
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-most):]
}

// freeze halts a running server; thaw lets it go on.
func (s *server) freeze() error { return s.running((*child.Process).Freeze) }

func (s *server) thaw() error {
	return s.running(func(p *child.Process) error { return p.Signal(syscall.SIGCONT) })
}

func (s *server) running(do func(*child.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("it is not running")
	}
	return do(s.proc)
}

// up reports whether the server was started and not ended since.
func (s *server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil
}

// end sends sig and waits until the server is gone. A server that is down already stays so.
func (s *server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	if err := s.proc.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = s.proc.Signal(syscall.SIGCONT) // a frozen one cannot answer SIGTERM
	select {
	case <-s.proc.Done():
		s.proc = nil
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("it did not end within %v of %v\n%s", stopTimeout, sig, s.logTail())
	}
}

// discard ends the server at once and removes all that it stored.
func (s *server) discard() error {
	return errors.Join(s.end(syscall.SIGKILL), s.work.remove())
}
