package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

func submitCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit --biz-type T --biz-id N (--in 30m | --at TIME)",
		Short: "Submit a task",
		Example: `  toc submit --biz-type order_close --biz-id 42 --in 30m
  toc submit --biz-type order_close --biz-id 42 --at 2026-01-02T15:04:05Z --dedup-key unpaid
  toc submit --biz-type order_close --biz-id 42 --in 1h --dedup-key unpaid --on-duplicate move
  toc submit --biz-type order_close --biz-id 42 --at 2026-01-02T15:04:05Z --past fire`,
		Args: noArguments,
	}
	r := remoteFlags(cmd, now)
	var s client.Submit
	bizTypeFlag(cmd, &s.BizType)
	bizID := bizIDFlag(cmd, requiredBizID)
	when := whenFlags(cmd)
	cmd.Flags().StringVar(&s.Attribute, "attribute", "", "handed to the processor; at most 4096 bytes")
	cmd.Flags().StringVar(&s.DedupKey, "dedup-key", "", "makes the submit safe to repeat; at most 64 bytes")
	cmd.Flags().StringVar(&s.OnDuplicate, "on-duplicate", "",
		"what becomes of the task that has this dedup key already: `keep, move or again` (default keep); again: a new task takes the key of one that has ended")
	timeoutFlag(cmd, &s.Timeout, "as its business type says")
	mustBeGiven(cmd, "biz-type", "biz-id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := when.check(cmd); err != nil {
			return err
		}
		switch {
		case !cmd.Flags().Changed("on-duplicate"):
		case s.OnDuplicate != client.Keep && s.OnDuplicate != client.Move && s.OnDuplicate != client.Again:
			return usage("--on-duplicate %q: give keep, move or again", s.OnDuplicate)
		case s.DedupKey == "":
			return usage("--on-duplicate needs a --dedup-key")
		}
		s.BizID, s.BizKey, s.ActionTime, s.Delay, s.Now = bizID.Number, bizID.Key, when.at, when.in, true // --in 0s
		s.Past = when.past
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Submitted, error) {
			got, err := c.Submit(ctx, s)
			if got.Duplicate {
				r.duplicate = true
				became := "is unchanged"
				if s.OnDuplicate == client.Move {
					became = "was moved"
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "This dedup_key is known: its task was already there, and %s.\n", became)
			}
			return got, err
		}, func(w io.Writer, got client.Submitted) error { return r.showTask(w, got.Task) })
	}
	return cmd
}

// orKey stands for an ID or a key in a command's usage.
const orKey = "(ID | --biz-type T --biz-id N --dedup-key K)"

func getCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "get " + orKey, Short: "Show a task"}
	r, ref := remoteFlags(cmd, now), referenceFlags(cmd)
	return asking(cmd, r, ref.get, r.showTask)
}

func whyCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "why " + orKey, Short: "Tell where a task waits, what holds it, and which runs have failed"}
	r, ref := remoteFlags(cmd, now), referenceFlags(cmd)
	return asking(cmd, r, ref.why, r.showWhy)
}

func cancelCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel " + orKey,
		Short: "Cancel a pending task",
		Long: `Cancel a pending task: once this has succeeded it never fires. A task that is
running now, processed, cancelled or dead is refused (exit code 1).`,
	}
	r, ref := remoteFlags(cmd, now), referenceFlags(cmd)
	ifMatchFlag(cmd, &ref.ifMatch)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (*reference, error) { return ref, ref.cancel(ctx, c) },
		func(w io.Writer, ref *reference) error {
			_, err := fmt.Fprintln(w, "cancelled", ref)
			return err
		})
}

func rescheduleCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reschedule " + orKey + " [--in 30m | --at TIME]",
		Short: "Move a pending task to another time, or give it another attribute or time-out",
	}
	r, ref := remoteFlags(cmd, now), referenceFlags(cmd)
	ifMatchFlag(cmd, &ref.ifMatch)
	when := whenFlags(cmd)
	attribute := cmd.Flags().String("attribute", "", "replaces the task's attribute")
	var change client.Change
	timeoutFlag(cmd, &change.Timeout, "as it is")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch flags := cmd.Flags(); {
		case flags.Changed("in") || flags.Changed("at"):
			if err := when.check(cmd); err != nil {
				return err
			}
		case !flags.Changed("attribute") && !flags.Changed("timeout"):
			return usage("nothing to change; give --in or --at, --attribute, or --timeout")
		}
		change.ActionTime, change.Past = when.at, when.past
		if cmd.Flags().Changed("in") {
			change.Delay = &when.in
		}
		if cmd.Flags().Changed("attribute") {
			change.Attribute = attribute
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Task, error) {
			return ref.reschedule(ctx, c, change)
		}, r.showTask)
	}
	return cmd
}

func redriveCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive ID",
		Short: "Give a dead task a fresh start, due now (many: toc dead redrive)",
		Args:  oneArgument,
	}
	r := remoteFlags(cmd, now)
	var ifMatch string
	ifMatchFlag(cmd, &ifMatch)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Task, error) {
			return c.Redrive(ctx, id, conditions(ifMatch)...)
		}, r.showTask)
	}
	return cmd
}

func forecastCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "forecast", Short: "Show how many tasks are due when", Args: noArguments}
	r := remoteFlags(cmd, now)
	var q client.AskForecast
	bizTypeFlag(cmd, &q.BizType)
	cmd.Flags().DurationVar(&q.Step, "step", time.Minute, "length of a bucket, in whole seconds")
	cmd.Flags().DurationVar(&q.Span, "span", 2*time.Hour, "how far ahead: at most 744h, and 1500 steps")
	addCheck(cmd, func([]string) error {
		if q.Step <= 0 || q.Span <= 0 {
			return usage("--step %s --span %s: give more than 0", q.Step, q.Span)
		}
		return nil
	})
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (client.Forecast, error) { return c.Forecast(ctx, q) }, r.showForecast)
}

func listCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the tasks of a biz_id, or by type, status and time", Args: flagInstead("--biz-id")}
	r := remoteFlags(cmd, now)
	var q client.List
	var from, to time.Time
	bizID := bizIDFlag(cmd, "the business's own id, a `number or text`; without it, the pending tasks of all tables")
	timeFlag(cmd, &from, "from", "without --biz-id: due at this `time` or later, like 2026-01-02T15:04:05Z")
	timeFlag(cmd, &to, "to", "without --biz-id: due before this `time`")
	bizTypeFlag(cmd, &q.BizType)
	cmd.Flags().StringVar(&q.Status, "status", "", "only those that are pending, processed, cancelled or dead")
	pageFlags(cmd, &q.Limit, &q.Cursor)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("status") {
			if _, err := task.ParseStatus(q.Status); err != nil {
				return usage("--%w", err)
			}
		}
		ofBizID := cmd.Flags().Changed("biz-id")
		if ofBizID && (!from.IsZero() || !to.IsZero()) {
			return usage("--from and --to do not go together with --biz-id")
		}
		q.BizID, q.BizKey = bizID.Number, bizID.Key
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Page, error) {
			if ofBizID {
				return c.List(ctx, q)
			}
			return c.ListAll(ctx, client.ListAll{BizType: q.BizType, Status: q.Status, From: from, To: to, Limit: q.Limit, Cursor: q.Cursor})
		}, r.showPage)
	}
	return cmd
}
