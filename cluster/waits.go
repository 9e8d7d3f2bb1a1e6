package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// ofConsul stands for Consul where a Wait else has the number of a database.
const ofConsul = -1

// Wait is a server, or a database of it, that this node waits for.
type Wait struct {
	Database int // −1: Consul
	Since    time.Time
	Err      error // of the last attempt
}

// ConsulName is the Wait.Name of Consul.
const ConsulName = "consul"

// DatabaseName is the Wait.Name of a database.
func DatabaseName(database int) string { return fmt.Sprintf("database %d", database) }

// Name is the name of the server.
func (w Wait) Name() string {
	if w.Database == ofConsul {
		return ConsulName
	}
	return DatabaseName(w.Database)
}

func (w Wait) String() string {
	return fmt.Sprintf("%s, since %s: %v", w.Name(), w.Since.UTC().Format(time.RFC3339), w.Err)
}

// WaitError is the error of an Acquire whose context has ended while it waited.
type WaitError struct {
	Waits []Wait
	Cause error
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%v while waiting for %s", e.Cause, joinWaits(e.Waits))
}

func (e *WaitError) Unwrap() error { return e.Cause }

func joinWaits(list []Wait) string {
	texts := make([]string, len(list))
	for i, w := range list {
		texts[i] = w.String()
	}
	return strings.Join(texts, "; ")
}

// waits records the servers that a node waits for, at its start and later.
type waits struct {
	logger *slog.Logger
	host   Host

	mu     sync.Mutex
	list   map[int]Wait
	first  time.Time // when the node began to wait; zero: it has not
	logged time.Time
}

// Waits lists the servers that this node waits for.
func (w *waits) Waits() []Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(maps.Values(w.list), func(a, b Wait) int { return cmp.Compare(a.Database, b.Database) })
}

// record records the result of an attempt; nil: the node waits for this server no longer.
func (w *waits) record(database int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.list, database)
		return
	}
	one, waiting := w.list[database]
	if !waiting {
		one = Wait{Database: database, Since: time.Now()}
	}
	one.Err = err
	w.list[database] = one
}

// reportEvery is the time between two log lines about a node that waits.
const reportEvery = 10 * time.Second

// report logs what the node waits for at its start: at once, then from time to time.
func (w *waits) report() {
	list, now := w.Waits(), time.Now()
	if len(list) == 0 {
		return
	}
	w.mu.Lock()
	began := w.first.IsZero()
	if began {
		w.first = now
	}
	due := now.Sub(w.logged) >= reportEvery
	if due {
		w.logged = now
	}
	first := w.first
	w.mu.Unlock()
	if began {
		w.host.BeginWaiting()
	}
	if due {
		w.logger.Warn("waiting to start", "for", joinWaits(list), "waited", now.Sub(first).Round(time.Second))
	}
}

// over logs the end of a wait that was reported.
func (w *waits) over() {
	w.mu.Lock()
	first := w.first
	w.mu.Unlock()
	if !first.IsZero() {
		w.logger.Info("the wait is over; starting", "waited", time.Since(first).Round(time.Millisecond))
	}
}

// ended is the error of a wait that ctx has ended.
func (w *waits) ended(ctx context.Context) error {
	return &WaitError{Waits: w.Waits(), Cause: context.Cause(ctx)}
}

// round calls take for all databases and records the results. taken is the number of databases that were taken. The error
// is one that time does not mend.
func (w *waits) round(ctx context.Context, databases int, take func(database int) error) (taken int, err error) {
	errs := make([]error, databases)
	eachDatabase(databases, func(d int) { errs[d] = take(d) })
	if ctx.Err() != nil {
		return 0, w.ended(ctx)
	}
	for d, err := range errs {
		if err != nil && !errors.As(err, new(*store.DatabaseError)) {
			return 0, err
		}
		w.record(d, err)
		if err == nil {
			taken++
		}
	}
	return taken, nil
}

// The pauses between two attempts to reach servers.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 3 * time.Second
)

// takeAll calls take for all databases, again and again until at least one is taken; the node starts with the databases
// that it has. It fails if time does not mend an error, and when ctx ends. local: the databases are files of this machine,
// so if none can be opened, it fails, too, unless they were only busy.
func (w *waits) takeAll(ctx context.Context, databases int, local bool, take func(database int) error) error {
	pauses := wait.Backoff{First: firstPause, Most: maxPause}
	for {
		taken, err := w.round(ctx, databases, take)
		if err != nil || taken > 0 {
			return err
		}
		if local {
			for _, one := range w.Waits() {
				if !errors.Is(one.Err, context.DeadlineExceeded) {
					return fmt.Errorf("none of the databases can be opened: %w", one.Err)
				}
			}
		}
		w.report()
		if pauses.Wait(ctx) != nil {
			return w.ended(ctx)
		}
	}
}

// look prepares the databases while the node waits for Consul, so that it can say all that it waits for. It ends with ctx, or
// with an error that time does not mend.
func (w *waits) look(ctx context.Context, databases int, prepare func(database int) error) error {
	for {
		ready, err := w.round(ctx, databases, prepare)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		pause := maxPause
		if ready == databases {
			pause = reportEvery
		}
		if wait.For(ctx, pause) != nil {
			return nil
		}
	}
}
