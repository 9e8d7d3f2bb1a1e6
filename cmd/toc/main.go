// Command toc is the timeout center: the server, its administration and a
// client for its HTTP API.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/logqueue"
)

// version is set by the linker.
var version = "dev"

func main() {
	syscall.Umask(0o077) // what it writes, tasks and tokens, is for its user alone
	logging.Disable()    // of go-redis: its errors come back to us, and we report them once
	_ = mysql.SetLogger(&mysql.NopLogger{})
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, time.Now))
}

// usageError is a mistake of the caller's: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs one command line and gives the exit code.
func run(args []string, stdout, stderr io.Writer, now func() time.Time) int {
	root := rootCommand(now)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false // cobra's own complaints, before a command starts, are about usage
	noteStart(root, &started)
	ctx, stop := untilSignal(context.Background())
	defer stop()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	complaint := logqueue.NewWriter(stderr, nil) // a full pipe does not keep the process
	fmt.Fprintln(complaint, "toc:", err)
	complaint.Flush(flushTimeout)
	var wrong usageError
	if !started || errors.As(err, &wrong) {
		return 2
	}
	return 1
}

// noteStart makes every command record that it has started. cobra's hooks will
// not do: it runs them before it looks for required flags.
func noteStart(cmd *cobra.Command, started *bool) {
	if start := cmd.RunE; start != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return start(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		noteStart(c, started)
	}
}

func rootCommand(now func() time.Time) *cobra.Command {
	root := &cobra.Command{
		Use:   "toc",
		Short: "The timeout center: stores tasks and fires each one at its time",
		Long: `toc stores timeout tasks ("close order 42 if unpaid at 12:30:00.000") and fires
each one at its time through a business processor.

Start with:  toc serve     (SQLite in ./data, HTTP on 127.0.0.1:8080)
        or:  toc demo      (watch a few thousand tasks fire)`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("toc {{.Version}}\n")
	root.SetFlagErrorFunc(unknownFlag)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: "server", Title: "Server:"},
		&cobra.Group{ID: "client", Title: "Client (speaks HTTP to --server):"},
	)
	for _, c := range []*cobra.Command{
		serveCommand(), demoCommand(), receiveCommand(now), migrateCommand(), configCommand(), sqlCommand(), jobIDCommand(), benchCommand(),
		versionCommand(),
	} {
		c.GroupID = "server"
		root.AddCommand(c)
	}
	for _, c := range clientCommands(now) {
		c.GroupID = "client"
		root.AddCommand(c)
	}
	return root
}

// configFlag adds --config.
func configFlag(cmd *cobra.Command) *string {
	path := cmd.Flags().StringP("config", "c", "", "configuration file (default: TOC_CONFIG, or the embedded center)")
	*path = os.Getenv("TOC_CONFIG")
	return path
}

// loadConfig reads the configuration; what is wrong with it is a usage error.
func loadConfig(path string) (configs.Config, error) {
	cfg, err := configs.Load(path, os.Environ())
	if err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "toc", version)
			return err
		},
	}
}
