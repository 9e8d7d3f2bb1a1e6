package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/app"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the timeout center",
		Long: `Run the timeout center until SIGTERM or SIGINT; then it drains: nothing new is
started, running tasks end and are recorded, and it exits 0. A second signal ends
it at once.

biz_types are re-read on SIGHUP and when the configuration file changes.`,
		Args: noArguments,
	}
	path := configFlag(cmd)
	format := cmd.Flags().String("log-format", "text", "text or json")
	level := cmd.Flags().String("log-level", "info", "debug, info, warn or error")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		logger, err := newLogger(cmd.ErrOrStderr(), *format, *level)
		if err != nil {
			return err
		}
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		for _, w := range cfg.Warnings() {
			logger.Warn("configuration", "warning", w)
		}
		a, err := app.New(cfg, app.WithLogger(logger), app.WithVersion(version), app.WithConfigFile(*path, os.Environ()))
		if err != nil {
			return usageError{err}
		}
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		go func() {
			asking, cancel := context.WithTimeout(ctx, 10*time.Second)
			advice, err := app.ServerAdvice(asking, cfg) // a server that is away is told by the center
			if wrong, ok := errors.AsType[*app.WrongServersError](err); ok {
				advice = append(advice, wrong.Lines...)
			}
			cancel()
			for _, line := range advice {
				logger.Warn("database server", "advice", line)
			}
			for {
				select {
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

func newLogger(out io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %q: it is debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, opts)), nil
	case "json":
		opts.ReplaceAttr = textIDs
		return slog.New(slog.NewJSONHandler(out, opts)), nil
	}
	return nil, usage("--log-format %q: it is text or json", format)
}
