//go:build !linux

package child

import (
	"os/exec"
	"syscall"
)

func signalOnOrphaned(*exec.Cmd, syscall.Signal) {}

func awaitStopped(int) error { return nil }
