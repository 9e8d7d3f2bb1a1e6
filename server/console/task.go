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
	ETag     string
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
	t, err := c.desk.Get(ctx, jobID)
	if err != nil {
		return nil, err
	}
	b := &taskBody{Task: api.From(t, c.desk.Types().NameOf(t.BizType)), ETag: api.ETag(&t), Pending: t.Status == task.Pending,
		Dead: t.Status == task.Dead}
	if kind, ok := c.desk.Types().ByID(t.BizType); ok {
		b.TypeIs, b.MostRuns = &kind, kind.MaxRetries+1
	}
	if r, runs := c.desk.Running(ctx, t); runs {
		b.Running = r.Wire()
	}
	if b.Why, err = c.desk.Why(ctx, jobID); err != nil {
		b.Why = api.Why{Because: []string{"nobody can say now: " + err.Error()}}
	}
	b.buildTimeline(t, c.cfg.Now())
	return &page{Name: "task", Title: "Task " + b.JobID.String(), Body: b}, nil
}

// buildTimeline makes the story of a task from its row.
func (b *taskBody) buildTimeline(t task.Task, now time.Time) {
	add := func(at time.Time, mood, what, text string) {
		if at.After(now) {
			mood = "future"
		}
		b.Story = append(b.Story, storyLine{at, what, text, mood})
	}
	promised := t.Promised()
	b.IsMoved = !promised.Equal(t.ActionTime)
	add(t.Created, "", "Submitted", "")
	lastError, isTold := b.addRuns(t, add)
	add(promised, "", "Due: the promised time", "")
	tries := plural(t.Attempts, "failed run", "failed runs")
	if b.TypeIs != nil {
		tries += fmt.Sprintf(" of at most %d", b.MostRuns)
	}
	isReason := lastError == "expired" || lastError == "coalesced" || strings.HasPrefix(lastError, "discarded") // of a cancel that no person asked for
	switch {
	case isTold || t.Status == task.Dead || t.Status == task.Cancelled && isReason || t.Attempts == 0 && lastError == "":
	case t.Status == task.Pending:
		add(t.Modified, "warn", "Last change: "+tries, lastError)
	default:
		add(time.Time{}, "warn", tries, lastError)
	}
	switch t.Status {
	case task.Pending:
		b.tellPending(t, now, add)
	case task.Processed:
		add(t.Modified, "ok", "Processed, and recorded", "")
		b.Late = fmt.Sprintf("Recorded as processed %s after the promised time, its run included.", span(max(0, t.Modified.Sub(promised))))
	case task.Cancelled:
		if !isReason {
			lastError = ""
		}
		add(t.Modified, "", "Cancelled: it never fires", lastError)
	case task.Dead:
		add(t.Modified, "bad", "Dead, after "+tries, lastError)
	}
	slices.SortStableFunc(b.Story, func(x, y storyLine) int {
		if x.At.IsZero() || y.At.IsZero() {
			return 0
		}
		return x.At.Compare(y.At)
	})
	b.NewTime = forInput(later(t.ActionTime, now))
}

// addRuns adds each failed run that the row still has. It returns the last error, empty if it is that of the last run added,
// and whether attempts and last_error say nothing beyond this run.
func (b *taskBody) addRuns(t task.Task, add func(at time.Time, mood, what, text string)) (lastError string, isTold bool) {
	lastError = t.LastError
	var before int
	for i, r := range b.Why.FailedRuns {
		what := fmt.Sprintf("Run %d failed", r.Attempt)
		switch last := i == len(b.Why.FailedRuns)-1; {
		case i == 0 && r.Attempt > 1:
			what += "; the errors of earlier runs are not kept"
		case i > 0 && r.Attempt <= before:
			what += ", counted anew"
		case last && r.Attempt == t.Attempts && b.TypeIs != nil && t.Status != task.Dead:
			what = fmt.Sprintf("Run %d of at most %d failed", r.Attempt, b.MostRuns)
		}
		add(r.At.Time(), "warn", what, r.Error)
		before, isTold = r.Attempt, r.Attempt == t.Attempts && r.Error == t.LastError
		if lastError = t.LastError; r.Error == lastError {
			lastError = ""
		}
	}
	return lastError, isTold
}

