// Command toc is the timeout center: the server, its administration and a
// client for its HTTP API.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/configs"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(run(os.Args[1:])) }

// usageError is a mistake of the caller's: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func run(args []string) int {
	started := false // cobra's own complaints, before a command starts, are about usage
	root := rootCommand()
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "toc:", err)
	var wrong usageError
	if !started || errors.As(err, &wrong) {
		return 2
	}
	return 1
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "toc",
		Short: "The timeout center: stores tasks and fires each one at its time",
		Long: `toc stores timeout tasks ("close order 42 if unpaid at 12:30:00.000") and fires
each one at its time through a business processor.

Start with:  toc serve     (SQLite in ./data, HTTP on 127.0.0.1:8080)
        or:  toc demo      (watch a few thousand tasks fire)`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: "server", Title: "Server:"},
		&cobra.Group{ID: "client", Title: "Client (speaks HTTP to --server):"},
	)
	for _, c := range []*cobra.Command{
		serveCommand(), demoCommand(), migrateCommand(), configCommand(), sqlCommand(), jobIDCommand(), benchCommand(), versionCommand(),
	} {
		c.GroupID = "server"
		root.AddCommand(c)
	}
	return root
}

// configFlag adds --config.
func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", "", "configuration file (default: the embedded center)")
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
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "toc", version)
			return err
		},
	}
}
