package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
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
	a.web = a.serve(listener)
	a.cluster.SetAddress(a.advertised())
	if err := a.acquire(ctx, listenErr); err != nil {
		err = errors.Join(err, a.web.Close())
		if ctx.Err() != nil { // it was stopped while it waited
			a.waitEnded = err
			a.opts.logger.Info("stopped")
			return nil
		}
		return err
	}
	defer a.cluster.Release()
	a.lanes = lanes
	clocks{a}.compareClocks() // locking a database has read its clock: do not start by a clock that is ahead

	a.control.Load(ctx) // before anything starts

	// Running tasks may outlive ctx for as long as the drain may take.
	drainCtx, cancelDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelDrain()
	a.laneChanges <- laneList(lanes)
	g, failed := startAll(drainCtx, a.services())
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
		a.draining.Store(true) // /readyz fails, so load balancers turn away
		deadline := time.AfterFunc(a.cfg.Shutdown.Drain, cancelDrain)
		defer deadline.Stop()
		if killed := a.opts.outside.Killed; killed != nil {
			defer context.AfterFunc(killed, cancelDrain)()
		}
		return g.drain(func(p phase) error { return a.drained(drainCtx, p) })
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
func (a *App) wait(ctx context.Context, g *serviceGroup, drainCtx context.Context) error {
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
func (s *webServer) wait(context.Context) error {
	if s == nil {
		return nil
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return err
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
func (a *App) watchConfig(ctx context.Context) error {
	w := configs.NewWatcher(a.opts.configPath, a.opts.environ, a.cfg, 0, func(cfg configs.Config, err error) {
		a.reload(ctx, cfg, err)
	})
	var notifier sync.WaitGroup
	defer notifier.Wait()
	notifier.Go(func() {
		for {
			select {
			case <-a.reloadRequests:
				w.Poke()
			case <-ctx.Done():
				return
			}
		}
	})
	return w.Run(ctx)
}

// Reload checks the configuration file now instead of at the next interval.
func (a *App) Reload() { a.reloadRequests.Set() }

// reload puts the biz_types of a new configuration in force, all or none.
func (a *App) reload(ctx context.Context, cfg configs.Config, err error) {
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
		a.refused.Store(first)
		return
	}
	a.refused.Store("")
	a.metrics.SetTypes(types)
	a.catalog.Store(types)
	a.timer.SetTypes(redisBizTypes(cfg))
	a.limits.SetTypes(types.All())
	select {
	case a.laneChanges <- laneList(lanes):
		a.lanes = lanes
	case <-ctx.Done():
		return
	}
	before := a.cfg
	if len(before.HTTP.Tokens) > 0 && len(cfg.HTTP.Tokens) > 0 {
		a.secrets.tokens.Store(&cfg.HTTP.Tokens)
		before.HTTP.Tokens = cfg.HTTP.Tokens // this needs no restart
	}
	a.secrets.consul.Store(&cfg.Cluster.Consul)
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
