package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/timeoutcenter/toc/client"
)

// newTable aligns the columns of what is written to it, which tabs separate.
func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// writeList writes a line for each element of a list, below its head; only none if there is no element.
func writeList[T any](out io.Writer, none, head string, list []T, line func(T) string) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, none)
		return err
	}
	w := newTable(out)
	fmt.Fprintln(w, head)
	for _, one := range list {
		fmt.Fprintln(w, line(one))
	}
	return w.Flush()
}

// showTask writes a task, one column a line.
func (r *remote) showTask(out io.Writer, t client.Task) error {
	w := newTable(out)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("job_id", t.JobID.String())
	line("biz_type", oneLine(t.BizType))
	line("biz_id", oneLine(t.BizID.String()))
	line("status", t.Status)
	line("action_time", r.moment(t.ActionTime.Time()))
	if t.DueTime != t.ActionTime {
		line("due_time", r.moment(t.DueTime.Time()))
	}
	if t.Running != nil {
		text := fmt.Sprintf("on %s since %s", oneLine(t.Running.Node), r.moment(t.Running.Since.Time()))
		if until := t.Running.Until.Time(); !until.IsZero() {
			text = fmt.Sprintf("leased by a consumer until %s", r.moment(until))
		}
		line("running", text)
	}
	if t.Timeout != 0 {
		line("timeout", t.Timeout.String())
	}
	line("attribute", oneLine(t.Attribute))
	line("attempts", strconv.Itoa(t.Attempts))
	line("last_error", oneLine(t.LastError))
	line("dedup_key", oneLine(t.DedupKey))
	line("gmt_create", r.moment(t.Created.Time()))
	line("gmt_modified", r.moment(t.Modified.Time()))
	line("etag", oneLine(strings.Trim(t.ETag, `"`)))
	return w.Flush()
}

// showWhy writes where a task waits, the reasons, and the failed runs, one a line.
func (r *remote) showWhy(out io.Writer, y client.Why) error {
	w := newTable(out)
	fmt.Fprintf(w, "state\t%s\nwhere\t%s\nnode\t%s\n", oneLine(y.State), oneLine(y.Where), oneLine(y.Node))
	if next := r.moment(y.Next.Time()); next != "" {
		fmt.Fprintf(w, "next\t%s\n", next)
	}
	name := "because"
	for _, text := range y.Because {
		fmt.Fprintf(w, "%s\t%s\n", name, oneLine(text))
		name = ""
	}
	name = "failed runs"
	for _, run := range y.FailedRuns {
		fmt.Fprintf(w, "%s\t%d at %s: %s\n", name, run.Attempt, r.moment(run.At.Time()), orDash(run.Error))
		name = ""
	}
	return w.Flush()
}

// showPage writes tasks, one a line.
func (r *remote) showPage(out io.Writer, p client.Page) error {
	const head = "JOB_ID\tBIZ_TYPE\tBIZ_ID\tSTATUS\tACTION_TIME\tATTEMPTS\tLAST_ERROR"
	err := writeList(out, "(no tasks)", head, p.Tasks, func(t client.Task) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s", t.JobID, oneLine(t.BizType), oneLine(t.BizID.String()), t.Status,
			r.moment(t.ActionTime.Time()), t.Attempts, orDash(t.LastError))
	})
	if err != nil || len(p.Tasks) == 0 {
		return err
	}
	more := ""
	if p.NextCursor != "" {
		more = "; there are more: --cursor " + p.NextCursor
	}
	_, err = fmt.Fprintf(out, "(%s%s)\n", count(len(p.Tasks), "task"), more)
	return err
}

// showGroups writes groups of dead tasks, one a line.
func (r *remote) showGroups(out io.Writer, g client.DeadGroups) error {
	err := writeList(out, "(no dead tasks)", "COUNT\tBIZ_TYPE\tNEWEST\tJOB_ID\tERROR", g.Groups, func(one client.DeadGroup) string {
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", one.Count, oneLine(one.BizType), r.moment(one.Newest.Time()), one.JobID, orDash(one.Error))
	})
	if err == nil && g.Partial {
		_, err = fmt.Fprintln(out, "(there are more)")
	}
	return err
}

// maxBar is the length of the longest bar of a forecast.
const maxBar = 40

// showForecast writes the buckets of a forecast, one a line with a bar, and the crowded seconds.
func (r *remote) showForecast(out io.Writer, f client.Forecast) error {
	if len(f.Buckets) == 0 {
		_, err := fmt.Fprintln(out, "(no pending task is due in that time)")
		return err
	}
	most := 0
	for _, b := range f.Buckets {
		most = max(most, b.Due)
	}
	w := newTable(out)
	fmt.Fprintf(w, "FROM (%s EACH)\tBIZ_TYPE\tDUE\t\n", time.Duration(f.StepSeconds)*time.Second)
	for _, b := range f.Buckets {
		bar := strings.Repeat("#", max(1, b.Due*maxBar/max(1, most)))
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", b.At, oneLine(b.BizType), b.Due, bar)
	}
	if len(f.Crowded) > 0 {
		fmt.Fprintln(w, "\nCROWDED SECOND\tBIZ_TYPE\tDUE\t")
	}
	for _, s := range f.Crowded {
		fmt.Fprintf(w, "%s\t%s\t%d\t\n", s.Second, oneLine(s.BizType), s.Due)
	}
	if f.Estimated {
		fmt.Fprintln(w, "(estimated: the tasks of some tables stand for all)")
	}
	return w.Flush()
}

// showAudit writes entries of the audit, one a line.
func (r *remote) showAudit(out io.Writer, p client.AuditPage) error {
	err := writeList(out, "(no entries)", "AT\tACTOR\tACTION\tTARGET\tCOUNT\tDETAIL", p.Entries, func(e client.AuditEntry) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", r.moment(e.At.Time()), oneLine(e.Actor), oneLine(e.Action), orDash(e.Target), e.Count,
			orDash(e.Detail))
	})
	if err == nil && p.NextCursor != "" {
		_, err = fmt.Fprintln(out, "(there may be more: --cursor "+p.NextCursor+")")
	}
	return err
}

func orDash(text string) string { return oneLine(cmp.Or(text, "-")) }

// moment writes a time in UTC and how far it is from now; "" for none.
func (r *remote) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format("2006-01-02T15:04:05.000Z"), relative(t.Sub(r.now())))
}

// relative says how far away something is, to a second: in 29m59s, 2s ago.
func relative(d time.Duration) string {
	ago := d < 0
	d = d.Abs()
	var text string
	switch {
	case d < time.Second:
		return "now"
	case d < 48*time.Hour:
		text = d.Truncate(time.Second).String()
	default:
		text = fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	if ago {
		return text + " ago"
	}
	return "in " + text
}

// oneLine keeps what a caller wrote from moving the terminal's cursor: what
// cannot be printed is escaped as in Go.
func oneLine(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
