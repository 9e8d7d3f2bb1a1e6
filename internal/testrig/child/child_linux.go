package child

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func signalOnOrphaned(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = sig
}

// awaitStopped waits until the last of the child's threads has stopped. It leaves an ended child for cmd.Wait to reap.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
