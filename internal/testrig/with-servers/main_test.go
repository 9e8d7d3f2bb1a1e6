package main_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

var program string

// addresses are the variables that hand the servers down.
var addresses = []string{testrig.EnvMySQL, testrig.EnvRedis, testrig.EnvConsul}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "with-servers-*")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "with-servers")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		panic(string(out))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// withServers is the program, run as if no server were there yet, with its server data in dir.
func withServers(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(addresses, name)
	})
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	return cmd
}

func TestExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := withServers(t, dir, "--", "sh", "-c", script)
			// The addresses need not be real: nobody dials them, and no server has to start.
			for _, name := range addresses {
				cmd.Env = append(cmd.Env, name+"=127.0.0.1:1")
			}
			_ = cmd.Run()
			require.Equal(t, want, cmd.ProcessState.ExitCode())
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	cmd := withServers(t, t.TempDir())
	out, _ := cmd.CombinedOutput()
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "usage: with-servers")
}

func TestTheServersEndWithTheCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir, "true", "exit 3")
	require.NoError(t, r.release.Close())
	require.ErrorContains(t, r.cmd.Wait(), "exit status 3")
	r.requireServersGone(t)
	requireEmpty(t, dir)
}

func TestASignalReachesTheCommand(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := start(t, dir, "trap 'exit 5' INT TERM", "exit 6")
			require.NoError(t, r.cmd.Process.Signal(sig))
			require.ErrorContains(t, r.cmd.Wait(), "exit status 5")
			r.requireServersGone(t)
			requireEmpty(t, dir)
		})
	}
}

// Nothing can be tidied up after SIGKILL, but no process may stay.
func TestKilledItTakesServersAndCommandAlong(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), "true", "true")
	require.NoError(t, r.cmd.Process.Kill())
	require.ErrorContains(t, r.cmd.Wait(), "killed")
	r.requireServersGone(t)
	_, err := io.ReadAll(r.out) // ends when the command, the last one to hold it, has ended
	require.NoError(t, err)
}

// running is the program with a command in it, all servers up, and a connection to each.
type running struct {
	cmd     *exec.Cmd
	out     *bufio.Reader
	release *os.File // closing it lets the command go on
	conns   []net.Conn
}

// start returns when the command has done what comes first and waits to be released, to do what comes last.
func start(t *testing.T, dir, first, last string) *running {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test needs servers")
	}
	// The program gives the command no standard input, so what holds it until the test lets go is a named pipe.
	hold := filepath.Join(t.TempDir(), "hold")
	require.NoError(t, syscall.Mkfifo(hold, 0o600))
	release, err := os.OpenFile(hold, os.O_RDWR, 0)
	require.NoError(t, err)
	out, stdout, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = release.Close(); _ = out.Close() })

	script := strings.Join([]string{
		"exec 3<$HOLD", first, "printenv " + strings.Join(addresses, " "),
		"cat <&3 >/dev/null 2>&1 &", "wait $!", last, // a signal that comes just before a read of the shell itself would not end it
	}, "\n")
	cmd := withServers(t, dir, "--", "sh", "-c", script)
	cmd.Env = append(cmd.Env, "HOLD="+hold)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, stdout.Close())

	r := &running{cmd: cmd, out: bufio.NewReader(out), release: release}
	for range addresses {
		addr, err := r.out.ReadString('\n')
		require.NoError(t, err)
		conn, err := net.Dial("tcp", strings.TrimSpace(addr))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		r.conns = append(r.conns, conn)
	}
	return r
}

// requireServersGone reads the open connections to their end, which comes when the servers' processes do.
func (r *running) requireServersGone(t *testing.T) {
	t.Helper()
	for _, conn := range r.conns {
		_, _ = io.Copy(io.Discard, conn) // EOF or a reset
		// A dying process closes its sockets one by one; the one it listened on may be last.
		await.That(t, func() bool {
			again, err := net.Dial("tcp", conn.RemoteAddr().String())
			if err == nil {
				_ = again.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}, "%s is gone", conn.RemoteAddr())
	}
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
