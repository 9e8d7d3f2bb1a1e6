package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

// Run works until ctx ends or a part of the center fails, then drains. After a nil error the outcomes of all
// running tasks are recorded. At its start it waits until a database, and Consul if there is one, can be used.
func (a *App) Run(ctx context.Context) error {
	err := errors.Join(a.run(ctx), a.store.Close())
	a.log.Flush(logFlush)
	return err
}

// logFlush is how long the end of Run waits for the log.
const logFlush = time.Second

// Start runs the center and returns when it accepts tasks, or with the error that prevents it. It waits for databases and for
// Consul; if ctx ends meanwhile, the error names them. The end of ctx stops the center like Stop, but without waiting.
func (a *App) Start(ctx context.Context) error {
	if !a.started.CompareAndSwap(false, true) {
		return errors.New("start: the center was started already; make another one with New")
	}
	ctx, a.stop = context.WithCancel(ctx)
	ready, onReady := make(chan struct{}), a.opts.ready
	a.opts.ready = func(addr string) {
		if onReady != nil {
			onReady(addr)
		}
		close(ready)
	}
	a.ended = make(chan struct{})
	go func() {
		a.failure = a.Run(ctx)
		close(a.ended)
	}()
	select {
	case <-ready:
		return nil
	case <-a.ended:
		a.stop()
		return cmp.Or(a.failure, a.waitEnded)
	}
}

