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
  toc submit --biz-type order_close --biz-id 42 --at 2026-01-02T15:04:05Z --dedup-key unpaid`,
		Args: cobra.NoArgs,
	}
	r := remoteFlags(cmd, now)
	var s client.Submit
	bizTypeFlag(cmd, &s.BizType)
	bizID := bizIDFlag(cmd)
	when := whenFlags(cmd)
	cmd.Flags().StringVar(&s.Attribute, "attribute", "", "handed to the processor; at most 4096 bytes")
	cmd.Flags().StringVar(&s.DedupKey, "dedup-key", "", "makes the submit safe to repeat; at most 64 bytes")
	mustBeGiven(cmd, "biz-type", "biz-id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := when.check(cmd); err != nil {
			return err
		}
		if err := checkBizType(cmd, s.BizType); err != nil {
			return err
		}
		s.BizID, s.ActionTime, s.Delay = uint64(*bizID), when.at, when.in
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Submitted, error) {
			return c.Submit(ctx, s)
		}, func(w io.Writer, got client.Submitted) error {
			if got.Duplicate {
				fmt.Fprintln(cmd.ErrOrStderr(), "This dedup_key is known; here is the first task, unchanged.")
			}
			return r.showTask(w, got.Task)
		})
	}
	return cmd
}

func getCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Show a task", Args: cobra.ExactArgs(1)}
	r := remoteFlags(cmd, now)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Task, error) { return c.Get(ctx, id) }, r.showTask)
	}
	return cmd
}

func cancelCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a pending task",
		Long: `Cancel a pending task: once this has succeeded it never fires. A task that is
running now, processed, cancelled or dead is refused (exit code 1).`,
		Args: cobra.ExactArgs(1),
	}
	r := remoteFlags(cmd, now)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (uint64, error) { return id, c.Cancel(ctx, id) },
			func(w io.Writer, id uint64) error {
				_, err := fmt.Fprintln(w, "cancelled", id)
				return err
			})
	}
	return cmd
}

func rescheduleCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reschedule ID (--in 30m | --at TIME)",
		Short: "Move a pending task to another time",
		Args:  cobra.ExactArgs(1),
	}
	r := remoteFlags(cmd, now)
	when := whenFlags(cmd)
	attribute := cmd.Flags().String("attribute", "", "replaces the task's attribute")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		if err := when.check(cmd); err != nil {
			return err
		}
		change := client.Change{ActionTime: when.at}
		if cmd.Flags().Changed("in") {
			change.Delay = &when.in
		}
		if cmd.Flags().Changed("attribute") {
			change.Attribute = attribute
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Task, error) {
			return c.Reschedule(ctx, id, change)
		}, r.showTask)
	}
	return cmd
}

func redriveCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive ID",
		Short: "Give a dead task a fresh start, due now (many: toc dead redrive)",
		Args:  cobra.ExactArgs(1),
	}
	r := remoteFlags(cmd, now)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Task, error) { return c.Redrive(ctx, id) }, r.showTask)
	}
	return cmd
}

func listCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "list --biz-id N", Short: "List the tasks of a biz_id", Args: cobra.NoArgs}
	r := remoteFlags(cmd, now)
	var q client.List
	bizID := bizIDFlag(cmd)
	bizTypeFlag(cmd, &q.BizType)
	cmd.Flags().StringVar(&q.Status, "status", "", "only those that are pending, processed, cancelled or dead")
	pageFlags(cmd, &q.Limit, &q.Cursor)
	mustBeGiven(cmd, "biz-id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("status") {
			if _, err := task.ParseStatus(q.Status); err != nil {
				return usage("--%w", err)
			}
		}
		if err := checkPage(cmd, q.BizType, q.Limit); err != nil {
			return err
		}
		q.BizID = uint64(*bizID)
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Page, error) { return c.List(ctx, q) }, r.showPage)
	}
	return cmd
}
