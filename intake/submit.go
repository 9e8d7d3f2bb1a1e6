package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Limits of a submit.
const (
	MaxPast  = 5 * time.Second           // action_time may be this long ago
	MaxAhead = 10 * 365 * 24 * time.Hour // and this far ahead
	MaxBatch = 10_000                    // tasks a batch
)

// When is the time at which a task fires: At or In. The zero When is unset.
type When struct {
	at    time.Time
	delay time.Duration
	kind  whenKind
}

type whenKind uint8

const (
	whenUnset whenKind = iota
	whenAt
	whenIn
)

// At is a time, rounded up to the millisecond.
func At(t time.Time) When { return When{at: t, kind: whenAt} }

// In is a delay from now; 0 is immediately.
func In(d time.Duration) When { return When{delay: d, kind: whenIn} }

// Moment returns the time of At.
func (w When) Moment() (at time.Time, ok bool) { return w.at, w.kind == whenAt }

// Delay returns the delay of In.
func (w When) Delay() (d time.Duration, ok bool) { return w.delay, w.kind == whenIn }

// resolve returns the time in UTC and whole milliseconds, or an error that says what is wrong.
func (w When) resolve(now time.Time, past Past) (time.Time, error) {
	if past != "" && past != Refuse && past != Fire {
		return time.Time{}, &task.FieldError{Field: "past", Message: fmt.Sprintf("%.64q is neither fire nor refuse", past)}
	}
	switch w.kind {
	case whenIn:
		if w.delay < 0 {
			return time.Time{}, &task.FieldError{Field: "delay", Message: fmt.Sprintf("%s is negative; give a delay from now, 0s or more", w.delay)}
		}
		if w.delay > MaxAhead {
			return time.Time{}, &task.FieldError{Field: "delay", Message: fmt.Sprintf("%s is more than 10 years", w.delay)}
		}
		return task.CeilMilli(now.Add(w.delay)), nil
	case whenAt:
		if w.isPast(now) && past == Fire {
			return task.CeilMilli(latest(w.at, time.Unix(0, 0)).UTC()), nil
		}
		if w.isPast(now) {
			return time.Time{}, &task.FieldError{Field: "action_time",
				Message: fmt.Sprintf("%s is more than %s ago; it is %s now. With past: fire the task would be due at once",
					w.at.UTC().Format(time.RFC3339Nano), MaxPast, now.UTC().Format(time.RFC3339))}
		}
		if w.at.After(now.Add(MaxAhead)) {
			return time.Time{}, &task.FieldError{Field: "action_time", Message: fmt.Sprintf("%s is more than 10 years ahead",
				w.at.UTC().Format(time.RFC3339Nano))}
		}
		return task.CeilMilli(w.at), nil
	default:
		return time.Time{}, &task.FieldError{Field: "action_time", Message: "give action_time (RFC 3339) or delay (like 30m)"}
	}
}

// Past is what becomes of a time more than MaxPast ago.
type Past string

// The values of Past. The zero value is Refuse.
const (
	Refuse Past = "refuse" // a task.FieldError
	Fire   Past = "fire"   // the task is due at once. A time before 1970 counts as 1970
)

