package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
)

func operationsCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "operations",
		Short: "List redrives and discards at a rate, stop or undo one",
		Long:  "List the redrives and discards that have a rate, and the retries, the latest first, stop one of them or take it back.",
		Args:  noArguments,
	}
	r := remoteFlags(cmd, now)
	var limit int
	limitFlag(cmd, &limit, "at most this many, 1 to 1000")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return call(cmd, r, func(ctx context.Context, c *client.Client) ([]client.Operation, error) {
			return c.Operations(ctx, limit)
		}, r.showOperations)
	}
	cmd.AddCommand(
		operationCommand(now, "stop ID", "Stop an operation; what it has changed stays so", (*client.Client).StopOperation),
		operationCommand(now, "undo ID", "Take an operation back: what has not started since is dead again", (*client.Client).UndoOperation))
	return cmd
}

// operationCommand is a command about one operation.
func operationCommand(now func() time.Time, use, short string,
	ask func(*client.Client, context.Context, uint64) (client.Operation, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: oneArgument}
	r := remoteFlags(cmd, now)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Operation, error) { return ask(c, ctx, id) },
			func(w io.Writer, o client.Operation) error { return r.showOperations(w, []client.Operation{o}) })
	}
	return cmd
}

// showOperations writes operations, one a line.
func (r *remote) showOperations(out io.Writer, list []client.Operation) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "(no operations)")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tKIND\tSTATE\tDONE\tSKIPPED\tMATCHED\tRATE\tSTARTED\tBY\tBIZ_TYPE\tERROR")
	for _, o := range list {
		kind, rate := o.Kind, strconv.FormatFloat(o.Rate, 'g', -1, 64)
		if o.Undoes != 0 {
			kind, rate = kind+" of "+o.Undoes.String(), "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", o.ID, oneLine(kind), oneLine(o.State), o.Done, o.Skipped, o.Matched, rate,
			r.moment(o.Started.Time()), oneLine(o.By), orDash(o.Filter.BizType), orDash(o.Filter.Error))
	}
	return w.Flush()
}