func (b *taskBody) tellPending(t task.Task, now time.Time, add func(at time.Time, mood, what, text string)) {
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
		if t.Attempts == 0 {
			what = "Runs at this time"
		}
		add(t.ActionTime, "", what, "")
	}
	if late := now.Sub(t.Promised()); late > 0 {
		b.Late = fmt.Sprintf("It is late: promised %s ago.", span(late))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ifMatch is the state of the task that somebody has seen; without it there is no condition.
func (f *form) ifMatch() []string {
	etag := f.text("if_match")
	if etag == "" {
		return nil
	}
	tags, err := api.ParseIfMatch([]string{etag})
	if err != nil {
		f.wrong("if_match", "%v", err)
	}
	return tags
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
	t, err := c.desk.Get(r.Context(), jobID)
	if err != nil {
		return nil, err
	}
	at := taskPath(jobID)
	return &page{Name: "confirm", Title: "Cancel task " + strconv.FormatUint(jobID, 10), Body: confirmBody{
		Question: "Cancel this task?",
		Explain: []string{fmt.Sprintf("It is of type %s, with biz_id %s, and is due at %s.", c.desk.Types().NameOf(t.BizType),
			api.BizID{Number: t.BizID, Key: t.BizKey}, api.Time(t.ActionTime)),
			"A cancelled task never fires. There is no way back."},
		Button: "Cancel", Action: at + "/cancel", Back: at, Keep: "Keep the task", Danger: true, Fields: url.Values{"if_match": {api.ETag(&t)}},
	}}, nil
}

func taskPath(jobID uint64) string { return "/console/tasks/" + strconv.FormatUint(jobID, 10) }

// change makes a change of a task. What it was is in the audit, also where the API's would not be: this is a person's act.
func (c *Console) change(r *http.Request, did string,
	act func(ctx context.Context, jobID uint64, f *form) (store.AuditEntry, error)) (*page, error) {
	jobID, err := id(r, "job_id")
	if err != nil {
		return nil, err
	}
	f := formOf(r)
	if f.err != nil {
		return nil, f.err
	}
	entry, err := act(r.Context(), jobID, f)
	if err != nil {
		status, text := c.explain(r, err)
		p, unread := c.taskPage(r.Context(), jobID)
		if unread != nil {
			return nil, err
		}
		p.Status, p.Wrong = status, text
		return p, nil
	}
	if entry.Action != "" {
		entry.Actor, entry.Target, entry.Count = intake.ByConsole, strconv.FormatUint(jobID, 10), 1
		c.desk.Record(r.Context(), entry)
	}
	return see(taskPath(jobID) + "?did=" + did), nil
}

func (c *Console) cancel(r *http.Request) (*page, error) {
	return c.change(r, "cancel", func(ctx context.Context, jobID uint64, f *form) (store.AuditEntry, error) {
		tags := f.ifMatch()
		if f.err != nil {
			return store.AuditEntry{}, f.err
		}
		return store.AuditEntry{Action: "cancel"}, c.desk.CancelIf(ctx, jobID, tags)
	})
}

func (c *Console) reschedule(r *http.Request) (*page, error) {
	return c.change(r, "reschedule", func(ctx context.Context, jobID uint64, f *form) (store.AuditEntry, error) {
		at, delay, tags := f.time("action_time"), f.duration("delay"), f.ifMatch()
		if at.IsZero() && f.text("delay") == "" {
			f.wrong("action_time", "is missing; give a time, or a delay")
		}
		if f.err != nil {
			return store.AuditEntry{}, f.err
		}
		when := intake.At(at)
		if f.text("delay") != "" {
			when = intake.In(delay)
		}
		t, err := c.desk.Reschedule(ctx, jobID, intake.Change{When: &when, IfMatch: tags})
		return store.AuditEntry{Action: "reschedule", Detail: "to " + api.Time(t.ActionTime).String()}, err
	})
}

func (c *Console) runNow(r *http.Request) (*page, error) {
	return c.change(r, "run-now", func(ctx context.Context, jobID uint64, f *form) (store.AuditEntry, error) {
		tags := f.ifMatch()
		if f.err != nil {
			return store.AuditEntry{}, f.err
		}
		now := intake.In(0)
		t, err := c.desk.Reschedule(ctx, jobID, intake.Change{When: &now, IfMatch: tags})
		return store.AuditEntry{Action: "reschedule", Detail: "run now, to " + api.Time(t.ActionTime).String()}, err
	})
}

func (c *Console) redrive(r *http.Request) (*page, error) {
	return c.change(r, "redrive", func(ctx context.Context, jobID uint64, f *form) (entry store.AuditEntry, err error) {
		tags := f.ifMatch()
		if f.err != nil {
			return entry, f.err
		}
		_, err = c.desk.RedriveIf(ctx, jobID, tags) // which writes the audit itself
		return entry, err
	})
}
