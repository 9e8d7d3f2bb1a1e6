package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/app/metrics"
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

// notDurable is the fault that a database may lose answered writes, by the settings of its server.
func (a *App) notDurable() *fault {
	settings := make([]atomic.Pointer[[]string], a.layout.Databases) // the wrong ones; nil: not read yet
	return &fault{
		code: "durability", title: "a database may lose answered writes, by its settings", after: "10 s", metric: "toc_durable",
		component: "store", level: slog.LevelWarn,
		begins: "database is not durable: answered writes may be lost", ends: "database is durable again",
		again: true, every: 10 * time.Second,
		check: func(ctx context.Context) {
			asked := make(map[int]*[]string) // by server
			for d := range settings {
				if a.store.Condition(d).Down != nil {
					continue
				}
				server := a.store.Server(d)
				if asked[server] == nil {
					now, err := a.store.Durability(ctx, d)
					if err != nil {
						continue // the last answer stands
					}
					asked[server] = &now
				}
				settings[d].Store(asked[server])
			}
		},
		find: ofDatabases(func(d *database) (string, []any) {
			wrong := settings[d.number].Load()
			if wrong == nil || len(*wrong) == 0 {
				return "", nil
			}
			text := strings.Join(*wrong, "; ")
			return fmt.Sprintf("database %d is not durable: %s", d.number, text), []any{"settings", text}
		}),
		gauges: func(_ *state, set metrics.Set) {
			for d := range settings {
				if wrong := settings[d].Load(); wrong != nil {
					set(metrics.Durable, metrics.Bool(len(*wrong) == 0), strconv.Itoa(d))
				}
			}
		},
	}
}
