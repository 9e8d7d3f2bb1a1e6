package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
)

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
	return r
}

// ifMatchFlag adds --if-match.
func ifMatchFlag(cmd *cobra.Command, tag *string) {
	cmd.Flags().StringVar(tag, "if-match", "", "only if the task is still as it was: the `tag` that toc get has shown")
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
		return checkBizType(cmd, r.key.BizType)
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

// checkIfMatch refuses an empty tag: it comes from a variable that is not set, and
// must not mean any state.
func checkIfMatch(cmd *cobra.Command, tag string) error {
	if tag == "" && cmd.Flags().Changed("if-match") {
		return usage("--if-match is empty; give the tag that toc get has shown")
	}
	return nil
}
