package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/wire"
)

// The rows of a page, and how often a walk over the tables is asked for more of them: it may come back with none.
const (
	rowsPerPage = 50
	walksAPage  = 8
	walkFor     = 150 * time.Millisecond
)

type tasksBody struct {
	JobID, BizID, BizType, DedupKey, Status string
	From, To                                string
	Statuses                                []string
	TypeNames                               []string // to choose from; none if there are too many

	Tasks []wire.Task
	Words string // what is listed
	Next  string // link to the next page; empty: there is none
	First bool
	Start string // link to the first page
}

// namesMost is how many names of business types a field offers.
const namesMost = 200

func (c *Console) typeNames() (names []string) {
	all := c.desk.Types().All()
	if len(all) > namesMost {
		return nil
	}
	for _, b := range all {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

var statuses = []string{"pending", "processed", "cancelled", "dead"}

func (c *Console) tasks(r *http.Request) (*page, error) {
	f := formOf(r)
	b := &tasksBody{JobID: f.text("job_id"), BizID: f.text("biz_id"), BizType: f.text("biz_type"), DedupKey: f.text("dedup_key"), Status: f.text("status"),
		Statuses: statuses, TypeNames: c.typeNames(), First: f.text("cursor") == ""}
	from, to := f.time("from"), f.time("to")
	b.From, b.To = forInput(from), forInput(to)
	p := &page{Name: "tasks", Title: "Tasks", Body: b}
	found, err := c.find(r.Context(), f, b, from, to)
	if err != nil {
		p.Status, p.Wrong = c.explain(r, err)
		if p.Status == http.StatusNotFound {
			p.Wrong = "There is no such task."
		}
	}
	if found != 0 {
		return see("/console/tasks/" + strconv.FormatUint(found, 10)), nil
	}
	return p, nil
}

// find looks tasks up in the way that the fields allow. A single task is found by its job_id.
func (c *Console) find(ctx context.Context, f *form, b *tasksBody, from, to time.Time) (found uint64, err error) {
	switch {
	case f.err != nil:
		return 0, f.err
	case b.JobID != "":
		jobID, err := wire.ParseID(b.JobID)
		if err != nil {
			return 0, &task.FieldError{Field: "job_id", Message: err.Error()}
		}
		t, err := c.desk.Get(ctx, uint64(jobID))
		return t.JobID, err
	case b.DedupKey != "":
		number, key, err := task.ParseBizID(b.BizID)
		if err != nil {
			return 0, &task.FieldError{Field: "biz_id", Message: "a dedup_key goes with a biz_type and a biz_id: " + err.Error()}
		}
		t, err := c.desk.ByKey(ctx, intake.Key{BizType: b.BizType, BizID: number, BizKey: key, DedupKey: b.DedupKey})
		return t.JobID, err
	case b.BizID != "":
		return 0, c.ofBizID(ctx, f, b)
	}
	return 0, c.walk(ctx, f, b, from, to)
}

func (c *Console) ofBizID(ctx context.Context, f *form, b *tasksBody) error {
	number, key, err := task.ParseBizID(b.BizID)
	if err != nil {
		return &task.FieldError{Field: "biz_id", Message: err.Error()}
	}
	status, err := intake.StatusOf(b.Status)
	if err != nil {
		return err
	}
	after, err := intake.CursorOf(wire.ListTasks, f.text("cursor"))
	if err != nil {
		return err
	}
	got, err := c.desk.List(ctx, intake.List{BizID: number, BizKey: key, BizType: b.BizType, Status: status, After: after, Limit: rowsPerPage})
	if err != nil {
		return err
	}
	shown := got.Wire(c.desk.Types(), wire.ListTasks)
	b.Tasks, b.Words = shown.Tasks, "Tasks of this biz_id in the order of their submission."
	b.next(shown.NextCursor)
	return nil
}

// walk lists tasks of all tables. A part of a walk may be empty although there are more: then it goes on for a while.
func (c *Console) walk(ctx context.Context, f *form, b *tasksBody, from, to time.Time) error {
	if b.Status == "" {
		b.Status = "pending"
	}
	status, err := intake.StatusOf(b.Status)
	if err != nil {
		return err
	}
	ask := intake.ListAll{BizType: b.BizType, Status: *status, From: from, To: to}
	if ask.After, err = intake.PlaceOf(f.text("cursor")); err != nil {
		return err
	}
	var list intake.AllPage
	begun := time.Now()
	for range walksAPage {
		ask.Limit = rowsPerPage - len(list.Tasks)
		more, err := c.desk.ListAll(ctx, ask)
		if err != nil {
			return err
		}
		list.Tasks, list.Next = append(list.Tasks, more.Tasks...), more.Next
		if list.Next == nil || len(list.Tasks) == rowsPerPage || time.Since(begun) > walkFor {
			break
		}
		ask.After = *list.Next
	}
	shown := list.Wire(c.desk.Types())
	b.Tasks, b.Words = shown.Tasks, fmt.Sprintf("Tasks with status %s, table by table, in each by action_time.", b.Status)
	b.next(shown.NextCursor)
	return nil
}

func (b *tasksBody) next(cursor string) {
	at := func(cursor string) string {
		return "/console/tasks" + query("biz_id", b.BizID, "biz_type", b.BizType, "status", b.Status, "from", b.From, "to", b.To, "cursor", cursor)
	}
	if b.Start = at(""); cursor != "" {
		b.Next = at(cursor)
	}
}

type taskBody struct {
	wire.Task
	ETag     string
	Why      wire.Why
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
	b := &taskBody{Task: wire.From(t, c.desk.Types().NameOf(t.BizType)), ETag: wire.ETag(&t), Pending: t.Status == task.Pending, Dead: t.Status == task.Dead}
	if kind, ok := c.desk.Types().ByID(t.BizType); ok {
		b.TypeIs = &kind
	}
	if r, runs := c.desk.Running(ctx, t); runs {
		b.Running = r.Wire()
	}
	if b.Why, err = c.desk.Why(ctx, jobID); err != nil {
		b.Why = wire.Why{Because: []string{"nobody can say now: " + err.Error()}}
	}
	b.tell(t, c.cfg.Now())
	return &page{Name: "task", Title: "Task " + b.JobID.String(), Body: b}, nil
}

// tell makes the story of a task: what its row still knows of it.
func (b *taskBody) tell(t task.Task, now time.Time) {
	add := func(at time.Time, mood, what, text string) {
		if at.After(now) {
			mood = "future"
		}
		b.Story = append(b.Story, storyLine{at, what, text, mood})
	}
	promised := t.Promised()
	b.IsMoved = !promised.Equal(t.ActionTime)
	add(t.Created, "", "Submitted", "")
	add(promised, "", "Promised for this time", "")
	tries := plural(t.Attempts, "failed run", "failed runs")
	if b.TypeIs != nil {
		b.MostRuns = b.TypeIs.MaxRetries + 1
		tries += fmt.Sprintf(" of at most %d", b.MostRuns)
	}
	switch {
	case t.Attempts > 0 && t.Status == task.Pending:
		add(t.Modified, "warn", "Last change: "+tries, t.LastError)
	case t.Attempts > 0 && t.Status != task.Dead:
		add(time.Time{}, "warn", tries, t.LastError)
	}
	switch t.Status {
	case task.Pending:
		b.tellPending(t, now, add)
	case task.Processed:
		add(t.Modified, "ok", "Processed, and recorded", "")
		b.Late = fmt.Sprintf("Recorded as processed %s after the promised time, its run included.", span(max(0, t.Modified.Sub(promised))))
	case task.Cancelled:
		text := ""
		if t.Attempts == 0 {
			text = t.LastError
		}
		add(t.Modified, "", "Cancelled: it never fires", text)
	case task.Dead:
		add(t.Modified, "bad", "Dead, after "+tries, t.LastError)
	}
	slices.SortStableFunc(b.Story, func(x, y storyLine) int {
		if x.At.IsZero() || y.At.IsZero() {
			return 0
		}
		return x.At.Compare(y.At)
	})
	b.NewTime = forInput(later(t.ActionTime, now))
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
		what := "Moved: runs again at this time"
		if t.Attempts == 0 {
			what = "Moved: runs at this time"
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
	tags, err := wire.ParseIfMatch([]string{etag})
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
		Explain: []string{fmt.Sprintf("It is of type %s, with biz_id %s, and is due at %s.", c.desk.Types().NameOf(t.BizType), wire.BizID{Number: t.BizID, Key: t.BizKey}, wire.Time(t.ActionTime)),
			"A cancelled task never fires. There is no way back."},
		Button: "Cancel", Action: at + "/cancel", Back: at, Danger: true, Fields: url.Values{"if_match": {wire.ETag(&t)}},
	}}, nil
}

func taskPath(jobID uint64) string { return "/console/tasks/" + strconv.FormatUint(jobID, 10) }

// change makes a change of a task. What it was is in the audit, also where the API's would not be: this is a person's act.
func (c *Console) change(r *http.Request, did string, act func(ctx context.Context, jobID uint64, f *form) (store.AuditEntry, error)) (*page, error) {
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
		return store.AuditEntry{Action: "reschedule", Detail: "to " + wire.Time(t.ActionTime).String()}, err
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
		return store.AuditEntry{Action: "reschedule", Detail: "run now, to " + wire.Time(t.ActionTime).String()}, err
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
