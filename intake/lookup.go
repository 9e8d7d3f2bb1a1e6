package intake

import (
	"cmp"
	"context"
	"errors"
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

// Get reads one task, with its run if the owner of its partition runs it; task.ErrNotFound if there is none.
func (s *lookups) Get(ctx context.Context, jobID uint64) (api.Task, error) {
	t, err := s.cfg.Store.Get(ctx, jobID)
	return s.found(ctx, t, err)
}

// GetByKey is Get by the caller's own key.
func (s *lookups) GetByKey(ctx context.Context, k api.Key) (api.Task, error) {
	t, err := s.byKey(ctx, k)
	return s.found(ctx, t, err)
}

// found is shown with the run of the task.
func (s *lookups) found(ctx context.Context, t task.Task, err error) (api.Task, error) {
	shown, err := s.shown(t, err)
	if err == nil {
		shown.Running = s.running(ctx, t)
	}
	return shown, err
}

// runningTimeout is how long a look-up waits for the owner to answer whether a task runs.
const runningTimeout = time.Second

// running asks the task's owner whether the task runs now. nil: it does not, or the owner is unknown or does not answer.
func (s *lookups) running(ctx context.Context, t task.Task) *api.Running {
	p, err := s.partition(t.JobID)
	if err != nil || t.Status != task.Pending {
		return nil
	}
	if t.IsLeased(s.cfg.Now()) {
		return &api.Running{Since: api.Time(t.Modified), Until: api.Time(t.ActionTime)}
	}
	if s.cfg.Cluster.Term(p) != 0 {
		since, runs := s.cfg.Queue.RunningSince(t.JobID)
		if !runs {
			return nil
		}
		return &api.Running{Node: s.cfg.Node, Since: api.Time(since)}
	}
	peer, err := s.owner(ctx, p)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runningTimeout)
	defer cancel()
	said, _ := peer.Get(ctx, t.JobID)
	return said.Running
}

// whyTimeout is how long Why waits for the row. A database that hangs is a part of the answer.
const whyTimeout = time.Second

// Why returns where a task waits and the reasons, or its outcome. It asks the owner of the task's partition. If
// the owner does not answer, it answers from the facts of this node. It returns task.ErrNotFound if there is no
// such task.
func (s *lookups) Why(ctx context.Context, jobID uint64) (api.Why, error) {
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
	s.cfg.Status.AddFacts(&f)
	w := why.Of(f)
	if unread != nil {
		w.Because = append(w.Because, "its failed runs cannot be read now: "+unread.Error())
	}
	return w, nil
}

// WhyByKey is Why by the caller's own key; it looks the task up first.
func (s *lookups) WhyByKey(ctx context.Context, k api.Key) (api.Why, error) {
	t, err := s.byKey(ctx, k)
	if err != nil {
		return api.Why{}, err
	}
	return s.Why(ctx, t.JobID)
}

// List reads the tasks of a biz_id in the order of their submission.
func (s *lookups) List(ctx context.Context, q api.List) (api.Page, error) {
	var f store.Filter
	if q.Status != "" {
		status, err := statusOf(q.Status)
		if err != nil {
			return api.Page{}, err
		}
		f.Status = &status
	}
	list, next, err := s.list(ctx, q, f)
	return s.page(list, next, err)
}

// list narrows a look-up further by f, and returns the cursor of the next page.
func (s *lookups) list(ctx context.Context, q api.List, f store.Filter) (list []task.Task, next string, err error) {
	if f.BizType, err = s.typeFilter(q.BizType); err != nil {
		return nil, "", err
	}
	bizID, bizKey, err := task.BizIDOf(q.BizID, q.BizKey)
	if err != nil {
		return nil, "", err
	}
	limit, c, err := pageOf(q.Limit, api.CursorTasks, q.Cursor)
	if err != nil {
		return nil, "", err
	}
	f.After, f.AsOf = c.ID, c.AsOf
	if f.After == 0 {
		c.AsOf = task.CeilMilli(s.cfg.Now()) // as gmt_create is made
	}
	f.BizKey, f.Limit = bizKey, limit+1
	if list, err = s.cfg.Store.List(ctx, bizID, f); len(list) > limit { // the one more shows that there is a next page
		list = list[:limit]
		c.ID = list[limit-1].JobID
		next = c.Next(true)
	}
	return list, next, err
}

// FindLeased finds the first two pending tasks of a biz_id, of one business type or (empty) all, that a consumer has, or had when its lease
// ended, or whose dedup_key is orKey, if that is not empty. It holds no more than a page of the pending tasks of the id in memory.
func (s *lookups) FindLeased(ctx context.Context, id api.BizID, bizType, orKey string) (found []task.Task, err error) {
	q := api.List{BizID: id.Number, BizKey: id.Key, BizType: bizType, Limit: DefaultPage}
	for {
		list, next, err := s.list(ctx, q, store.Filter{Status: new(task.Pending), Leased: true, LeasedOr: orKey})
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if t.HasLease() || orKey != "" && t.DedupKey == orKey {
				if found = append(found, t); len(found) == 2 {
					return found, nil
				}
			}
		}
		if q.Cursor = next; next == "" {
			return found, nil
		}
	}
}

// ListAll reads tasks in the order of shard, action_time and job_id. A task that was changed after the first page is left
// out of the later ones, so a walk ends and shows each task at most once. What a page may cost is bounded: it may be short, or
// empty, although there are more.
func (s *lookups) ListAll(ctx context.Context, q api.ListAll) (api.Page, error) {
	f := store.WalkFilter{From: q.From, To: q.To, Failed: q.Status == api.Failing}
	var err error
	if f.BizType, err = s.typeFilter(q.BizType); err != nil {
		return api.Page{}, err
	}
	if q.Status != "" && !f.Failed {
		if f.Status, err = statusOf(q.Status); err != nil {
			return api.Page{}, err
		}
	}
	limit, c, err := pageOf(q.Limit, api.CursorAll, q.Cursor)
	if err != nil {
		return api.Page{}, err
	}
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return api.Page{}, task.Wrong("to", "is not after from; give a later time")
	}
	if f.Failed && q.To.IsZero() {
		f.To = s.lastRetry(f.BizType) // what is parked for longer has not failed
	}
	after := store.Place{Shard: c.Part, At: c.At, JobID: c.ID, AsOf: c.AsOf}
	var list []task.Task
	var next store.Place
	var more bool
	err = s.lane.read(ctx, func() (err error) { list, next, more, err = s.cfg.Store.Walk(ctx, f, after, limit); return err })
	c.Part, c.At, c.ID, c.AsOf = next.Shard, next.At, next.JobID, next.AsOf
	return s.page(list, c.Next(more), err)
}

func statusOf(word string) (task.Status, error) {
	s, err := task.ParseStatus(word)
	if err != nil {
		err = &task.FieldError{Field: "status", Message: err.Error()}
	}
	return s, err
}

// pageOf reads the limit and the cursor of a list.
func pageOf(limit int, list byte, cursor string) (int, api.Cursor, error) {
	limit, err := pageLimit(limit)
	if err != nil {
		return 0, api.Cursor{}, err
	}
	c, err := api.ParseCursor(list, cursor)
	return limit, c, err
}

func pageLimit(limit int) (int, error) {
	if limit < 0 || limit > MaxPage {
		return 0, task.Wrong("limit", "is %d; it must be from 1 to %d", limit, MaxPage)
	}
	return cmp.Or(limit, DefaultPage), nil
}
