package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
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

	Tasks []api.Task
	Words string // what is listed
	pager
}

// pager is the links from a page of a list to others.
type pager struct {
	First       bool
	Start, Next string // the first page and the next one; empty: there is none
}

// link makes the links; at is the address of the page behind a cursor.
func (p *pager) link(at func(cursor string) string, next string) {
	if p.Start = at(""); next != "" {
		p.Next = at(next)
	}
}

// namesMost is how many names of business types a field offers.
const namesMost = 200

func (c *Console) typeNames() (names []string) {
	all := c.center.Types().All()
	if len(all) > namesMost {
		return nil
	}
	for _, b := range all {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

var statuses = []string{"pending", api.Failing, "processed", "cancelled", "dead"}

func (c *Console) tasks(r *http.Request) (*page, error) {
	f := formOf(r)
	b := &tasksBody{JobID: f.text("job_id"), BizID: f.exact("biz_id"), BizType: f.text("biz_type"), DedupKey: f.exact("dedup_key"),
		Status:   f.text("status"),
		Statuses: statuses, TypeNames: c.typeNames(), pager: pager{First: f.text("cursor") == ""}}
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
		return see(taskPath(uint64(found))), nil
	}
	return p, nil
}

// find looks tasks up in the way that the fields allow. A single task is found by its job_id.
func (c *Console) find(ctx context.Context, f *form, b *tasksBody, from, to time.Time) (found api.ID, err error) {
	switch {
	case f.err != nil:
		return 0, f.err
	case b.JobID != "":
		jobID, err := api.ParseID(b.JobID)
		if err != nil {
			return 0, &task.FieldError{Field: "job_id", Message: err.Error()}
		}
		t, err := c.center.Get(ctx, uint64(jobID))
		return t.JobID, err
	case b.DedupKey != "":
		number, key, err := task.ParseBizID(b.BizID)
		if err != nil {
			return 0, &task.FieldError{Field: "biz_id", Message: "a dedup_key goes with a biz_type and a biz_id: " + err.Error()}
		}
		t, err := c.center.GetByKey(ctx, api.Key{BizType: b.BizType, BizID: number, BizKey: key, DedupKey: b.DedupKey})
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
	if b.Status == api.Failing {
		return task.Wrong("status", "failing goes with a type, or alone; choose pending for a biz_id")
	}
	ask := api.List{BizID: number, BizKey: key, BizType: b.BizType, Status: b.Status, Limit: rowsPerPage, Cursor: f.text("cursor")}
	shown, err := c.center.List(ctx, ask)
	if err != nil {
		return err
	}
	b.Words = "Tasks of this biz_id in the order of their submission."
	if b.Status != "" {
		b.Words = fmt.Sprintf("Tasks of this biz_id with status %s, in the order of their submission.", b.Status)
	}
	if b.Status != "" && b.First && len(shown.Tasks) == 0 { // an id is given, so its tasks must not look lost because of the status
		ask.Status = ""
		if shown, err = c.center.List(ctx, ask); err != nil {
			return err
		}
		if len(shown.Tasks) > 0 {
			b.Words = fmt.Sprintf("No task of this biz_id is %s. These are all of its tasks, in the order of their submission.", b.Status)
			b.Status = ""
		}
	}
	b.Tasks = shown.Tasks
	b.next(shown.NextCursor)
	return nil
}

// walk lists tasks of all tables. A part of a walk may be empty although there are more: then it goes on for a while.
func (c *Console) walk(ctx context.Context, f *form, b *tasksBody, from, to time.Time) error {
	if b.Status == "" {
		b.Status = "pending"
	}
	ask := api.ListAll{BizType: b.BizType, Status: b.Status, From: from, To: to, Cursor: f.text("cursor")}
	begun := time.Now()
	for range walksAPage {
		ask.Limit = rowsPerPage - len(b.Tasks)
		more, err := c.center.ListAll(ctx, ask)
		if err != nil {
			return err
		}
		b.Tasks, ask.Cursor = append(b.Tasks, more.Tasks...), more.NextCursor
		if ask.Cursor == "" || len(b.Tasks) == rowsPerPage || time.Since(begun) > walkFor {
			break
		}
	}
	b.Words = fmt.Sprintf("Tasks with status %s, table by table, in each by action_time.", b.Status)
	if b.Status == api.Failing {
		b.Words = "Pending tasks whose last run failed, table by table, in each by the time of the next run."
	}
	b.next(ask.Cursor)
	return nil
}

func (b *tasksBody) next(cursor string) {
	b.link(func(cursor string) string {
		return "/console/tasks" + query("biz_id", b.BizID, "biz_type", b.BizType, "status", b.Status, "from", b.From, "to", b.To, "cursor",
			cursor)
	}, cursor)
}
