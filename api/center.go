package api

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/task"
)

// Center is what callers ask of a timeout center. intake.Service answers in its process, and client.Client over HTTP. Its errors
// are, or hold, those of package task: *task.FieldError (a wrong field), *task.ConflictError, *task.ChangedError, task.ErrNotFound
// and task.ErrUnavailable (try again).
type Center interface {
	Submit(ctx context.Context, s Submit) (Submitted, error)
	SubmitBatch(ctx context.Context, list []Submit) ([]BatchResult, error)

	Get(ctx context.Context, jobID uint64) (Task, error)
	GetByKey(ctx context.Context, k Key) (Task, error)
	Why(ctx context.Context, jobID uint64) (Why, error)
	WhyByKey(ctx context.Context, k Key) (Why, error)
	List(ctx context.Context, q List) (Page, error)
	ListAll(ctx context.Context, q ListAll) (Page, error)
	Forecast(ctx context.Context, q AskForecast) (Forecast, error)

	Cancel(ctx context.Context, jobID uint64, opts ...ChangeOption) error
	CancelByKey(ctx context.Context, k Key, opts ...ChangeOption) error
	Reschedule(ctx context.Context, jobID uint64, c Change, opts ...ChangeOption) (Task, error)
	RescheduleByKey(ctx context.Context, k Key, c Change, opts ...ChangeOption) (Task, error)
	Redrive(ctx context.Context, jobID uint64, opts ...ChangeOption) (Task, error)

	ListDead(ctx context.Context, q ListDead) (Page, error)
	DeadGroups(ctx context.Context, bizType string) (DeadGroups, error)
	RedriveDead(ctx context.Context, r DeadRequest) (Redriven, error)
	DiscardDead(ctx context.Context, r DeadRequest) (Discarded, error)
	Retry(ctx context.Context, bizType string, rate float64) (Retried, error)

	Pause(ctx context.Context, bizType string, p AskPause) (BizType, error)
	Resume(ctx context.Context, bizType string) (BizType, error)

	Operations(ctx context.Context, limit int) ([]Operation, error)
	Operation(ctx context.Context, id uint64) (Operation, error)
	StopOperation(ctx context.Context, id uint64) (Operation, error)
	UndoOperation(ctx context.Context, id uint64) (Operation, error)
	Audit(ctx context.Context, q Audit) (AuditPage, error)

	Lease(ctx context.Context, bizType string, q AskLease) (LeaseAnswer, error)
	Settle(ctx context.Context, list ...Settlement) ([]Settled, error)
}

// Submit asks for one task. It fires at ActionTime, Delay from when the center gets it, or
// at once; one of them is needed.
type Submit struct {
	BizType    string        // name of a configured business type
	BizID      uint64        // the business's own id; 0 is one, too
	BizKey     string        // the same where it is a text of up to 128 bytes, like a UUID; BizID is then not needed
	ActionTime time.Time     // when to fire; rounded up to a millisecond
	Delay      time.Duration // if ActionTime is zero: how long from now
	Now        bool          // if both are zero: fire at once
	Attribute  string        // handed to the processor; at most 4096 bytes of UTF-8
	DedupKey   string        // makes the submit safe to repeat; at most 64 bytes of UTF-8
	Timeout    time.Duration // how long one run may take: 1 ms to 24 h; 0: as long as the business type says

	// OnDuplicate says what becomes of the first task if DedupKey is known: Keep (the default), Move or Again.
	OnDuplicate string
	// Past says what becomes of an ActionTime more than 5 s ago: Refuse (the default) or Fire.
	Past string
	// Trace is the W3C traceparent that came with the task, in the process of the center. Empty: that of the caller's ctx.
	Trace string
}

// Values of OnDuplicate: they say what a submit does if a task has its DedupKey already.
const (
	Keep = "keep" // nothing
	// Again is Keep while that task is pending. If it has ended, a new task gets the key. The client never repeats such a
	// submit.
	Again = "again"
	Move  = "move" // gives it this time, attribute and, where one is given, timeout. One that is not pending, or runs, is a conflict
)

