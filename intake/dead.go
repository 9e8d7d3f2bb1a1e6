package intake

import (
	"context"
	"encoding/json"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func (s *operations) deadFilter(q api.ListDead) (f store.DeadFilter, err error) {
	if f.BizType, err = s.typeFilter(q.BizType); err != nil {
		return f, err
	}
	if err := checkText("error", q.Error, task.MaxAttribute); err != nil {
		return f, err
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return f, task.Wrong("until", "is not after since; nothing can match")
	}
	f.Error, f.Since, f.Until = q.Error, q.Since, q.Until
	return f, nil
}

// ListDead reads dead tasks, table by table, in each by job_id.
func (s *operations) ListDead(ctx context.Context, q api.ListDead) (api.Page, error) {
	f, err := s.deadFilter(q)
	if err != nil {
		return api.Page{}, err
	}
	limit, c, err := pageOf(q.Limit, api.CursorDead, q.Cursor)
	if err != nil {
		return api.Page{}, err
	}
	var list []task.Task
	err = s.lane.read(ctx, func() (err error) { list, c.ID, err = s.cfg.Store.ListDead(ctx, f, c.ID, limit); return err })
	return s.page(list, c.Next(c.ID != 0), err)
}

// DeadGroups sums up the dead tasks of a business type (empty: of all) by their error, the largest groups first.
func (s *operations) DeadGroups(ctx context.Context, bizType string) (g api.DeadGroups, err error) {
	id, err := s.typeFilter(bizType)
	if err != nil {
		return g, err
	}
	var groups []store.DeadGroup
	err = s.lane.read(ctx, func() (err error) { groups, g.Partial, err = s.cfg.Store.DeadGroups(ctx, id); return err })
	g.Groups = make([]api.DeadGroup, len(groups))
	for i, one := range groups {
		g.Groups[i] = api.DeadGroup{BizType: s.Types().NameOf(one.BizType), Error: one.Error, Count: one.Count,
			Oldest: api.Time(one.Oldest), Newest: api.Time(one.Newest), JobID: api.ID(one.JobID)}
	}
	return g, err
}

// changedDead is what became of a change of dead tasks.
type changedDead struct {
	matched, changed int
	operation        api.ID // that changes them; 0: they were changed before the answer
}

// deadPage is the number of dead tasks that are read and changed at a time.
const deadPage = 500

// RedriveDead makes the matching dead tasks pending, attempts 0, due now. After an error the result counts those redriven before it.
func (s *operations) RedriveDead(ctx context.Context, r api.DeadRequest) (api.Redriven, error) {
	got, err := s.changeDead(ctx, store.OperationRedrive, r)
	return api.Redriven{Matched: got.matched, Redriven: got.changed, Operation: got.operation}, err
}

// DiscardDead makes the matching dead tasks cancelled; they keep their last_error. After an error the result counts
// those discarded before it.
func (s *operations) DiscardDead(ctx context.Context, r api.DeadRequest) (api.Discarded, error) {
	got, err := s.changeDead(ctx, store.OperationDiscard, r)
	return api.Discarded{Matched: got.matched, Discarded: got.changed, Operation: got.operation}, err
}

// changeDead makes a change of the tasks that match, and writes it into the audit. With a rate it starts an operation, which goes on
// without the caller, and without this node.
func (s *operations) changeDead(ctx context.Context, kind string, r api.DeadRequest) (got changedDead, err error) {
	f, err := s.deadFilter(r.Which())
	if err != nil {
		return got, err
	}
	if r.Limit < 0 {
		return got, task.Wrong("limit", "must not be negative; 0 is all")
	}
	if err := checkRate(r.Rate); err != nil {
		return got, err
	}
	if r.Rate > 0 && !r.DryRun {
		return s.startOperation(ctx, kind, r, f)
	}
	err = s.lane.read(ctx, func() (err error) { got.matched, err = s.cfg.Store.CountDead(ctx, f); return err })
	if err != nil || r.DryRun {
		return got, err
	}
	got.changed, err = s.changePages(ctx, kind, f, got.matched, r.Limit)
	if got.changed > 0 {
		s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: kind, Target: r.BizType, Count: got.changed, Detail: detail(&r, 0)})
	}
	return got, err
}

// changePages changes the first tasks that match, most of them or (0) all. Tasks that die meanwhile are left to another
// call.
func (s *operations) changePages(ctx context.Context, kind string, f store.DeadFilter, matched, most int) (changed int, err error) {
	left := matched
	if most > 0 {
		left = min(left, most)
	}
	for after := uint64(0); left > 0; {
		var page []task.Task
		err = s.lane.read(ctx, func() (err error) {
			page, after, err = s.cfg.Store.ListDead(ctx, f, after, min(left, deadPage))
			return err
		})
		if err != nil {
			return changed, err
		}
		n, err := s.changePage(ctx, kind, page)
		changed += n
		if err != nil || after == 0 {
			return changed, err
		}
		left -= len(page)
	}
	return changed, nil
}

// changePage changes dead tasks. A dead task is in no queue, so any node may change it. It leaves out
// tasks that another caller has changed.
func (s *operations) changePage(ctx context.Context, kind string, page []task.Task) (n int, err error) {
	moves := make([]store.Move, len(page))
	for i := range page {
		moves[i] = moveOfDead(kind, page[i].JobID, s.cfg.Now())
	}
	changes := make([]dispatch.Change, 0, len(page))
	for i, m := range s.cfg.Store.MoveAll(ctx, moves) {
		if m.Applied {
			changes = append(changes, dispatch.Change{JobID: moves[i].JobID, Status: moves[i].To})
		} else if m.Err != nil {
			err = m.Err
		}
	}
	n = len(changes)
	s.cfg.Dispatch.Moved(changes...)
	return n, err
}

// moveOfDead is the move of a dead task by a redrive or a discard.
func moveOfDead(kind string, jobID uint64, now time.Time) store.Move {
	if kind == store.OperationDiscard {
		return store.Move{JobID: jobID, From: task.Dead, To: task.Cancelled}
	}
	due, attempts := task.CeilMilli(now), 0
	return store.Move{JobID: jobID, From: task.Dead, To: task.Pending,
		Set: store.Set{ActionTime: &due, Attempts: &attempts, NewPromise: true}}
}

// detail is the filter as JSON, with the operation if there is one; "" if there is none but the biz_type.
func detail(r *api.DeadRequest, operation uint64) string {
	if operation == 0 && r.Error == "" && r.Since == nil && r.Until == nil && r.Limit == 0 {
		return ""
	}
	text, _ := json.Marshal(struct { // a struct of texts, times and numbers always marshals
		Error string     `json:"error,omitempty"`
		Since *time.Time `json:"since,omitempty"`
		Until *time.Time `json:"until,omitempty"`
		Limit int        `json:"limit,omitempty"`
		Rate  float64    `json:"rate,omitempty"`
		ID    uint64     `json:"operation,omitempty,string"`
	}{r.Error, r.Since, r.Until, r.Limit, r.Rate, operation})
	return string(text)
}
