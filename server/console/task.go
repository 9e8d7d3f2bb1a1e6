package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

type taskBody struct {
	api.Task
	Why      api.Why
	Story    []storyLine
	Late     string // how late it is, or was; empty: it is not
	Pending  bool
	Dead     bool
	IsMoved  bool // its action_time is not what was promised
	TypeIs   *task.BizType
	MostRuns int    // of its type
	NewTime  string // what the form offers
}

// storyLine is a line of a task's story.
type storyLine struct {
	At   time.Time
	What string
	Text string // more of it
	Mood string
}

func (c *Console) task(r *http.Request) (*page, error) {
	jobID, err := id(r, "job_id")
	if err != nil {
		return nil, err
	}
	p, err := c.taskPage(r.Context(), jobID)
	if err == nil {
		p.Did = didTask[r.URL.Query().Get("did")]
	}
	return p, err
}

// didTask says what was done to a task.
var didTask = map[string]string{
	"cancel":     "The task is cancelled: it never fires.",
	"reschedule": "The task is rescheduled.",
	"run-now":    "The task is due now.",
	"redrive":    "The task is redriven: it is pending, and due now.",
}

func (c *Console) taskPage(ctx context.Context, jobID uint64) (*page, error) {
	t, err := c.center.Get(ctx, jobID)
	if err != nil {
		return nil, err
	}
	b := &taskBody{Task: t, Pending: t.Status == task.Pending.String(), Dead: t.Status == task.Dead.String()}
	if kind, ok := c.center.Types().ByName(t.BizType); ok {
		b.TypeIs, b.MostRuns = &kind, kind.MaxRetries+1
	}
	if b.Why, err = c.center.Why(ctx, jobID); err != nil {
		b.Why = api.Why{Because: []string{"nobody can say now: " + err.Error()}}
	}
	b.buildTimeline(c.cfg.Now())
	return &page{Name: "task", Title: "Task " + b.JobID.String(), Body: b}, nil
}

// buildTimeline makes the story of a task from its row.
func (b *taskBody) buildTimeline(now time.Time) {
	add := func(at time.Time, mood, what, text string) {
		if at.After(now) {
			mood = "future"
		}
		b.Story = append(b.Story, storyLine{at, what, text, mood})
	}
	t := &b.Task
	status, _ := task.ParseStatus(t.Status)
	promised, modified := t.DueTime.Time(), t.Modified.Time()
	b.IsMoved = !promised.Equal(t.ActionTime.Time())
	add(t.Created.Time(), "", "Submitted", "")
	lastError, isTold := b.addRuns(add)
	add(promised, "", "Due: the promised time", "")
	tries := plural(t.Attempts, "failed run", "failed runs")
	if b.TypeIs != nil {
		tries += fmt.Sprintf(" of at most %d", b.MostRuns)
	}
	isReason := lastError == "expired" || lastError == "coalesced" || strings.HasPrefix(lastError, "discarded") // of a cancel that no person asked for
	switch {
	case isTold || b.Dead || status == task.Cancelled && isReason || t.Attempts == 0 && lastError == "":
	case b.Pending:
		add(modified, "warn", "Last change: "+tries, lastError)
	default:
		add(time.Time{}, "warn", tries, lastError)
	}
	switch status {
	case task.Pending:
		b.addPending(now, add)
	case task.Processed:
		add(modified, "ok", "Processed, and recorded", "")
		b.Late = fmt.Sprintf("Recorded as processed %s after the promised time, its run included.", span(max(0, modified.Sub(promised))))
	case task.Cancelled:
		if !isReason {
			lastError = ""
		}
		add(modified, "", "Cancelled: it never fires", lastError)
	case task.Dead:
		add(modified, "bad", "Dead, after "+tries, lastError)
	}
	slices.SortStableFunc(b.Story, func(x, y storyLine) int {
		if x.At.IsZero() || y.At.IsZero() {
			return 0
		}
		return x.At.Compare(y.At)
	})
	if b.NewTime = forInput(now); t.ActionTime.Time().After(now) {
		b.NewTime = forInput(t.ActionTime.Time())
	}
}

// addRuns adds each failed run that the row still has. It returns the last error, empty if it is that of the last run added,
// and whether attempts and last_error say nothing beyond this run.
func (b *taskBody) addRuns(add func(at time.Time, mood, what, text string)) (lastError string, isTold bool) {
	lastError = b.LastError
	var before int
	for i, r := range b.Why.FailedRuns {
		what := fmt.Sprintf("Run %d failed", r.Attempt)
		switch last := i == len(b.Why.FailedRuns)-1; {
		case i == 0 && r.Attempt > 1:
			what += "; the errors of earlier runs are not kept"
		case i > 0 && r.Attempt <= before:
			what += ", counted anew"
		case last && r.Attempt == b.Attempts && b.TypeIs != nil && !b.Dead:
			what = fmt.Sprintf("Run %d of at most %d failed", r.Attempt, b.MostRuns)
		}
		add(r.At.Time(), "warn", what, r.Error)
		before, isTold = r.Attempt, r.Attempt == b.Attempts && r.Error == b.LastError
		if lastError = b.LastError; r.Error == lastError {
			lastError = ""
		}
	}
	return lastError, isTold
}

