package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
)

func deadCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, redrive and discard dead tasks",
		Long:  "List, group, redrive and discard dead tasks: those whose retries are used up, and those that would have started too late.",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("use: toc dead list, groups, redrive or discard\n\n%s", strings.TrimSpace(cmd.UsageString()))
		},
	}
	cmd.AddCommand(deadListCommand(now), deadGroupsCommand(now), deadRedriveCommand(now), deadDiscardCommand(now))
	return cmd
}

func deadListCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List dead tasks", Args: noArguments}
	r := remoteFlags(cmd, now)
	var q client.ListDead
	deadFlags(cmd, &q)
	pageFlags(cmd, &q.Limit, &q.Cursor)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (client.Page, error) { return c.ListDead(ctx, q) }, r.showPage)
}

// deadFlags adds the flags that select dead tasks.
func deadFlags(cmd *cobra.Command, q *client.ListDead) {
	bizTypeFlag(cmd, &q.BizType)
	cmd.Flags().StringVar(&q.Error, "error", "", "a `part` of last_error")
	timeFlag(cmd, &q.Since, "since", "died at this `time` or later, like 2026-01-02T15:04:05Z")
	timeFlag(cmd, &q.Until, "until", "died before this `time`")
}

func deadGroupsCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "groups", Short: "Sum up dead tasks by their error", Args: noArguments}
	r := remoteFlags(cmd, now)
	var bizType string
	bizTypeFlag(cmd, &bizType)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (client.DeadGroups, error) {
		return c.DeadGroups(ctx, bizType)
	}, r.showGroups)
}

func deadRedriveCommand(now func() time.Time) *cobra.Command {
	return deadChangeCommand(now, "redrive", "Give dead tasks a fresh start, due now", "redriven", (*client.Client).RedriveDead)
}

func deadDiscardCommand(now func() time.Time) *cobra.Command {
	cmd := deadChangeCommand(now, "discard", "Make dead tasks cancelled", "discarded", (*client.Client).DiscardDead)
	all := cmd.Flags().Bool("all", false, "all dead tasks, of every business type")
	addCheck(cmd, func([]string) error {
		given := func(names ...string) bool { return slices.ContainsFunc(names, cmd.Flags().Changed) }
		filtered := given("biz-type", "error", "since", "until")
		switch {
		case *all && filtered:
			return usage("--all goes with no --biz-type, --error, --since or --until")
		case !*all && !filtered && !given("limit", "rate", "dry-run"):
			return usage("say which dead tasks, by --biz-type, --error, --since or --until, or give --all; with --rate it can be undone")
		}
		return nil
	})
	return cmd
}

// showChanged writes how many tasks matched, and how many of them were changed, or the operation that changes them.
func showChanged(w io.Writer, done, note string, got api.Changed) error {
	matched, changed, operation := got.Counts()
	text := fmt.Sprintf("%s %d%s", done, changed, note)
	if operation != 0 {
		text = "operation " + operation.String()
	}
	_, err := fmt.Fprintf(w, "matched %d, %s\n", matched, text)
	return err
}

// deadChangeCommand is a command that changes the dead tasks that match; done is what they are then.
func deadChangeCommand[T api.Changed](now func() time.Time, name, short, done string,
	ask func(*client.Client, context.Context, client.RedriveDead) (T, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: noArguments}
	r := remoteFlags(cmd, now)
	r.patient = true // a million tasks take a while
	var q client.ListDead
	var rate float64
	deadFlags(cmd, &q)
	notEmpty(cmd, "error", &q.Error, "leave it out for all")
	cmd.Flags().IntVar(&q.Limit, "limit", 0, "at most this many (default: all)")
	rateFlag(cmd, &rate, "start an operation that changes so many a second; toc operations shows it")
	dryRun := cmd.Flags().Bool("dry-run", false, "count only, change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.Limit < 1 && cmd.Flags().Changed("limit") {
			return usage("--limit %d: give 1 or more; leave it out for all", q.Limit)
		}
		asked, note := q.Request(), ""
		if asked.Rate, asked.DryRun = rate, *dryRun; *dryRun {
			note = " (dry run)"
		}
		return call(cmd, r, func(ctx context.Context, c *client.Client) (T, error) { return ask(c, ctx, asked) },
			func(w io.Writer, got T) error { return showChanged(w, done, note, got) })
	}
	return cmd
}

func auditCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "List who did what", Args: noArguments}
	r := remoteFlags(cmd, now)
	var q client.Audit
	cmd.Flags().StringVar(&q.Actor, "actor", "", "only what this `one` did")
	cmd.Flags().StringVar(&q.Action, "action", "", "only this `action`, like redrive or discard")
	timeFlag(cmd, &q.From, "from", "at this `time` or later, like 2026-01-02T15:04:05Z")
	timeFlag(cmd, &q.To, "to", "before this `time`")
	pageFlags(cmd, &q.Limit, &q.Cursor)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (client.AuditPage, error) { return c.Audit(ctx, q) }, r.showAudit)
}

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
	cmd.AddCommand(
		operationCommand(now, "stop ID", "Stop an operation; what it has changed stays so", (*client.Client).StopOperation),
		operationCommand(now, "undo ID", "Take an operation back: what has not started since is dead again", (*client.Client).UndoOperation))
	return asking(cmd, r, func(ctx context.Context, c *client.Client) ([]client.Operation, error) {
		return c.Operations(ctx, limit)
	}, r.showOperations)
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
	const head = "ID\tKIND\tSTATE\tDONE\tSKIPPED\tMATCHED\tRATE\tSTARTED\tBY\tBIZ_TYPE\tERROR"
	return writeList(out, "(no operations)", head, list, func(o client.Operation) string {
		kind, rate := o.Kind, strconv.FormatFloat(o.Rate, 'g', -1, 64)
		if o.Undoes != 0 {
			kind, rate = kind+" of "+o.Undoes.String(), "-"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s", o.ID, oneLine(kind), oneLine(o.State), o.Done, o.Skipped, o.Matched,
			rate, r.moment(o.Started.Time()), oneLine(o.By), orDash(o.Filter.BizType), orDash(o.Filter.Error))
	})
}
