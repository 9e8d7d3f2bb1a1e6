package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
)

func bizTypesCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "biz-types", Short: "Show the business types, their load on all nodes, and which are paused", Args: noArguments}
	r := remoteFlags(cmd, now)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) ([]client.BizType, error) { return c.BizTypes(ctx) }, r.showBizTypes)
}

func pauseCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Keep the tasks of a business type from starting",
		Long: `Keep the tasks of a business type from starting, on all nodes within two seconds,
over restarts, until toc resume or --until. Runs under way end.`,
		Args: oneBizType,
	}
	r := remoteFlags(cmd, now)
	var p client.Pause
	until := cmd.Flags().String("until", "", "`time` at which the pause ends by itself, RFC 3339 (default: it does not)")
	cmd.Flags().StringVar(&p.Reason, "reason", "", "shown to whoever asks why its tasks wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("until") {
			at, err := time.Parse(time.RFC3339, *until)
			if err != nil {
				return usage("--until %s is no time like %s", oneLine(*until), now().UTC().Add(time.Hour).Format(time.RFC3339))
			}
			p.Until = at
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.BizType, error) { return c.Pause(ctx, args[0], p) },
			r.showBizType)
	}
	return cmd
}

func resumeCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "resume NAME", Short: "End the pause of a business type", Args: oneBizType}
	r := remoteFlags(cmd, now)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (client.BizType, error) {
		return c.Resume(ctx, cmd.Flags().Arg(0))
	}, r.showBizType)
}

func retryCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry --biz-type NAME",
		Short: "Run the failing tasks of a business type now",
		Long: `Run the pending tasks of a business type now that have failed and would run again
later, each after its pause: for example when their receiver is healed. Their
attempts stay as they are. What is due already is left out: it runs, or waits
for a worker, a limit or a consumer. So is what a consumer has.
It is an operation, with --rate at that rate.`,
		Args: noArguments,
	}
	r := remoteFlags(cmd, now)
	var bizType string
	var perSecond float64
	bizTypeFlag(cmd, &bizType)
	rateFlag(cmd, &perSecond, "retry so many a second; toc operations shows how far it is")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if bizType == "" {
			return usage("--biz-type is missing; toc biz-types lists the business types")
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Retried, error) {
			return c.Retry(ctx, bizType, perSecond)
		},
			func(w io.Writer, got client.Retried) error {
				note := ""
				if got.Matched == 0 {
					note = ": no task that has failed waits for a later run"
				}
				return showChanged(w, "retried", note, got)
			})
	}
	return cmd
}

// oneBizType demands the name of a business type as the only argument.
func oneBizType(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usage("use: %s NAME, the name of one business type; toc biz-types lists them", cmd.CommandPath())
	}
	return nil
}

func (r *remote) showBizType(out io.Writer, b client.BizType) error {
	_, err := fmt.Fprintf(out, "%s %s\n", oneLine(b.Name), r.pauseText(b.Paused))
	return err
}

func (r *remote) showBizTypes(out io.Writer, list []client.BizType) error {
	w := newTable(out)
	fmt.Fprintln(w, "ID\tNAME\tMODE\tPROCESSOR\tQUEUED\tRUNNING\tOVERDUE\tRETRYING\tPROMISED\tSTATE")
	for _, b := range list {
		promised := "-"
		if b.Overdue+b.Retrying > 0 {
			promised = time.Duration(b.OldestPromise*float64(time.Second)).Round(time.Second).String() + " ago"
		}
		state := r.pauseText(b.Paused)
		if b.Paused == nil && b.Retrying > 0 {
			state = "fails"
			if b.LastError != "" {
				state += ": " + oneLine(b.LastError)
			}
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", b.ID, oneLine(b.Name), b.Mode, oneLine(b.Processor), b.QueueDepth, b.Running,
			b.Overdue, b.Retrying, promised, state)
	}
	return w.Flush()
}

func (r *remote) pauseText(p *client.BizTypePause) string {
	if p == nil {
		return "runs"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "paused by %s since %s", oneLine(p.By), r.moment(p.Since.Time()))
	if until := r.moment(p.Until.Time()); until != "" {
		fmt.Fprintf(&text, " until %s", until)
	}
	if p.Reason != "" {
		fmt.Fprintf(&text, ": %s", oneLine(p.Reason))
	}
	return text.String()
}
