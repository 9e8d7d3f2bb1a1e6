package intake

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// How many tasks a look-up answers: if it does not say, and at most.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// Get reads one task; task.ErrNotFound if there is none.
func (d *Desk) Get(ctx context.Context, jobID uint64) (task.Task, error) {
	return d.cfg.Store.Get(ctx, jobID)
}

// Key is the caller's own name for a task.
type Key struct {
	BizType  string // name of the business type
	BizID    uint64
	BizKey   string // the biz_id where it is a text; BizID is then not needed
	DedupKey string // of the submit
}

// ByKey reads the task that was submitted under a key; task.ErrNotFound if there
// is none.
func (d *Desk) ByKey(ctx context.Context, k Key) (task.Task, error) {
	bizType, err := d.typeFilter(k.BizType)
	if bizType == nil {
		return task.Task{}, cmp.Or(err, d.unknownType(""))
	}
	bizID, bizKey, err := task.BizIDOf(k.BizID, k.BizKey)
	if err != nil {
		return task.Task{}, err
	}
	if k.DedupKey == "" {
		return task.Task{}, &task.FieldError{Field: "dedup_key", Message: "is missing; give the dedup_key of the submit"}
	}
	if err := checkText("dedup_key", k.DedupKey, task.MaxDedupKey); err != nil {
		return task.Task{}, err
	}
	return d.cfg.Store.First(ctx, bizID, bizKey, *bizType, k.DedupKey)
}

// Running says where a task runs, and since when.
type Running struct {
	Node  string
	Since time.Time
}

// askRunning is how long a look-up waits for a task's owner to say whether it runs.
const askRunning = time.Second

// Running tells whether a task runs now, as its owner knows. If the owner is not
// known or does not answer, the task is taken for one that does not run.
func (d *Desk) Running(ctx context.Context, t task.Task) (Running, bool) {
	p, err := d.partition(t.JobID)
	if err != nil || t.Status != task.Pending {
		return Running{}, false
	}
	if d.cfg.Cluster.Term(p) != 0 {
		since, runs := d.cfg.Queue.RunningSince(t.JobID)
		return Running{Node: d.cfg.Node, Since: since}, runs
	}
	peer, err := d.owner(ctx, p)
	if err != nil {
		return Running{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, askRunning)
	defer cancel()
	r, runs, err := peer.Running(ctx, t.JobID)
	return r, runs && err == nil
}

// List narrows a look-up by biz_id.
type List struct {
	BizID   uint64
	BizKey  string       // the biz_id where it is a text; BizID is then not needed
	BizType string       // name; empty: all
	Status  *task.Status // nil: all
	After   uint64       // the Next of the page before; 0: the first page
	Limit   int          // at most MaxPage; 0: DefaultPage
}

// Page is a part of a look-up's answer.
type Page struct {
	Tasks []task.Task
	Next  uint64 // where the next page goes on; 0: there is none
}

// List reads the tasks of a biz_id in the order of their submission.
func (d *Desk) List(ctx context.Context, q List) (Page, error) {
	bizType, err := d.typeFilter(q.BizType)
	if err != nil {
		return Page{}, err
	}
	bizID, bizKey, err := task.BizIDOf(q.BizID, q.BizKey)
	if err != nil {
		return Page{}, err
	}
	limit, err := pageLimit(q.Limit)
	if err != nil {
		return Page{}, err
	}
	list, err := d.cfg.Store.List(ctx, bizID, store.Filter{BizKey: bizKey, BizType: bizType, Status: q.Status, After: q.After, Limit: limit + 1})
	return page(list, limit), err
}

// ListDead reads the dead tasks of a business type (empty: of all); limit as in List.
func (d *Desk) ListDead(ctx context.Context, bizType string, after uint64, limit int) (Page, error) {
	id, err := d.typeFilter(bizType)
	if err != nil {
		return Page{}, err
	}
	if limit, err = pageLimit(limit); err != nil {
		return Page{}, err
	}
	list, err := d.cfg.Store.ListDead(ctx, id, after, limit+1)
	return page(list, limit), err
}

func pageLimit(limit int) (int, error) {
	if limit < 0 || limit > MaxPage {
		return 0, &task.FieldError{Field: "limit", Message: fmt.Sprintf("is %d; it must be from 1 to %d", limit, MaxPage)}
	}
	return cmp.Or(limit, DefaultPage), nil
}

// page cuts the one task off that was read to see whether there are more.
func page(list []task.Task, limit int) Page {
	if len(list) <= limit {
		return Page{Tasks: list}
	}
	return Page{Tasks: list[:limit], Next: list[limit-1].JobID}
}

// typeFilter turns a name into an id; an empty name into nil.
func (d *Desk) typeFilter(name string) (*uint64, error) {
	if name == "" {
		return nil, nil
	}
	b, ok := d.Types().ByName(name)
	if !ok {
		return nil, d.unknownType(name)
	}
	return &b.ID, nil
}
