package intake

import (
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// The functions of this file convert between package api and this one. The HTTP API and the Go API of an
// embedded center share them.

// SubmitOf converts a submit.
func SubmitOf(r *api.SubmitRequest) Submit {
	return Submit{
		BizType: r.BizType, BizID: r.BizID.Number, BizKey: r.BizID.Key, When: whenOf(r.ActionTime, r.Delay),
		Attribute: r.Attribute, DedupKey: r.DedupKey, Timeout: time.Duration(r.Timeout), OnDuplicate: OnDuplicate(r.OnDuplicate),
		Past: Past(r.Past),
	}
}

// ChangeOf converts a change.
func ChangeOf(r *api.ChangeRequest, ifMatch []string) Change {
	c := Change{Attribute: r.Attribute, Past: Past(r.Past), IfMatch: ifMatch}
	if r.ActionTime != nil || r.Delay != nil {
		c.When = new(whenOf(r.ActionTime, r.Delay))
	}
	if r.Timeout != 0 {
		c.Timeout = (*time.Duration)(&r.Timeout)
	}
	return c
}

func whenOf(at *time.Time, in *api.Duration) When {
	switch {
	case at != nil:
		return At(*at)
	case in != nil:
		return In(time.Duration(*in))
	}
	return When{}
}

// DeadOf converts a change of many dead tasks.
func DeadOf(r *api.DeadRequest) ChangeDead {
	return ChangeDead{Dead: Dead{r.BizType, r.Error, orZero(r.Since), orZero(r.Until)}, Limit: r.Limit, DryRun: r.DryRun, Rate: r.Rate}
}

func orZero(t *time.Time) (moment time.Time) {
	if t != nil {
		moment = *t
	}
	return moment
}

// Wire converts groups.
func (g DeadGroups) Wire(types *task.Types) api.DeadGroups {
	out := api.DeadGroups{Groups: make([]api.DeadGroup, len(g.Groups)), Partial: g.Partial}
	for i, one := range g.Groups {
		out.Groups[i] = api.DeadGroup{BizType: types.NameOf(one.BizType), Error: one.Error, Count: one.Count,
			Oldest: api.Time(one.Oldest), Newest: api.Time(one.Newest), JobID: api.ID(one.JobID)}
	}
	return out
}

// Operation converts an operation.
func Operation(o *store.Operation, types *task.Types) api.Operation {
	out := api.Operation{ID: api.ID(o.ID), Kind: o.Kind, Undoes: api.ID(o.Undoes), By: o.Actor, Rate: o.Rate, State: o.State,
		Matched: o.Matched, Done: o.Done, Skipped: o.Skipped,
		Started: api.Time(o.Started), Ended: api.Time(o.Ended),
		Filter: api.OperationFilter{Error: o.Filter.Error, Since: api.Time(o.Filter.Since), Until: api.Time(o.Filter.Until), Limit: o.Limit}}
	if o.Filter.BizType != nil {
		out.Filter.BizType = types.NameOf(*o.Filter.BizType)
	}
	if o.Kind == store.OperationRetry {
		out.Filter.Until = api.Time{} // of the next runs
	}
	return out
}

// OperationsOf converts a list of operations.
func OperationsOf(list []store.Operation, types *task.Types) api.Operations {
	out := api.Operations{Operations: make([]api.Operation, len(list))}
	for i := range list {
		out.Operations[i] = Operation(&list[i], types)
	}
	return out
}

// Wire converts a page of the audit.
func (p AuditPage) Wire() api.AuditPage {
	out := api.AuditPage{Entries: make([]api.AuditEntry, len(p.Entries)),
		NextCursor: api.FormatAuditCursor(p.Next.At, p.Next.Database, p.Next.ID)}
	for i, e := range p.Entries {
		out.Entries[i] = api.AuditEntry{At: api.Time(e.At), Actor: e.Actor, Action: e.Action, Target: e.Target, Count: e.Count, Detail: e.Detail}
	}
	return out
}

// StatusOf parses a status filter; nil if the word is empty.
func StatusOf(word string) (*task.Status, error) {
	if word == "" {
		return nil, nil
	}
	s, err := task.ParseStatus(word)
	if err != nil {
		return nil, &task.FieldError{Field: "status", Message: err.Error()}
	}
	return &s, nil
}

// Wire converts a page; list names its cursor.
func (p Page) Wire(types *task.Types, list byte) api.Page {
	out := api.Page{Tasks: make([]api.Task, len(p.Tasks)), NextCursor: api.FormatCursor(list, p.Next, p.AsOf)}
	for i, t := range p.Tasks {
		out.Tasks[i] = api.From(t, types.NameOf(t.BizType))
	}
	return out
}

// Wire converts a page.
func (p AllPage) Wire(types *task.Types) api.Page {
	out := Page{Tasks: p.Tasks}.Wire(types, 0)
	if p.Next != nil {
		out.NextCursor = api.FormatPlaceCursor(p.Next.Shard, p.Next.At, p.Next.JobID, p.Next.AsOf)
	}
	return out
}

// CursorOf reads the cursor of a page of some list; empty: the first page. The error is a task.FieldError.
func CursorOf(list byte, cursor string) (after uint64, asOf time.Time, err error) {
	if cursor == "" {
		return 0, asOf, nil
	}
	if after, asOf, err = api.ParseCursor(list, []byte(cursor)); err != nil {
		err = &task.FieldError{Field: "cursor", Message: err.Error()}
	}
	return after, asOf, err
}

// PlaceOf reads the cursor of a page; empty: the first page. The error is a task.FieldError.
func PlaceOf(cursor string) (p store.Place, err error) {
	if cursor == "" {
		return p, nil
	}
	if p.Shard, p.At, p.JobID, p.AsOf, err = api.ParsePlaceCursor([]byte(cursor)); err != nil {
		return p, &task.FieldError{Field: "cursor", Message: err.Error()}
	}
	return p, nil
}

// Wire converts the result of one task of a batch. known is false after an internal error.
func (s *Submitted) Wire() (r api.BatchResult, known bool) {
	if s.Err == nil {
		return api.BatchResult{JobID: api.ID(s.Task.JobID), Duplicate: s.Duplicate}, true
	}
	r.Err, known = api.NewBatchError(s.Err)
	return r, known
}

// Wire converts a run.
func (r Running) Wire() *api.Running {
	return &api.Running{Node: r.Node, Since: api.Time(r.Since), Until: api.Time(r.Until)}
}