// isPast reports whether the time is one that Past decides about.
func (w When) isPast(now time.Time) bool {
	return w.kind == whenAt && w.at.Before(now.Add(-MaxPast))
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Submit asks for one task.
type Submit struct {
	BizType   string // name of the business type
	BizID     uint64
	BizKey    string // the biz_id where it is a text; BizID is then not needed. At most task.MaxBizKey bytes of UTF-8
	When      When
	Attribute string        // at most task.MaxAttribute bytes of UTF-8
	DedupKey  string        // at most task.MaxDedupKey bytes of UTF-8; empty: none
	Timeout   time.Duration // of one run: task.MinTimeout to task.MaxTimeout, rounded up to a millisecond; 0: the business type's

	// OnDuplicate is what happens to the first task if DedupKey exists already. Defaults to Keep.
	OnDuplicate OnDuplicate
	// Past is what becomes of a When that has passed. Defaults to Refuse.
	Past Past
	// Trace is the W3C traceparent that came with this task. Without one, or if it is none, the task has the span in ctx.
	Trace string
}

// Submitted is the result of a Submit.
type Submitted struct {
	Task      task.Task // as stored
	Duplicate bool      // the dedup_key existed: Task is the first task, unchanged or moved (see OnDuplicate)
	// Err is nil, task.FieldError, task.ErrUnavailable, or the error of a ctx that ended before writing began.
	// If a first task was to be moved, it may also be task.ConflictError.
	Err error
}

// check turns a request into a task, or names the field that is wrong.
func (s *Service) check(r *Submit, now time.Time) (task.Task, task.BizType, error) {
	b, err := s.named(r.BizType)
	if err != nil {
		return task.Task{}, b, err
	}
	due, err := r.When.resolve(now, r.Past)
	if err != nil {
		return task.Task{}, b, err
	}
	if err := checkText("attribute", r.Attribute, task.MaxAttribute); err != nil {
		return task.Task{}, b, err
	}
	if err := r.checkDuplicate(); err != nil {
		return task.Task{}, b, err
	}
	timeout := r.Timeout
	if timeout != 0 {
		if timeout, err = checkTimeout(timeout); err != nil {
			return task.Task{}, b, err
		}
	}
	bizID, bizKey, err := task.BizIDOf(r.BizID, r.BizKey)
	if err != nil {
		return task.Task{}, b, err
	}
	return task.Task{
		JobID: s.cfg.Store.NewID(bizID), BizID: bizID, BizKey: bizKey, BizType: b.ID,
		ActionTime: due, Attribute: r.Attribute, DedupKey: r.DedupKey, Timeout: timeout,
	}, b, nil
}

// checkTimeout rounds a time-out up to the precision of the store.
func checkTimeout(d time.Duration) (time.Duration, error) {
	if d < task.MinTimeout || d > task.MaxTimeout {
		return 0, &task.FieldError{Field: "timeout", Message: fmt.Sprintf("%s is out of range; give 1ms to 24h", d)}
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond), nil
}

// named returns the business type of a request's field biz_type, or a task.FieldError.
func (s *Service) named(name string) (task.BizType, error) {
	b, err := s.Types().Find(name)
	if unknown, is := errors.AsType[*task.UnknownTypeError](err); is {
		err = &task.FieldError{Field: "biz_type", Message: unknown.Message()}
	}
	return b, err
}

func checkText(field, text string, most int) error {
	if len(text) > most {
		return &task.FieldError{Field: field, Message: fmt.Sprintf("has %d bytes; at most %d fit", len(text), most)}
	}
	if !utf8.ValidString(text) {
		return &task.FieldError{Field: field, Message: "is not valid UTF-8"}
	}
	return nil
}

// Submit stores one task durably. After a nil error it is committed.
func (s *Service) Submit(ctx context.Context, r Submit) (Submitted, error) {
	result := s.SubmitBatch(ctx, []Submit{r})[0]
	return result, result.Err
}

// SubmitBatch stores many tasks and returns a result for each, in order. A refused one does not affect the
// others.
func (s *Service) SubmitBatch(ctx context.Context, requests []Submit) []Submitted {
	results := make([]Submitted, len(requests))
	tasks := make([]task.Task, 0, len(requests))
	places := make([]int, 0, len(requests)) // indexes of tasks in results
	types := make([]task.BizType, 0, len(requests))
	var replays []replay
	traces := s.traceSubmits(ctx, requests)
	now := s.cfg.Now()
	for i := range requests {
		t, b, err := s.check(&requests[i], now)
		if err != nil {
			results[i].Err = err
			if requests[i].isReplay(b, now) {
				replays = append(replays, replay{&requests[i], b.ID, &results[i]})
			}
			continue
		}
		t.Trace = traces.of(i)
		tasks, places, types = append(tasks, t), append(places, i), append(types, b)
	}

	// Hold tasks that are due soon before a scan can see their rows, so that only this call queues them.
	holds := s.holdQueued(ctx, tasks)
	// Insert waits for its commit even if the caller leaves, so a stored task is always queued.
	stored := tasks[:0]
	var late []uint64
	isAgain := func(i int) bool { return requests[places[i]].OnDuplicate == Again }
	for i, in := range s.cfg.Store.InsertAgain(ctx, tasks, isAgain) {
		results[places[i]] = Submitted{Task: in.Task, Duplicate: in.Duplicate, Err: in.Err}
		id := tasks[i].JobID
		queued := s.releaseSubmitted(holds[id], id, in)
		if in.Err == nil && !in.Duplicate {
			s.cfg.Observer.Submitted(types[i], 1)
			stored = append(stored, in.Task)
			if !queued && s.cfg.Dispatch.Where(&in.Task) == dispatch.Queue {
				late = append(late, in.Task.JobID)
			}
		}
	}
	s.wakeLate(ctx, late)
	s.cfg.Dispatch.Place(stored...)
	s.moveDuplicates(ctx, requests, results)
	s.answerReplays(ctx, replays)
	s.confirmFirst(requests, results)
	traces.end(requests, results)
	return results
}

// wakeLate queues tasks that were not due soon before the insert and are now. The tick that would have found
// them came while they were being inserted.
func (s *Service) wakeLate(ctx context.Context, jobIDs []uint64) {
	if len(jobIDs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
	defer cancel()
	for part := range slices.Chunk(jobIDs, MaxWake) {
		s.Wake(ctx, part)
	}
}

// holdQueued holds the tasks that belong into this node's queue.
func (s *Service) holdQueued(ctx context.Context, tasks []task.Task) map[uint64]*queue.Hold {
	var holds map[uint64]*queue.Hold
	for i := range tasks {
		t := &tasks[i]
		if s.cfg.Dispatch.Where(t) != dispatch.Queue {
			continue
		}
		p, _ := s.partition(t.JobID)
		if h, err := s.cfg.Queue.Hold(ctx, t.JobID, p); err == nil {
			if holds == nil {
				holds = make(map[uint64]*queue.Hold)
			}
			holds[t.JobID] = h
		}
	}
	return holds
}

// releaseSubmitted ends the hold of a task that was just inserted, and reports whether the hold was of its row.
// If the row is another's, took another job_id, or may not exist, the scanner finds what the store has.
func (s *Service) releaseSubmitted(h *queue.Hold, jobID uint64, in store.Inserted) bool {
	switch {
	case h == nil:
		return false
	case in.Err == nil && !in.Duplicate && in.Task.JobID == jobID:
		s.release(h, in.Task)
		return true
	default:
		h.Remove()
		return false
	}
}
