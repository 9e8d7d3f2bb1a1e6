package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
)

func deadCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List and redrive dead tasks",
		Long:  "List and redrive dead tasks: those whose retries are used up, and those that would have started too late.",
		Args:  noArguments,
		RunE:  func(*cobra.Command, []string) error { return usage("use: toc dead list, or: toc dead redrive") },
	}
	cmd.AddCommand(deadListCommand(now), deadRedriveCommand(now))
	return cmd
}

func deadListCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List dead tasks", Args: noArguments}
	r := remoteFlags(cmd, now)
	var q client.ListDead
	bizTypeFlag(cmd, &q.BizType)
	pageFlags(cmd, &q.Limit, &q.Cursor)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkPage(cmd, q.BizType, q.Limit); err != nil {
			return err
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Page, error) { return c.ListDead(ctx, q) }, r.showPage)
	}
	return cmd
}

func deadRedriveCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Give dead tasks a fresh start, due now",
		Args:  noArguments,
	}
	r := remoteFlags(cmd, now)
	r.patient = true // a million tasks take a while
	var asked client.RedriveDead
	bizTypeFlag(cmd, &asked.BizType)
	cmd.Flags().IntVar(&asked.Limit, "limit", 0, "at most this many (default: all)")
	cmd.Flags().BoolVar(&asked.DryRun, "dry-run", false, "count only, change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkBizType(cmd, asked.BizType); err != nil {
			return err
		}
		if asked.Limit < 1 && cmd.Flags().Changed("limit") {
			return usage("--limit %d: give 1 or more; leave it out for all", asked.Limit)
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (client.Redriven, error) {
			return c.RedriveDead(ctx, asked)
		}, func(w io.Writer, got client.Redriven) error {
			note := ""
			if asked.DryRun {
				note = " (dry run)"
			}
			_, err := fmt.Fprintf(w, "matched %d, redriven %d%s\n", got.Matched, got.Redriven, note)
			return err
		})
	}
	return cmd
}
