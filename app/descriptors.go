package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// noDescriptors is the fault that this process cannot open files and connections.
func (a *App) noDescriptors() *fault {
	var gone atomic.Pointer[error]
	return &fault{
		code: "descriptors", title: "no file descriptor is left", after: "1 s",
		component: "app", level: slog.LevelError,
		begins: "no file descriptor is left: nothing can be connected to", ends: "there are file descriptors again",
		every: time.Second,
		check: func(context.Context) {
			f, err := os.Open(os.DevNull)
			if err == nil {
				_ = f.Close()
			}
			gone.Store(nil)
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				gone.Store(&err)
			}
		},
		find: func(*state) []trouble {
			err := gone.Load()
			if err == nil {
				return nil
			}
			return []trouble{{database: -1, facts: []any{"error", *err},
				text: "no file descriptor is left: nothing can be connected to; raise the limit of open files"}}
		},
	}
}
