package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// noArguments refuses an argument. Where there are commands below, it is a mistyped one of them.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	if !cmd.HasSubCommands() {
		return usage("%s takes no argument, and %q is one; see: %s --help", path, args[0], path)
	}
	cmd.SuggestionsMinimumDistance = min(2, len(args[0])-1) // letters that may differ
	near := cmd.SuggestionsFor(args[0])
	if len(near) == 0 {
		return usage("unknown command %q; see: %s --help", args[0], path)
	}
	return usage("unknown command %q; did you mean: %s %s?", args[0], path, strings.Join(near, ", or: "+path+" "))
}

// oneArgument refuses none and more.
func oneArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usage("use: %s", cmd.UseLine())
}

// unknownFlag says where the flags of a command are listed.
func unknownFlag(cmd *cobra.Command, err error) error {
	if strings.HasPrefix(err.Error(), "unknown ") {
		return usage("%w; see: %s --help", err, cmd.CommandPath())
	}
	return err
}

// flagInstead refuses an argument, and says by which flag it is to be given.
func flagInstead(flag string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usage("use: %s %s %s", cmd.CommandPath(), flag, oneLine(args[0]))
	}
}
