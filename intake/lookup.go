package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake/why"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// The number of tasks in a page: the default, and the maximum.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// Get reads one task; task.ErrNotFound if there is none.
func (s *Service) Get(ctx context.Context, jobID uint64) (task.Task, error) {
	return s.cfg.Store.Get(ctx, jobID)
}

// Key is the caller's own name for a task.
type Key struct {
	BizType  string // name of the business type
	BizID    uint64
	BizKey   string // the biz_id where it is a text; BizID is then not needed
	DedupKey string // of the submit
}

// ByKey reads the task that was submitted under a key, or returns task.ErrNotFound.
func (s *Service) ByKey(ctx context.Context, k Key) (task.Task, error) {
	b, err := s.named(k.BizType)
	if err != nil {
		return task.Task{}, err
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
	return s.cfg.Store.First(ctx, bizID, bizKey, b.ID, k.DedupKey)
}

// Running is the node on which a task runs, and the time since when; or, of a task that a consumer has leased, until when.
type Running struct {
	Node  string    // empty for a lease
	Since time.Time // of a lease: since it was given or extended
	Until time.Time // of a lease
}

// runningTimeout is how long a look-up waits for the owner to answer whether a task runs.
const runningTimeout = time.Second

// Running asks the task's owner whether the task runs now. If the owner is unknown or does not answer, the
// result is false.
func (s *Service) Running(ctx context.Context, t task.Task) (Running, bool) {
	p, err := s.partition(t.JobID)
	if err != nil || t.Status != task.Pending {
		return Running{}, false
	}
	if t.IsLeased(s.cfg.Now()) {
		return Running{Since: t.Modified, Until: t.ActionTime}, true
	}
	if s.cfg.Cluster.Term(p) != 0 {
		since, runs := s.cfg.Queue.RunningSince(t.JobID)
		return Running{Node: s.cfg.Node, Since: since}, runs
	}
	peer, err := s.owner(ctx, p)
	if err != nil {
		return Running{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, runningTimeout)
	defer cancel()
	r, runs, err := peer.Running(ctx, t.JobID)
	return r, runs && err == nil
}

// whyTimeout is how long Why waits for the row. A database that hangs is a part of the answer.
const whyTimeout = time.Second

// Why returns where a task waits and the reasons, or its outcome. It asks the owner of the task's partition. If
// the owner does not answer, it answers from the facts of this node. It returns task.ErrNotFound if there is no
// such task.
func (s *Service) Why(ctx context.Context, jobID uint64) (api.Why, error) {
	p, err := s.partition(jobID)
	if err != nil {
		return api.Why{}, err
	}
	f := why.Facts{Now: s.cfg.Now(), Node: s.cfg.Node, Partition: why.Partition{Number: p, Owned: s.owns(p)}}
	if !f.Partition.Owned && !IsForwarded(ctx) {
		peer, err := s.cfg.Cluster.Owner(p)
		if err == nil {
			var said api.Why
			if said, err = peer.Why(ctx, jobID); err == nil {
				return said, nil
			}
		}
		f.Partition.Silent = err
	}
	read, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	var unread error // of the failed runs; the rest of the answer is right without them
	f.Task, f.Unread = s.cfg.Store.Get(read, jobID)
	switch {
	case errors.Is(f.Unread, task.ErrNotFound):
		return api.Why{}, f.Unread
	case f.Unread != nil:
		f.Task = task.Task{JobID: jobID}
	default:
		f.Failed, unread = s.cfg.Store.FailedRuns(read, jobID)
	}
	s.cfg.Facts(&f)
	w := why.Of(f)
	if unread != nil {
		w.Because = append(w.Because, "its failed runs cannot be read now: "+unread.Error())
	}
	return w, nil
}

// List narrows a look-up by biz_id. See ListAll for all tasks.
type List struct {
	BizID   uint64
	BizKey  string       // the biz_id where it is a text; BizID is then not needed
	BizType string       // name; empty: all
	Status  *task.Status // nil: all
	After   uint64       // the Next of the page before; 0: the first page
	AsOf    time.Time    // the AsOf of the page before
	Limit   int          // at most MaxPage; 0: DefaultPage
	// Leased: only tasks that a consumer has, or had when its lease ended, and the one whose dedup_key is LeasedOr.
	Leased   bool
	LeasedOr string
}

// Page is a part of a look-up's result.
type Page struct {
	Tasks []task.Task
	Next  uint64 // the cursor of the next page; 0: this is the last one
	// AsOf is the moment of the first page of a List: what was submitted after it is left out, so that a walk ends.
	AsOf time.Time
}

// List reads the tasks of a biz_id in the order of their submission.
func (s *Service) List(ctx context.Context, q List) (Page, error) {
	bizType, err := s.typeFilter(q.BizType)
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
	asOf := q.AsOf
	if q.After == 0 {
		asOf = task.CeilMilli(s.cfg.Now()) // as gmt_create is made
	}
	list, err := s.cfg.Store.List(ctx, bizID,
		store.Filter{BizKey: bizKey, BizType: bizType, Status: q.Status, After: q.After, AsOf: q.AsOf, Limit: limit + 1,
			Leased: q.Leased, LeasedOr: q.LeasedOr})
	p := page(list, limit)
	p.AsOf = asOf
	return p, err
}

// ListAll narrows a look-up over all tasks.
type ListAll struct {
	BizType  string      // name; empty: all
	Status   task.Status // the zero value is pending
	Failed   bool        // only tasks that have failed and wait for their next run
	From, To time.Time   // action_time at or after From, and before To; zero: no bound
	After    store.Place // the Next of the page before; zero: the first page
	Limit    int         // as in List
}

// AllPage is a part of a look-up over all tasks.
type AllPage struct {
	Tasks []task.Task
	Next  *store.Place // of the next page; nil: this is the last one
}

// ListAll reads tasks in the order of shard, action_time and job_id. A task that was changed after the first page is left
// out of the later ones, so a walk ends and shows each task at most once. What a page may cost is bounded: it may be short, or
// empty, although there are more.
func (s *Service) ListAll(ctx context.Context, q ListAll) (AllPage, error) {
	bizType, err := s.typeFilter(q.BizType)
	if err != nil {
		return AllPage{}, err
	}
	limit, err := pageLimit(q.Limit)
	if err != nil {
		return AllPage{}, err
	}
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return AllPage{}, &task.FieldError{Field: "to", Message: "is not after from; give a later time"}
	}
	if q.Failed && q.To.IsZero() {
		q.To = s.lastRetry(bizType) // what is parked for longer has not failed
	}
	list, next, more, err := s.cfg.Store.Walk(ctx,
		store.WalkFilter{BizType: bizType, Status: q.Status, From: q.From, To: q.To, Failed: q.Failed}, q.After, limit)
	p := AllPage{Tasks: list}
	if more {
		p.Next = &next
	}
	return p, err
}

func pageLimit(limit int) (int, error) {
	if limit < 0 || limit > MaxPage {
		return 0, &task.FieldError{Field: "limit", Message: fmt.Sprintf("is %d; it must be from 1 to %d", limit, MaxPage)}
	}
	return cmp.Or(limit, DefaultPage), nil
}

// page cuts off the extra task, which was read only to know whether there is a next page.
func page(list []task.Task, limit int) Page {
	if len(list) <= limit {
		return Page{Tasks: list}
	}
	return Page{Tasks: list[:limit], Next: list[limit-1].JobID}
}

// typeFilter turns a name into an id; an empty name into nil.
func (s *Service) typeFilter(name string) (*uint64, error) {
	if name == "" {
		return nil, nil
	}
	b, err := s.named(name)
	if err != nil {
		return nil, err
	}
	return &b.ID, nil
}
