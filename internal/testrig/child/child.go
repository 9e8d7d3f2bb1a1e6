// Package child runs a program that never outlives this process. That holds after a clean exit, a panic, a test
// time-out and SIGKILL. Start turns an exec.Cmd into a Process that the caller can signal and wait for.
package child

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a running child. Its methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Start starts cmd, which gets the signal last should this process end before it. On systems other than Linux
// the kernel makes no such promise and last is ignored.
func Start(cmd *exec.Cmd, last syscall.Signal) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.live(last, started)
	return p, <-started
}

// live is the child's whole life. To the kernel the parent is the *thread* that forked, and Go ends threads as it
// likes; so this goroutine keeps the thread to itself until the child has ended.
func (p *Process) live(last syscall.Signal, started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signalOnOrphaned(p.cmd, last)
	p.err = p.cmd.Start()
	started <- p.err
	if p.err == nil {
		p.err = p.cmd.Wait()
	}
}

// Done is closed when the child has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child's end and returns what exec.Cmd.Wait did: nil, or an *exec.ExitError.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends sig to the child. A child that has ended answers os.ErrProcessDone.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Freeze halts the child (SIGSTOP) and, on Linux, waits until all of it stands still; SIGCONT lets it go on.
func (p *Process) Freeze() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p.Pid())
}
