// The program with-servers runs a command that needs real servers, typically a whole test run:
//
//	go run ./internal/testrig/with-servers -- go test ./...
//
// It starts one MariaDB (or MySQL), one Redis and one Consul, puts their addresses into the command's environment,
// forwards signals to it, ends the servers after it and exits with its code. A server whose address is in the environment
// already is used as it is. Servers and command end with this program, however it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// Exit codes, as a shell would give them.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 127
	exitSignaled = 128 // plus the signal's number
)

func main() {
	bufferPool := flag.String("buffer-pool", "", "InnoDB's buffer pool, such as `2G` (default: the rig's own, small)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: with-servers [-buffer-pool SIZE] -- COMMAND [ARGUMENT]...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	var options []testrig.Option
	if *bufferPool != "" {
		options = append(options, testrig.BufferPool(*bufferPool))
	}
	code, err := run(testrig.NewServers(options...), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "with-servers:", err)
	}
	os.Exit(code)
}

func run(servers *testrig.Servers, command []string) (code int, err error) {
	defer func() {
		if closing := servers.Close(); closing != nil {
			code, err = max(code, exitFailed), errors.Join(err, fmt.Errorf("end the servers: %w", closing))
		}
	}()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)

	if sig, err := start(servers, signals); err != nil {
		return exitFailed, fmt.Errorf("start the servers: %w", err)
	} else if sig != nil {
		return exitSignaled + int(sig.(syscall.Signal)), nil
	}
	return runCommand(command, servers.Env(), signals)
}

// start starts the servers, or answers the signal that came in between.
func start(servers *testrig.Servers, signals <-chan os.Signal) (os.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	started := make(chan error, 1)
	go func() { started <- servers.Start(ctx) }()
	select {
	case err := <-started:
		if err == nil {
			fmt.Fprintf(os.Stderr, "with-servers: %s, up in %.1fs\n", strings.Join(servers.Env(), " "), time.Since(began).Seconds())
		}
		return nil, err
	case sig := <-signals:
		cancel()
		<-started
		return sig, nil
	}
}

// runCommand runs the command in a new process group, so that a signal reaches all that it started exactly once, whether
// the signal comes from a terminal or from kill. Outside the terminal's group the command cannot read from the terminal.
func runCommand(command, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	proc, err := child.Start(cmd, syscall.SIGTERM)
	if err != nil {
		return exitNotFound, err
	}
	for {
		select {
		case sig := <-signals:
			_ = syscall.Kill(-proc.Pid(), sig.(syscall.Signal)) // the group may be gone by now
		case <-proc.Done():
			return exitCode(proc.Wait())
		}
	}
}

func exitCode(err error) (int, error) {
	if err == nil {
		return 0, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return exitFailed, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignaled + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