// Stop drains the center that Start started, like the end of Run's context. It waits for that or for the end of
// ctx. After a nil error the outcomes of all running tasks are recorded.
func (a *App) Stop(ctx context.Context) error {
	if a.stop == nil {
		return errors.New("stop: the center was not started by Start")
	}
	a.stop()
	select {
	case <-a.ended:
		return a.failure
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *App) run(ctx context.Context) error {
	// Start order: first the steps that can fail, then the work, then the HTTP API.
	lanes, err := a.buildLanes(a.cfg) // a processor may refuse its settings
	if err != nil {
		return err
	}
	listener, listenErr := a.listen() // if the port is taken, the next step may explain by which process
	server := a.serve(listener)
	a.cluster.SetAddress(a.advertised())
	if err := a.acquire(ctx, listenErr); err != nil {
		err = errors.Join(err, server.Close())
		if ctx.Err() != nil { // it was stopped while it waited
			a.waitEnded = err
			a.opts.logger.Info("stopped")
			return nil
		}
		return err
	}
	defer a.cluster.Release()
	a.lanes = lanes
	a.compareClocks() // locking a database has read its clock: do not start by a clock that is ahead

	a.control.Load(ctx) // before anything starts

	// Running tasks may outlive ctx for as long as the drain may take.
	drainCtx, cancelDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelDrain()
	work, stopWork := context.WithCancel(drainCtx)
	defer stopWork()
	configChanges := make(chan []*worker.Lane, 1)
	configChanges <- laneList(lanes)

	g, failed := errgroup.WithContext(drainCtx)
	loop := func(name string, run func(context.Context) error, ctx context.Context) {
		g.Go(func() error {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	runnerDone := make(chan struct{})
	loop("processor", func(ctx context.Context) error {
		defer close(runnerDone)
		return a.runner.Run(ctx, configChanges)
	}, drainCtx)
	memberCtx, leaveCluster := context.WithCancel(drainCtx) // keeps the partitions until the last outcome is recorded
	defer leaveCluster()
	loop("cluster", a.cluster.Run, memberCtx)
	exporting, stopExporting := context.WithCancel(drainCtx)
	defer stopExporting()
	if a.spans != nil {
		loop("tracing", a.spans.Run, exporting)
	}
	borrowDone := make(chan struct{})
	loop("store", a.watchDatabases, work)
	loop("durability", a.watchDurability, work)
	loop("clock", a.watchClock, work)
	if a.forward != nil {
		loop("peer clocks", a.watchPeerClocks, work)
		loop("limits", func(ctx context.Context) error {
			defer close(borrowDone)
			return a.borrow(ctx)
		}, work)
	}
	loop("due", a.watchDue, work)
	loop("pulse", a.watchPulse, work)
	if a.console != nil {
		loop("console", a.console.Run, work)
	}
	loop("descriptors", a.watchDescriptors, work)
	loop("control", a.control.Run, work)
	loop("operations", a.operations.Run, work)
	loop("scanner", a.scanner.Run, work)
	reading, stopReading := context.WithCancel(work)
	defer stopReading()
	for _, r := range a.readers {
		loop("intake "+r.Name(), r.Run, reading)
	}
	timerDone := make(chan struct{})
	loop("redistimer", func(ctx context.Context) error {
		defer close(timerDone)
		return a.timer.Run(ctx)
	}, work)
	reloadsDone := make(chan struct{})
	loop("configs", func(ctx context.Context) error {
		defer close(reloadsDone)
		return a.watchConfig(ctx, configChanges)
	}, work)
	g.Go(server.wait)
	a.open.Store(true)
	a.announce()
	if a.opts.ready != nil {
		a.opts.ready(a.Addr())
	}

	g.Go(func() error {
		select {
		case <-ctx.Done():
			a.opts.logger.Info("draining", "timeout", a.cfg.Shutdown.Drain, "running", a.running())
		case <-failed.Done():
		}
		// Drain order: each step bounds the next one.
		a.draining.Store(true) // /readyz fails, so load balancers turn away
		stopReading()          // other nodes get the partitions of the topics
		deadline := time.AfterFunc(a.cfg.Shutdown.Drain, cancelDrain)
		defer deadline.Stop()
		if killed := a.opts.outside.Killed; killed != nil {
			defer context.AfterFunc(killed, cancelDrain)()
		}
		if err := a.cluster.Leave(drainCtx); err != nil && drainCtx.Err() == nil {
			a.opts.logger.Warn("partitions not handed over one by one; they are free once this node has stopped", "error", err)
		}
		stopWork() // no more scans, no more claims, no more reloads
		<-reloadsDone
		<-timerDone
		close(configChanges)
		a.queue.Close() // tasks that have not started stay in the store unchanged
		<-runnerDone    // running tasks end and are recorded
		err := server.shutdown(drainCtx)
		a.service.Close()
		if a.forward != nil {
			<-borrowDone
			a.forward.Close()
		}
		err = errors.Join(err, a.timer.Close())
		leaveCluster()
		stopExporting() // the spans that are left are exported
		return err
	})
	if err := a.wait(ctx, g, drainCtx); err != nil {
		return err
	}
	a.opts.logger.Info("stopped")
	return nil
}

// killGrace is how long a processor may ignore its context after the drain.
const killGrace = 3 * time.Second

// wait waits for all parts, but not for processors that ignore their context.
func (a *App) wait(ctx context.Context, g *errgroup.Group, drainCtx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- g.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-drainCtx.Done():
		select {
		case err = <-done:
		case <-time.After(killGrace):
		}
	}
	askedFor := a.cfg.Shutdown.Drain == 0 && ctx.Err() != nil
	if err == nil && drainCtx.Err() != nil && !askedFor {
		err = fmt.Errorf("shutdown.drain of %s was not enough; what had not been recorded will run again", a.cfg.Shutdown.Drain)
	}
	return err
}

// listen opens the port without serving it yet.
func (a *App) listen() (net.Listener, error) {
	if a.opts.noHTTP {
		a.addr.Store("")
		return nil, nil
	}
	open := a.opts.outside.Listen
	if open == nil {
		open = net.Listen
	}
	l, err := open("tcp", a.cfg.HTTP.Listen)
	if err != nil {
		return nil, fmt.Errorf("http.listen: %w", err)
	}
	a.addr.Store(l.Addr().String())
	return l, nil
}

// Addr is the actual address of the HTTP API, empty before Run listens.
func (a *App) Addr() string {
	addr, _ := a.addr.Load().(string)
	return addr
}

// acquire takes databases and joins the cluster. It waits for servers that are away, unless the port is taken.
func (a *App) acquire(ctx context.Context, listenErr error) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if listenErr != nil {
		a.giveUp = cancel
	}
	err := a.cluster.Acquire(waiting)
	switch {
	case listenErr == nil:
		return err
	case err == nil:
		a.cluster.Release()
	case ctx.Err() == nil && waiting.Err() == nil: // another process may have the store
		return err
	}
	return listenErr
}

// beginWaiting is called when the start has to wait for servers.
func (a *App) beginWaiting() {
	if a.giveUp != nil {
		a.giveUp()
		return
	}
	a.announce()
}

// announce logs the address once: when the center takes requests, or when it begins to wait for servers.
func (a *App) announce() {
	if a.Addr() != "" && a.announced.CompareAndSwap(false, true) {
		a.opts.logger.Info("listening", "addr", a.Addr(), "node", a.node)
	}
}

// webServer serves the HTTP API from the beginning; nil: there is none.
type webServer struct {
	*http.Server
	ended chan error // how Serve ended
}

func (a *App) serve(l net.Listener) *webServer {
	if l == nil {
		return nil
	}
	s := &webServer{a.httpServer(), make(chan error, 1)}
	go func() { s.ended <- s.Serve(l) }()
	return s
}

// wait waits for the end of the server; an end that nobody has asked for is an error.
func (s *webServer) wait() error {
	if s == nil {
		return nil
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http: %w", err)
	}
	return nil
}

// Close ends the server at once.
func (s *webServer) Close() error {
	if s == nil {
		return nil
	}
	err := s.Server.Close()
	<-s.ended
	return err
}

// shutdown closes the HTTP API. Requests under way are answered.
func (s *webServer) shutdown(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		return s.Server.Close()
	}
	return nil
}

func (a *App) running() int {
	n := 0
	for _, b := range a.catalog.Load().All() {
		n += a.queue.Stats(b.ID).Running
	}
	return n
}

// watchConfig puts changed biz_types in force until ctx ends.
func (a *App) watchConfig(ctx context.Context, configChanges chan<- []*worker.Lane) error {
	w := configs.NewWatcher(a.opts.configPath, a.opts.environ, a.cfg, 0, func(cfg configs.Config, err error) {
		a.reload(ctx, cfg, err, configChanges)
	})
	notifierDone := make(chan struct{})
	go func() {
		defer close(notifierDone)
		for {
			select {
			case <-a.reloadRequests:
				w.Poke()
			case <-ctx.Done():
				return
			}
		}
	}()
	err := w.Run(ctx)
	<-notifierDone
	return err
}

// Reload checks the configuration file now instead of at the next interval.
func (a *App) Reload() { a.reloadRequests.Set() }

// reload puts the biz_types of a new configuration in force, all or none.
func (a *App) reload(ctx context.Context, cfg configs.Config, err error, configChanges chan<- []*worker.Lane) {
	log := a.component("configs")
	if a.opts.configPath == "" {
		cfg.BizTypes = a.inForce // the environment has none
	}
	var types *task.Types
	if err == nil {
		cfg, err = a.opts.configure(cfg)
	}
	if err == nil {
		types, err = bizTypes(cfg)
	}
	var lanes map[uint64]builtLane
	if err == nil {
		lanes, err = a.buildLanes(cfg)
	}
	if err != nil {
		log.Error("configuration refused; the old one stays in force", "file", a.opts.configPath, "error", err)
		first, _, _ := strings.Cut(err.Error(), "\n")
		a.refused.Store(&first)
		return
	}
	a.refused.Store(nil)
	a.metrics.SetTypes(types)
	a.catalog.Store(types)
	a.timer.SetTypes(redisBizTypes(cfg))
	a.limits.SetTypes(types.All())
	select {
	case configChanges <- laneList(lanes):
		a.lanes = lanes
	case <-ctx.Done():
		return
	}
	before := a.cfg
	if len(before.HTTP.Tokens) > 0 && len(cfg.HTTP.Tokens) > 0 {
		a.tokens.Store(&cfg.HTTP.Tokens)
		before.HTTP.Tokens = cfg.HTTP.Tokens // this needs no restart
	}
	a.consul.Store(&cfg.Cluster.Consul)
	before.Cluster.Consul.Token = cfg.Cluster.Consul.Token // nor does this
	if keys := configs.Diff(before, cfg); len(keys) > 0 {
		log.Warn("changes outside biz_types need a restart", "keys", keys)
	}
	changes := configs.DiffBizTypes(a.inForce, cfg.BizTypes)
	a.inForce = cfg.BizTypes
	if len(changes) == 0 {
		changes = []string{"none"}
	}
	log.Info("biz_types re-read", "biz_types", len(types.All()), "changes", changes)
}