// Values of Past, for an ActionTime more than 5 s ago.
const (
	Refuse = "refuse" // it is a wrong field
	Fire   = "fire"   // the task is due at once; its DueTime is the ActionTime
)

// FromNow is the delay of a submit without an ActionTime; nil: it has no time at all.
func (s *Submit) FromNow() *time.Duration {
	if s.Delay != 0 || s.Now {
		return &s.Delay
	}
	return nil
}

// NoTime refuses a submit without a time.
func NoTime() error {
	return task.Wrong("action_time", "is missing; give ActionTime, Delay or Now")
}

// Request gives the submit as JSON has it. The error, a *task.FieldError, names a
// field that is missing, or that JSON cannot carry: encoding/json would send U+FFFD instead.
func (s Submit) Request() (SubmitRequest, error) {
	b := SubmitRequest{BizType: s.BizType, Attribute: s.Attribute, DedupKey: s.DedupKey, Timeout: Duration(s.Timeout),
		OnDuplicate: OnDuplicate(s.OnDuplicate), Past: Past(s.Past)}
	for _, f := range []struct{ name, text string }{{"biz_type", s.BizType}, {"attribute", s.Attribute}, {"dedup_key", s.DedupKey}} {
		if err := CheckText(f.name, f.text); err != nil {
			return b, err
		}
	}
	var err error
	if b.BizID, err = BizIDOf(s.BizID, s.BizKey); err != nil {
		return b, err
	}
	if !s.ActionTime.IsZero() {
		b.ActionTime, err = actionTime(s.ActionTime)
	} else if b.Delay = (*Duration)(s.FromNow()); b.Delay == nil {
		err = NoTime()
	}
	return b, err
}

// actionTime refuses a year that RFC 3339 cannot write, as of milliseconds that were taken for seconds.
func actionTime(t time.Time) (*time.Time, error) {
	if t.Year() < 0 || t.Year() > 9999 {
		return nil, task.Wrong("action_time", "is in the year %d; give one from 0 to 9999", t.Year())
	}
	return &t, nil
}

// CheckText refuses a text that is none.
func CheckText(field, text string) error {
	if !utf8.ValidString(text) {
		return task.Wrong(field, "is not valid UTF-8")
	}
	return nil
}

// Submit is what r asks for.
func (r *SubmitRequest) Submit() Submit {
	s := Submit{BizType: r.BizType, BizID: r.BizID.Number, BizKey: r.BizID.Key, ActionTime: timeOf(r.ActionTime), Attribute: r.Attribute,
		DedupKey: r.DedupKey, Timeout: time.Duration(r.Timeout), OnDuplicate: string(r.OnDuplicate), Past: string(r.Past)}
	if r.Delay != nil {
		s.Delay, s.Now = time.Duration(*r.Delay), true
	}
	return s
}

// timeOf is a time that may be left out. The zero Time stands for none.
func timeOf(t *time.Time) time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.IsZero():
		return t.Add(1)
	}
	return *t
}

// orNil is timeOf backwards: nil for the zero Time.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Submitted answers a Submit.
type Submitted struct {
	Task      Task
	Duplicate bool // the DedupKey was known: Task is the task that has it, unchanged or moved (see OnDuplicate)
}

// Key is the caller's own name for a task, as its submit gave it. The center keeps
// it for as long as the task is stored.
type Key struct {
	BizType  string
	BizID    uint64
	BizKey   string // the biz_id where it is a text; BizID is then not needed
	DedupKey string
}

// List narrows a look-up by biz_id.
type List struct {
	BizID   uint64
	BizKey  string // the biz_id where it is a text; BizID is then not needed
	BizType string // name; empty: all
	Status  string // pending, processed, cancelled or dead; empty: all
	Limit   int    // 1 to 1000; 0: 100
	Cursor  string // the NextCursor of the page before; empty: the first page
}