func (b *taskBody) addPending(now time.Time, add func(at time.Time, mood, what, text string)) {
	if b.Running != nil {
		where := "on node " + b.Running.Node
		if b.Running.Node == "" {
			where = "by a consumer, who has leased it until " + b.Running.Until.String()
		}
		add(b.Running.Since.Time(), "ok", "Runs now, "+where, "")
		return
	}
	if b.IsMoved {
		what := "Runs again at this time"
		if b.Attempts == 0 {
			what = "Runs at this time"
		}
		add(b.ActionTime.Time(), "", what, "")
	}
	if late := now.Sub(b.DueTime.Time()); late > 0 {
		b.Late = fmt.Sprintf("It is late: promised %s ago.", span(late))
	}
}

// ifMatch is the state of the task that somebody has seen; without it there is no condition.
func (f *form) ifMatch() []api.ChangeOption {
	etag := f.text("if_match")
	if etag == "" {
		return nil
	}
	if _, err := api.ParseIfMatch([]string{etag}); err != nil {
		f.wrong("if_match", "%v", err)
	}
	return []api.ChangeOption{func(c *api.Condition) { c.IfMatch = []string{etag} }}
}

type confirmBody struct {
	Question string
	Explain  []string
	Button   string
	Action   string
	Fields   url.Values
	Back     string
	Keep     string // the way back in words
	Danger   bool
}

func (c *Console) askCancel(r *http.Request) (*page, error) {
	jobID, err := id(r, "job_id")
	if err != nil {
		return nil, err
	}
	t, err := c.center.Get(r.Context(), jobID)
	if err != nil {
		return nil, err
	}
	at := taskPath(jobID)
	return &page{Name: "confirm", Title: "Cancel task " + strconv.FormatUint(jobID, 10), Body: confirmBody{
		Question: "Cancel this task?",
		Explain: []string{fmt.Sprintf("It is of type %s, with biz_id %s, and is due at %s.", t.BizType, t.BizID, t.ActionTime),
			"A cancelled task never fires. There is no way back."},
		Button: "Cancel", Action: at + "/cancel", Back: at, Keep: "Keep the task", Danger: true, Fields: url.Values{"if_match": {t.ETag}},
	}}, nil
}

func taskPath(jobID uint64) string { return "/console/tasks/" + strconv.FormatUint(jobID, 10) }

// change makes a change of a task. What it was is in the audit, also where the API's would not be: this is a person's act.
func (c *Console) change(r *http.Request, did string,
	act func(ctx context.Context, jobID uint64, f *form, ifMatch []api.ChangeOption) (store.AuditEntry, error)) (*page, error) {
	jobID, err := id(r, "job_id")
	if err != nil {
		return nil, err
	}
	f := formOf(r)
	var entry store.AuditEntry
	ifMatch := f.ifMatch()
	if err = f.err; err == nil {
		entry, err = act(r.Context(), jobID, f, ifMatch)
	}
	if err != nil {
		p, _ := c.taskPage(r.Context(), jobID)
		return p, err
	}
	if entry.Action != "" {
		entry.Actor, entry.Target, entry.Count = intake.ByConsole, strconv.FormatUint(jobID, 10), 1
		c.center.Record(r.Context(), entry)
	}
	return see(taskPath(jobID) + "?did=" + did), nil
}

func (c *Console) cancel(r *http.Request) (*page, error) {
	return c.change(r, "cancel", func(ctx context.Context, jobID uint64, f *form, ifMatch []api.ChangeOption) (store.AuditEntry, error) {
		return store.AuditEntry{Action: "cancel"}, c.center.Cancel(ctx, jobID, ifMatch...)
	})
}

func (c *Console) reschedule(r *http.Request) (*page, error) {
	return c.change(r, "reschedule", func(ctx context.Context, jobID uint64, f *form, ifMatch []api.ChangeOption) (store.AuditEntry, error) {
		change := api.Change{ActionTime: f.time("action_time")}
		if delay := f.duration("delay"); f.text("delay") != "" {
			change = api.Change{Delay: &delay}
		}
		if change == (api.Change{}) {
			f.wrong("action_time", "is missing; give a time, or a delay")
		}
		if f.err != nil {
			return store.AuditEntry{}, f.err
		}
		return c.moveTo(ctx, jobID, change, ifMatch, "")
	})
}

func (c *Console) runNow(r *http.Request) (*page, error) {
	return c.change(r, "run-now", func(ctx context.Context, jobID uint64, f *form, ifMatch []api.ChangeOption) (store.AuditEntry, error) {
		return c.moveTo(ctx, jobID, api.Change{Delay: new(time.Duration)}, ifMatch, "run now, ")
	})
}

func (c *Console) moveTo(ctx context.Context, jobID uint64, change api.Change, ifMatch []api.ChangeOption,
	how string) (store.AuditEntry, error) {
	t, err := c.center.Reschedule(ctx, jobID, change, ifMatch...)
	return store.AuditEntry{Action: "reschedule", Detail: how + "to " + t.ActionTime.String()}, err
}

func (c *Console) redrive(r *http.Request) (*page, error) {
	return c.change(r, "redrive", func(ctx context.Context, jobID uint64, f *form, ifMatch []api.ChangeOption) (none store.AuditEntry, err error) {
		_, err = c.center.Redrive(ctx, jobID, ifMatch...) // which writes the audit itself
		return none, err
	})
}
