package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/server/console"
	"github.com/timeoutcenter/toc/store"
)

// service is a part of the center that works from the start to a phase of the drain.
type service struct {
	name    string
	on      bool  // false: this center has no such part
	stops   phase // at its begin the context of run ends
	awaited phase // it lasts until run has returned; end: only Run waits for it
	run     func(ctx context.Context) error
}

// phase is a step of the drain, in the order of the constants. It stops its services, waits for the ones that it
// awaits, and then does what drained says. So each phase bounds the next one.
type phase int

const (
	handingOver phase = iota // other nodes get the partitions, of the topics first
	finding                  // no more scans, no more claims, no more reloads
	running                  // running tasks end and are recorded
	answering                // requests under way are answered
	owning                   // the partitions are kept until the last outcome is recorded; the spans that are left are exported
	end
)

// services lists all services in the order of their start.
func (a *App) services() []service {
	peers := a.forward != nil
	list := []service{
		{"processor", true, owning, running, func(ctx context.Context) error { return a.runner.Run(ctx, a.laneChanges) }},
		{"cluster", true, owning, end, a.cluster.Run},
		{"tracing", a.spans != nil, owning, end, a.spans.Run},
		{"store", true, finding, end, a.watchDatabases},
		{"alarm", true, finding, end, a.alarm.Run},
		{"clock", true, finding, end, every(time.Second, time.Second, clocks{a}.checkClock)},
		{"exchange", peers, finding, answering, a.exchange},
		{"due", true, finding, end, every(dueFirst, dueEvery, a.due.countDue)},
		{"pulse", true, finding, end, every(0, pulseEvery, func(context.Context) { a.metrics.Recent().Tick(a.clock.Now()) })},
		{"console", a.console != nil, finding, end, every(console.Tick, console.Tick, a.console.NoteOwners)},
		{"control", true, finding, end, a.control.Run},
		{"operations", true, finding, end, a.operations.Run},
		{"scanner", true, finding, end, a.scanner.Run},
	}
	list = append(list, a.checks()...)
	for _, r := range a.readers {
		list = append(list, service{"intake " + r.Name(), true, handingOver, end, r.Run})
	}
	return append(list,
		service{"redistimer", true, finding, finding, a.timer.Run},
		service{"configs", true, finding, finding, a.watchConfig},
		service{"http", a.web != nil, end, end, a.web.wait})
}

// drained ends a phase, once the services that it awaits have ended.
func (a *App) drained(ctx context.Context, p phase) error {
	switch p {
	case handingOver:
		if err := a.cluster.Leave(ctx); err != nil && ctx.Err() == nil {
			a.opts.logger.Warn("partitions not handed over one by one; they are free once this node has stopped", "error", err)
		}
	case finding:
		close(a.laneChanges)
		a.queue.Close() // tasks that have not started stay in the store unchanged
	case running:
		err := a.web.shutdown(ctx)
		a.service.Close()
		return err
	case answering:
		if a.forward != nil {
			a.forward.Close()
		}
		return a.timer.Close()
	}
	return nil
}

// every makes the run of a service that does something after a first pause and then at an interval.
func every(first, interval time.Duration, do func(ctx context.Context)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for pause := first; ; pause = interval {
			if pause > 0 {
				if err := wait.Poll(ctx, pause); err != nil {
					return err
				}
			}
			do(ctx)
		}
	}
}

// serviceGroup is the services that were started. A service's context ends with its phase, or with the time for the drain.
type serviceGroup struct {
	*errgroup.Group
	contexts [end + 1]context.Context
	stop     [end + 1]context.CancelFunc
	awaited  [end + 1]sync.WaitGroup
}

// startAll starts services. failed ends when one of them has failed.
func startAll(ctx context.Context, list []service) (g *serviceGroup, failed context.Context) {
	g = &serviceGroup{}
	g.Group, failed = errgroup.WithContext(ctx)
	for p := range g.contexts {
		g.contexts[p], g.stop[p] = context.WithCancel(ctx)
	}
	for _, one := range list {
		if !one.on {
			continue
		}
		g.awaited[one.awaited].Add(1)
		g.Go(func() error {
			defer g.awaited[one.awaited].Done()
			if err := one.run(g.contexts[one.stops]); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			return nil
		})
	}
	return g, failed
}

// drain stops the services phase by phase; drained ends a phase.
func (g *serviceGroup) drain(drained func(phase) error) error {
	var errs []error
	for p := range end {
		g.stop[p]()
		g.awaited[p].Wait()
		errs = append(errs, drained(p))
	}
	return errors.Join(errs...)
}

// watchDatabases follows the databases' conditions until ctx ends. A database that becomes usable is scanned at once.
func (a *App) watchDatabases(ctx context.Context) error {
	return a.store.Watch(ctx, func(database int, _, now store.Condition) {
		a.logFaults()
		if now.Usable() {
			a.scanner.TickDatabase(database)
		}
	})
}
