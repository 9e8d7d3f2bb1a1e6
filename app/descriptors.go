package app

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// checkDescriptors tries to open a file: without descriptors there are no connections.
func (a *App) checkDescriptors(context.Context) {
	f, err := os.Open(os.DevNull)
	if err == nil {
		_ = f.Close()
	}
	gone, log := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE), a.component("app")
	switch was := a.descriptorsGone.Swap(gone); {
	case gone && !was:
		log.Error("no file descriptor is left: nothing can be connected to", "error", err)
	case was && !gone:
		log.Info("there are file descriptors again")
	}
}