// ListAll narrows a look-up over all tasks.
type ListAll struct {
	BizType string    // name; empty: all
	Status  string    // pending, processed, cancelled or dead; empty: pending. In the process of the center also Failing
	From    time.Time // action_time at this time or later; zero: no bound
	To      time.Time // action_time before this time; zero: no bound
	Limit   int       // 1 to 1000; 0: 100
	Cursor  string    // the NextCursor of the page before; empty: the first page
}

// Failing stands for the pending tasks that have failed and wait for their next run.
const Failing = "failing"

// ListDead narrows a look-up of dead tasks.
type ListDead struct {
	BizType string    // name; empty: all
	Error   string    // a part of last_error, with its upper and lower case; empty: all
	Since   time.Time // died (gmt_modified) at this time or later; zero: no bound
	Until   time.Time // died before this time; zero: no bound
	Limit   int       // 1 to 1000; 0: 100
	Cursor  string    // the NextCursor of the page before; empty: the first page
}

// AskForecast asks how many tasks are due when.
type AskForecast struct {
	BizType string        // name; empty: all
	Step    time.Duration // whole seconds; 0: a minute
	Span    time.Duration // from now on, at most 31 days; 0: two hours
	// Rows is how many tasks are counted, about, in the process of the center; of more, some tables stand for all. 0: its default.
	Rows int
}

// Change asks for another time, another attribute, another timeout, or several of them.
type Change struct {
	ActionTime time.Time      // when to fire; zero: as it is, or Delay
	Delay      *time.Duration // how long from now; nil: as it is, or ActionTime
	Attribute  *string        // nil: as it is
	Timeout    time.Duration  // how long one run may take: 1 ms to 24 h; 0: as it is
	Past       string         // what becomes of an ActionTime more than 5 s ago: Refuse (the default) or Fire
}

// Request gives the change as JSON has it. The error, a *task.FieldError, names what JSON cannot carry.
func (c Change) Request() (r ChangeRequest, err error) {
	r = ChangeRequest{Delay: (*Duration)(c.Delay), Attribute: c.Attribute, Timeout: Duration(c.Timeout), Past: Past(c.Past)}
	if c.Attribute != nil {
		if err := CheckText("attribute", *c.Attribute); err != nil {
			return r, err
		}
	}
	if !c.ActionTime.IsZero() {
		if c.Delay != nil {
			return r, task.Wrong("action_time", "give either ActionTime or Delay, not both")
		}
		r.ActionTime, err = actionTime(c.ActionTime)
	}
	return r, err
}

// Change is what r asks for.
func (r *ChangeRequest) Change() Change {
	return Change{ActionTime: timeOf(r.ActionTime), Delay: (*time.Duration)(r.Delay), Attribute: r.Attribute,
		Timeout: time.Duration(r.Timeout), Past: string(r.Past)}
}

// Audit narrows a look-up of the audit.
type Audit struct {
	Actor, Action string    // empty: all
	From, To      time.Time // at or after From, and before To; zero: no bound
	Limit         int       // 1 to 1000; 0: 100
	Cursor        string    // the NextCursor of the page before; empty: the first page
}

// AskPause says why and how long the tasks of a business type do not start.
type AskPause struct {
	Reason string    // at most 255 characters
	Until  time.Time // when the pause ends without a Resume; zero: it does not
}

// Request is the body that asks for it.
func (p AskPause) Request() PauseRequest {
	return PauseRequest{Reason: p.Reason, Until: orNil(p.Until)}
}

// Pause is what r asks for.
func (r *PauseRequest) Pause() AskPause { return AskPause{r.Reason, timeOf(r.Until)} }

// AskLease asks for tasks of a pull type.
type AskLease struct {
	Max  int           // at most so many: 1 to 256; 0: 1
	Wait time.Duration // for one to fall due: 0 to 60 s
	TTR  time.Duration // length of the lease of a task that sets no timeout: 100 ms to 24 h; 0: as the type says
	// Settle is settled in the same request, which then does not wait. The results are in the answer.
	Settle []Settlement
}
