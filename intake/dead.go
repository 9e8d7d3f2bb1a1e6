package intake

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Dead selects dead tasks; the zero Dead is all of them.
type Dead struct {
	BizType      string    // name; empty: all
	Error        string    // a part of last_error, with its upper and lower case
	Since, Until time.Time // died (gmt_modified) at or after Since, and before Until; zero: no bound
}

func (s *Service) deadFilter(d Dead) (store.DeadFilter, error) {
	bizType, err := s.typeFilter(d.BizType)
	if err != nil {
		return store.DeadFilter{}, err
	}
	if err := checkText("error", d.Error, task.MaxAttribute); err != nil {
		return store.DeadFilter{}, err
	}
	if !d.Since.IsZero() && !d.Until.IsZero() && !d.Since.Before(d.Until) {
		return store.DeadFilter{}, &task.FieldError{Field: "until", Message: "is not after since; nothing can match"}
	}
	return store.DeadFilter{BizType: bizType, Error: d.Error, Since: d.Since, Until: d.Until}, nil
}

// ListDead reads the dead tasks that match; limit as in List.
func (s *Service) ListDead(ctx context.Context, d Dead, after uint64, limit int) (Page, error) {
	f, err := s.deadFilter(d)
	if err != nil {
		return Page{}, err
	}
	if limit, err = pageLimit(limit); err != nil {
		return Page{}, err
	}
	list, next, err := s.cfg.Store.ListDead(ctx, f, after, limit)
	return Page{Tasks: list, Next: next}, err
}

// DeadGroups is the dead tasks by their error; see store.DeadGroups.
type DeadGroups struct {
	Groups  []store.DeadGroup
	Partial bool
}

// DeadGroups sums up the dead tasks of a business type (empty: of all) by their error.
func (s *Service) DeadGroups(ctx context.Context, bizType string) (g DeadGroups, err error) {
	id, err := s.typeFilter(bizType)
	if err != nil {
		return g, err
	}
	g.Groups, g.Partial, err = s.cfg.Store.DeadGroups(ctx, id)
	return g, err
}

// ChangeDead asks to change many dead tasks.
type ChangeDead struct {
	Dead
	Limit  int  // at most this many; 0: all
	DryRun bool // count only
	// Rate starts an operation that changes so many tasks a second. It goes on without the caller, and without this node.
	// 0: the tasks are changed before the answer.
	Rate float64
}

// ChangedDead is the result of RedriveDead and DiscardDead.
type ChangedDead struct {
	Matched int // dead tasks that match
	Changed int // of those, redriven or discarded
	// Operation is the one that was started; 0: none. It changes the tasks.
	Operation uint64
}

// deadPage is the number of dead tasks that are read and changed at a time.
const deadPage = 500

// RedriveDead redrives the dead tasks that match. After an error the result counts those redriven before it.
func (s *Service) RedriveDead(ctx context.Context, c ChangeDead) (ChangedDead, error) {
	return s.changeDead(ctx, "redrive", c, func(jobID uint64) error {
		_, err := s.redrive(ctx, jobID, nil)
		return err
	})
}

// DiscardDead makes the dead tasks that match cancelled; they keep their last_error. After an error the result counts
// those discarded before it. A dead task is in no queue, so any node may discard it.
func (s *Service) DiscardDead(ctx context.Context, c ChangeDead) (ChangedDead, error) {
	return s.changeDead(ctx, "discard", c, func(jobID uint64) error {
		err := s.move(ctx, store.Move{JobID: jobID, From: task.Dead, To: task.Cancelled}, nil)
		if err == nil {
			s.cfg.Dispatch.Forget(jobID)
		}
		return err
	})
}

// changeDead makes a change of the tasks that match, and writes it into the audit.
func (s *Service) changeDead(ctx context.Context, action string, c ChangeDead,
	change func(jobID uint64) error) (answer ChangedDead, err error) {
	f, err := s.deadFilter(c.Dead)
	if err != nil {
		return answer, err
	}
	if c.Limit < 0 {
		return answer, &task.FieldError{Field: "limit", Message: "must not be negative; 0 is all"}
	}
	if err := checkRate(c.Rate); err != nil {
		return answer, err
	}
	if c.Rate > 0 && !c.DryRun {
		return s.startOperation(ctx, action, c, f)
	}
	if answer.Matched, err = s.cfg.Store.CountDead(ctx, f); err != nil || c.DryRun {
		return answer, err
	}
	answer.Changed, err = s.changePages(ctx, f, answer.Matched, c.Limit, change)
	if answer.Changed > 0 {
		s.Record(ctx, store.AuditEntry{Actor: actorOf(ctx), Action: action, Target: c.BizType, Count: answer.Changed, Detail: c.detail(0)})
	}
	return answer, err
}

// changePages changes the first tasks that match, most of them or (0) all. Tasks that die meanwhile are left to another
// call.
func (s *Service) changePages(ctx context.Context, f store.DeadFilter, matched, most int,
	change func(jobID uint64) error) (changed int, err error) {
	left := matched
	if most > 0 {
		left = min(left, most)
	}
	for after := uint64(0); left > 0; {
		page, next, err := s.cfg.Store.ListDead(ctx, f, after, min(left, deadPage))
		if err != nil {
			return changed, err
		}
		n, err := changeAll(page, change)
		changed += n
		if err != nil || next == 0 {
			return changed, err
		}
		left -= len(page)
		after = next
	}
	return changed, nil
}

// changeAll changes a page; its moves share commits.
func changeAll(page []task.Task, change func(jobID uint64) error) (n int, err error) {
	results := make(chan error, len(page))
	for _, t := range page {
		go func() { results <- change(t.JobID) }()
	}
	for range page {
		var conflict *task.ConflictError
		switch e := <-results; {
		case e == nil:
			n++
		case errors.As(e, &conflict), errors.Is(e, task.ErrNotFound):
			// Another caller was faster.
		default:
			err = e
		}
	}
	return n, err
}

// detail is the filter as JSON, with the operation if there is one; "" if there is none but the biz_type.
func (c *ChangeDead) detail(operation uint64) string {
	if operation == 0 && c.Error == "" && c.Since.IsZero() && c.Until.IsZero() && c.Limit == 0 {
		return ""
	}
	text, _ := json.Marshal(struct { // a struct of texts, times and numbers always marshals
		Error string    `json:"error,omitempty"`
		Since time.Time `json:"since,omitzero"`
		Until time.Time `json:"until,omitzero"`
		Limit int       `json:"limit,omitempty"`
		Rate  float64   `json:"rate,omitempty"`
		ID    uint64    `json:"operation,omitempty,string"`
	}{c.Error, c.Since, c.Until, c.Limit, c.Rate, operation})
	return string(text)
}
