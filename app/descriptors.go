package app

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// watchDescriptors tries to open a file each second, until ctx ends: without descriptors there are no
// connections.
func (a *App) watchDescriptors(ctx context.Context) error {
	log := a.component("app")
	tick := wait.NewTicker(ctx, time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		f, err := os.Open(os.DevNull)
		if err == nil {
			_ = f.Close()
		}
		gone := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
		switch was := a.descriptorsGone.Swap(gone); {
		case gone && !was:
			log.Error("no file descriptor is left: nothing can be connected to", "error", err)
		case was && !gone:
			log.Info("there are file descriptors again")
		}
	}
}
