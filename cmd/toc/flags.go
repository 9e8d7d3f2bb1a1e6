package main

import (
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
}

func checkTimeout(cmd *cobra.Command, timeout time.Duration) error {
	if cmd.Flags().Changed("timeout") && (timeout < task.MinTimeout || timeout > task.MaxTimeout) {
		return usage("--timeout %s: give 1ms to 24h", timeout)
	}
	return nil
}

func bizTypeFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "biz-type", "", "`name` of the business type")
}

// checkBizType refuses an empty name: it comes from a variable that is not set,
// and must not mean all.
func checkBizType(cmd *cobra.Command, name string) error {
	if name == "" && cmd.Flags().Changed("biz-type") {
		return usage("--biz-type is empty; give the name of a business type")
	}
	return nil
}

func pageFlags(cmd *cobra.Command, limit *int, cursor *string) {
	cmd.Flags().IntVar(limit, "limit", 100, "at most this many: 1 to 1000")
	cmd.Flags().StringVar(cursor, "cursor", "", "go on after the page before: what it said")
}

func checkPage(cmd *cobra.Command, bizType string, limit int) error {
	if limit < 1 || limit > 1000 {
		return usage("--limit %d: give 1 to 1000", limit)
	}
	return checkBizType(cmd, bizType)
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
	cmd.Flags().Func("at", "when, a `time` like 2026-01-02T15:04:05Z", w.setAt)
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

func (w *when) setAt(text string) error { return setTime(&w.at, text) }

func timeFlag(cmd *cobra.Command, at *time.Time, name, text string) {
	cmd.Flags().Func(name, text, func(value string) error { return setTime(at, value) })
}

func setTime(at *time.Time, text string) (err error) {
	if *at, err = time.Parse(time.RFC3339, strings.TrimSpace(text)); err != nil {
		return errors.New("write day, time and zone (RFC 3339), like 2026-01-02T15:04:05Z or 2026-01-02T16:04:05+01:00")
	}
	return nil
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
