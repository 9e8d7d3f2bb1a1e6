package intake

import (
	"time"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/wire"
)

// The functions of this file convert between package wire and this one. The HTTP API and the Go API of an
// embedded center share them.

// SubmitOf converts a submit.
func SubmitOf(r *wire.SubmitRequest) Submit {
	return Submit{
		BizType: r.BizType, BizID: r.BizID.Number, BizKey: r.BizID.Key, When: whenOf(r.ActionTime, r.Delay),
		Attribute: r.Attribute, DedupKey: r.DedupKey, Timeout: time.Duration(r.Timeout), OnDuplicate: OnDuplicate(r.OnDuplicate), Past: Past(r.Past),
	}
}

// ChangeOf converts a change.
func ChangeOf(r *wire.ChangeRequest, ifMatch []string) Change {
	c := Change{Attribute: r.Attribute, Past: Past(r.Past), IfMatch: ifMatch}
	if r.ActionTime != nil || r.Delay != nil {
		c.When = new(whenOf(r.ActionTime, r.Delay))
	}
	if r.Timeout != 0 {
		c.Timeout = (*time.Duration)(&r.Timeout)
	}
	return c
}

func whenOf(at *time.Time, in *wire.Duration) When {
	switch {
	case at != nil:
		return At(*at)
	case in != nil:
		return In(time.Duration(*in))
	}
	return When{}
}

// DeadOf converts a change of many dead tasks.
func DeadOf(r *wire.DeadRequest) ChangeDead {
	return ChangeDead{Dead: Dead{r.BizType, r.Error, orZero(r.Since), orZero(r.Until)}, Limit: r.Limit, DryRun: r.DryRun, Rate: r.Rate}
}

func orZero(t *time.Time) (moment time.Time) {
	if t != nil {
		moment = *t
	}
	return moment
}

// Wire converts groups.
func (g DeadGroups) Wire(types *task.Types) wire.DeadGroups {
	out := wire.DeadGroups{Groups: make([]wire.DeadGroup, len(g.Groups)), Partial: g.Partial}
	for i, one := range g.Groups {
		out.Groups[i] = wire.DeadGroup{BizType: types.NameOf(one.BizType), Error: one.Error, Count: one.Count,
			Oldest: wire.Time(one.Oldest), Newest: wire.Time(one.Newest), JobID: wire.ID(one.JobID)}
	}
	return out
}

// Operation converts an operation.
func Operation(o *store.Operation, types *task.Types) wire.Operation {
	out := wire.Operation{ID: wire.ID(o.ID), Kind: o.Kind, Undoes: wire.ID(o.Undoes), By: o.Actor, Rate: o.Rate, State: o.State, Matched: o.Matched, Done: o.Done, Skipped: o.Skipped,
		Started: wire.Time(o.Started), Ended: wire.Time(o.Ended),
		Filter: wire.OperationFilter{Error: o.Filter.Error, Since: wire.Time(o.Filter.Since), Until: wire.Time(o.Filter.Until), Limit: o.Limit}}
	if o.Filter.BizType != nil {
		out.Filter.BizType = types.NameOf(*o.Filter.BizType)
	}
	if o.Kind == store.OperationRetry {
		out.Filter.Until = wire.Time{} // of the next runs
	}
	return out
}

// OperationsOf converts a list of operations.
func OperationsOf(list []store.Operation, types *task.Types) wire.Operations {
	out := wire.Operations{Operations: make([]wire.Operation, len(list))}
	for i := range list {
		out.Operations[i] = Operation(&list[i], types)
	}
	return out
}

// Wire converts a page of the audit.
func (p AuditPage) Wire() wire.AuditPage {
	out := wire.AuditPage{Entries: make([]wire.AuditEntry, len(p.Entries)), NextCursor: wire.FormatAuditCursor(p.Next.At, p.Next.Database, p.Next.ID)}
	for i, e := range p.Entries {
		out.Entries[i] = wire.AuditEntry{At: wire.Time(e.At), Actor: e.Actor, Action: e.Action, Target: e.Target, Count: e.Count, Detail: e.Detail}
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
func (p Page) Wire(types *task.Types, list byte) wire.Page {
	out := wire.Page{Tasks: make([]wire.Task, len(p.Tasks)), NextCursor: wire.FormatCursor(list, p.Next, p.AsOf)}
	for i, t := range p.Tasks {
		out.Tasks[i] = wire.From(t, types.NameOf(t.BizType))
	}
	return out
}

// Wire converts a page.
func (p AllPage) Wire(types *task.Types) wire.Page {
	out := Page{Tasks: p.Tasks}.Wire(types, 0)
	if p.Next != nil {
		out.NextCursor = wire.FormatPlaceCursor(p.Next.Shard, p.Next.At, p.Next.JobID, p.Next.AsOf)
	}
	return out
}

// CursorOf reads the cursor of a page of some list; empty: the first page. The error is a task.FieldError.
func CursorOf(list byte, cursor string) (after uint64, asOf time.Time, err error) {
	if cursor == "" {
		return 0, asOf, nil
	}
	if after, asOf, err = wire.ParseCursor(list, []byte(cursor)); err != nil {
		err = &task.FieldError{Field: "cursor", Message: err.Error()}
	}
	return after, asOf, err
}

// PlaceOf reads the cursor of a page; empty: the first page. The error is a task.FieldError.
func PlaceOf(cursor string) (p store.Place, err error) {
	if cursor == "" {
		return p, nil
	}
	if p.Shard, p.At, p.JobID, p.AsOf, err = wire.ParsePlaceCursor([]byte(cursor)); err != nil {
		return p, &task.FieldError{Field: "cursor", Message: err.Error()}
	}
	return p, nil
}

// Wire converts the result of one task of a batch. known is false after an internal error.
func (s *Submitted) Wire() (r wire.BatchResult, known bool) {
	if s.Err == nil {
		return wire.BatchResult{JobID: wire.ID(s.Task.JobID), Duplicate: s.Duplicate}, true
	}
	r.Err, known = wire.NewBatchError(s.Err)
	return r, known
}

// Wire converts a run.
func (r Running) Wire() *wire.Running {
	return &wire.Running{Node: r.Node, Since: wire.Time(r.Since), Until: wire.Time(r.Until)}
}
