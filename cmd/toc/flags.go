package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// mustBeGiven marks flags as required. A name that is no flag is a mistake in this
// program.
func mustBeGiven(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}

// addCheck adds a check of a flag, which is made before the command runs.
func addCheck(cmd *cobra.Command, check func(args []string) error) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if before == nil {
			return check(args)
		}
		return errors.Join(before(cmd, args), check(args))
	}
}

// notEmpty refuses an empty flag: it comes from a variable that is not set, and must not mean all.
func notEmpty(cmd *cobra.Command, flag string, value *string, instead string) {
	addCheck(cmd, func([]string) error {
		if *value == "" && cmd.Flags().Changed(flag) {
			return usage("--%s is empty; %s", flag, instead)
		}
		return nil
	})
}

// jobID reads an ID argument.
func jobID(arg string) (uint64, error) {
	id, err := api.ParseID(arg)
	if err != nil {
		return 0, usageError{err}
	}
	return uint64(id), nil
}

func bizIDFlag(cmd *cobra.Command, text string) *client.BizID {
	id := new(client.BizID)
	cmd.Flags().TextVar(id, "biz-id", client.BizID{}, text)
	cmd.Flags().Lookup("biz-id").DefValue = "" // there is none
	return id
}

// requiredBizID is what --biz-id says of itself where it must be given.
const requiredBizID = "the business's own id, a `number or text` (required)"

// timeoutFlag adds --timeout; otherwise is what is without it.
func timeoutFlag(cmd *cobra.Command, timeout *time.Duration, otherwise string) {
	cmd.Flags().DurationVar(timeout, "timeout", 0, "how long one run may take, 1ms to 24h (default: "+otherwise+")")
	addCheck(cmd, func([]string) error {
		if cmd.Flags().Changed("timeout") && (*timeout < task.MinTimeout || *timeout > task.MaxTimeout) {
			return usage("--timeout %s: give 1ms to 24h", *timeout)
		}
		return nil
	})
}

func bizTypeFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "biz-type", "", "`name` of the business type")
	notEmpty(cmd, "biz-type", name, "give the name of a business type")
}

func pageFlags(cmd *cobra.Command, limit *int, cursor *string) {
	limitFlag(cmd, limit, "at most this many: 1 to 1000")
	cmd.Flags().StringVar(cursor, "cursor", "", "go on after the page before: what it said")
}

func limitFlag(cmd *cobra.Command, limit *int, text string) {
	cmd.Flags().IntVar(limit, "limit", 100, text)
	checkRange(cmd, "limit", limit, 1, 1000)
}

// checkRange refuses a number that is not from least to most.
func checkRange(cmd *cobra.Command, name string, n *int, least, most int) {
	addCheck(cmd, func([]string) error {
		if *n < least || *n > most {
			return usage("--%s %d: give %d to %d", name, *n, least, most)
		}
		return nil
	})
}

// rateFlag adds --rate, which may be left out.
func rateFlag(cmd *cobra.Command, perSecond *float64, text string) {
	cmd.Flags().Float64Var(perSecond, "rate", 0, text)
	addCheck(cmd, func([]string) error {
		if !(*perSecond > 0) && cmd.Flags().Changed("rate") {
			return usage("--rate %v: give more than 0 tasks a second; leave it out for all at once", *perSecond)
		}
		return nil
	})
}

// when is the moment that --in or --at gives, and what --past says of one that has passed.
type when struct {
	in   time.Duration
	at   time.Time
	past string
}

func whenFlags(cmd *cobra.Command) *when {
	w := &when{}
	cmd.Flags().Func("in", "how long from now, a `duration` like 90s, 30m or 1h30m", w.setIn)
	timeFlag(cmd, &w.at, "at", "when, a `time` like 2026-01-02T15:04:05Z")
	cmd.Flags().StringVar(&w.past, "past", "",
		"what becomes of an --at more than 5 s ago: `fire or refuse` (default refuse); fire: the task is due at once")
	return w
}

func (w *when) setIn(text string) (err error) {
	if w.in, err = time.ParseDuration(text); err == nil {
		return nil
	}
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return fmt.Errorf("write %sm or %ss", text, text)
	}
	return errors.New("write a duration like 90s, 30m or 1h30m; a day is 24h")
}

