package main

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/internal/logqueue"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the timeout center",
		Long: `Run the timeout center until SIGTERM or SIGINT; then it drains: nothing new is
started, running tasks end and are recorded, and it exits 0. A second signal ends
it at once.

It waits for databases and for Consul, as long as it takes: /healthz answers 200, and
/readyz 503 with what it waits for. A mistake in the configuration, a store of another
layout and a store that is in use end it at once.

biz_types are re-read on SIGHUP and when the configuration file changes.`,
		Args: noArguments,
	}
	path := configFlag(cmd)
	format := cmd.Flags().String("log-format", "text", "text or json")
	level := cmd.Flags().String("log-level", "info", "debug, info, warn or error")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		logger, lines, err := newLogger(cmd.ErrOrStderr(), *format, *level)
		if err != nil {
			return err
		}
		defer lines.Flush(flushTimeout)
		defer alone(logger)()
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		for _, w := range cfg.Warnings() {
			logger.Warn("configuration", "warning", w)
		}
		ready := make(chan struct{})
		a, err := app.New(cfg, app.WithLogger(logger), app.WithVersion(version), app.WithConfigFile(*path, os.Environ()),
			app.WithReady(func(string) { close(ready) }))
		if err != nil {
			return usageError{err}
		}
		ctx := cmd.Context()
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		go func() {
			for {
				select {
				case <-ready: // before, the servers may be away
					ready = nil
					asking, cancel := context.WithTimeout(ctx, 10*time.Second)
					advice, err := app.ServerAdvice(asking, cfg) // a server that is away is reported by the center
					cancel()
					if wrong, ok := errors.AsType[*app.WrongServersError](err); ok {
						advice = append(advice, wrong.Lines...)
					}
					for _, line := range advice {
						logger.Warn("database server", "advice", line)
					}
				case <-hup:
					a.Reload()
				case <-ctx.Done():
					return
				}
			}
		}()
		return a.Run(ctx)
	}
	return cmd
}

// flushTimeout is how long the end of the process waits for a log that is not read.
const flushTimeout = time.Second

// alone makes the log the only way by which the process writes, until the answered function is called: package log goes
// there, too, and a reader that goes away does not end the process by SIGPIPE.
func alone(logger *slog.Logger) (undo func()) {
	before, flags := log.Writer(), log.Flags()
	log.SetOutput(slog.NewLogLogger(logger.Handler(), slog.LevelWarn).Writer())
	log.SetFlags(0)
	stop := withoutSIGPIPE()
	return func() {
		stop()
		log.SetOutput(before)
		log.SetFlags(flags)
	}
}

// withoutSIGPIPE makes writes to a standard output that nobody reads fail instead of ending the process. Programs that it
// starts get the signal's default back.
func withoutSIGPIPE() (undo func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	return func() { signal.Stop(ignored) }
}

// untilSignal ends at the first SIGTERM or SIGINT. After that a second one has
// its usual effect: it ends the process.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// textIDs makes texts of ids: most readers of JSON take numbers for float64, which has 53 bits.
func textIDs(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindUint64 {
		a.Value = slog.StringValue(a.Value.String())
	}
	return a
}

// newLogger makes a logger whose lines go to out through a queue: an out that blocks holds up nobody.
func newLogger(out io.Writer, format, level string) (*slog.Logger, *logqueue.Writer, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, nil, usage("--log-level %q: it is debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	newHandler := func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, opts) }
	switch format {
	case "text":
	case "json":
		opts.ReplaceAttr = textIDs
		newHandler = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, opts) }
	default:
		return nil, nil, usage("--log-format %q: it is text or json", format)
	}
	handler, lines := logqueue.Open(out, newHandler)
	return slog.New(handler), lines, nil
}
