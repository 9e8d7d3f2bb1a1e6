package child_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The kernel sends the parent-death signal when the forking thread ends. The child must not notice that the caller's
// thread did.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)

	asked := make(chan int)
	var proc *child.Process
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		proc, err = child.Start(cmd, syscall.SIGKILL)
		asked <- syscall.Gettid()
	}()
	tid := <-asked
	require.NoError(t, err)
	if tid != os.Getpid() { // the main thread is parked, not ended
		await.That(t, func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
			return os.IsNotExist(err)
		}, "the thread ends")
	}

	_, err = fmt.Fprintln(in, "still here")
	require.NoError(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "still here\n", line)
	require.NoError(t, in.Close())
	require.NoError(t, proc.Wait())
}

func TestWaitTellsHowTheChildEnded(t *testing.T) {
	proc, err := child.Start(exec.Command("sh", "-c", "exit 7"), syscall.SIGKILL)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, proc.Wait(), &exit)
	require.Equal(t, 7, exit.ExitCode())
	require.ErrorIs(t, proc.Signal(syscall.SIGTERM), os.ErrProcessDone)
}

func TestSignalEndsTheChild(t *testing.T) {
	proc, err := child.Start(exec.Command("sleep", "600"), syscall.SIGKILL)
	require.NoError(t, err)
	require.NoError(t, proc.Signal(syscall.SIGKILL))
	<-proc.Done()
	require.ErrorContains(t, proc.Wait(), "killed")
}

func TestAFrozenChildStandsStillUntilItGoesOn(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	proc, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, proc.Freeze())
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", proc.Pid()))
		require.NoError(t, err)
		require.Contains(t, string(stat), " (cat) T ")
		require.NoError(t, proc.Signal(syscall.SIGCONT))
	}
	require.NoError(t, in.Close())
	require.NoError(t, proc.Wait())
	require.ErrorIs(t, proc.Freeze(), os.ErrProcessDone)
}

func TestAProgramThatIsNotThere(t *testing.T) {
	_, err := child.Start(exec.Command("/no/such/program"), syscall.SIGKILL)
	require.ErrorIs(t, err, os.ErrNotExist)
}