func timeFlag(cmd *cobra.Command, at *time.Time, name, text string) {
	cmd.Flags().Func(name, text, func(value string) (err error) {
		if *at, err = time.Parse(time.RFC3339, strings.TrimSpace(value)); err != nil {
			return errors.New("write day, time and zone (RFC 3339), like 2026-01-02T15:04:05Z or 2026-01-02T16:04:05+01:00")
		}
		return nil
	})
}

// check asks for exactly one of the two.
func (w *when) check(cmd *cobra.Command) error {
	in, at := cmd.Flags().Changed("in"), cmd.Flags().Changed("at")
	switch {
	case in == at:
		return usage("give either --in, like 30m, or --at, like 2026-01-02T15:04:05Z")
	case w.in < 0:
		return usage("--in %s: give 0s or more", w.in)
	case cmd.Flags().Changed("past") && w.past != client.Fire && w.past != client.Refuse:
		return usage("--past %q: give fire or refuse", w.past)
	case at && w.at.IsZero(): // none, for a client
		return usage("--at %s: this is long past", w.at.Format(time.RFC3339))
	}
	return nil
}

// reference names one task: by its ID argument, or by the key of its submit.
type reference struct {
	id    uint64
	key   client.Key
	byKey bool

	bizID   *client.BizID
	ifMatch string
}

// referenceFlags adds --biz-type, --biz-id and --dedup-key, instead of which there
// may be one argument, the ID.
func referenceFlags(cmd *cobra.Command) *reference {
	r := &reference{bizID: bizIDFlag(cmd, "the task's biz_id, a `number or text`, instead of an ID")}
	cmd.Args = cobra.MaximumNArgs(1)
	bizTypeFlag(cmd, &r.key.BizType)
	cmd.Flags().StringVar(&r.key.DedupKey, "dedup-key", "", "the `key` of its submit, instead of an ID")
	addCheck(cmd, func(args []string) error { return r.check(cmd, args) })
	return r
}

// ifMatchFlag adds --if-match.
func ifMatchFlag(cmd *cobra.Command, tag *string) {
	cmd.Flags().StringVar(tag, "if-match", "", "only if the task is still as it was: the `tag` that toc get has shown")
	notEmpty(cmd, "if-match", tag, "give the tag that toc get has shown")
}

// check asks for an ID or a whole key.
func (r *reference) check(cmd *cobra.Command, args []string) (err error) {
	given := 0
	for _, name := range []string{"biz-type", "biz-id", "dedup-key"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	switch {
	case len(args) == 1 && given == 0:
		r.id, err = jobID(args[0])
		return err
	case len(args) == 0 && given == 3:
		r.byKey, r.key.BizID, r.key.BizKey = true, r.bizID.Number, r.bizID.Key
		if r.key.DedupKey == "" {
			return usage("--dedup-key is empty; give the key of the submit")
		}
		return nil
	}
	return usage("give either an ID, or --biz-type, --biz-id and --dedup-key")
}

// String is the reference for people.
func (r *reference) String() string {
	if r.byKey {
		return oneLine(fmt.Sprintf("%s %s %s", r.key.BizType, r.bizID, r.key.DedupKey))
	}
	return client.ID(r.id).String()
}

func (r *reference) get(ctx context.Context, c *client.Client) (client.Task, error) {
	if r.byKey {
		return c.GetByKey(ctx, r.key)
	}
	return c.Get(ctx, r.id)
}

func (r *reference) why(ctx context.Context, c *client.Client) (client.Why, error) {
	if r.byKey {
		return c.WhyByKey(ctx, r.key)
	}
	return c.Why(ctx, r.id)
}

func (r *reference) cancel(ctx context.Context, c *client.Client) error {
	if r.byKey {
		return c.CancelByKey(ctx, r.key, conditions(r.ifMatch)...)
	}
	return c.Cancel(ctx, r.id, conditions(r.ifMatch)...)
}

func (r *reference) reschedule(ctx context.Context, c *client.Client, change client.Change) (client.Task, error) {
	if r.byKey {
		return c.RescheduleByKey(ctx, r.key, change, conditions(r.ifMatch)...)
	}
	return c.Reschedule(ctx, r.id, change, conditions(r.ifMatch)...)
}

func conditions(ifMatch string) []client.ChangeOption {
	if ifMatch == "" {
		return nil
	}
	return []client.ChangeOption{client.IfMatch(ifMatch)}
}

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

// unknownFlag says where the flags of a command are listed. Other mistakes say what would be right.
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
