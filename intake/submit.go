package intake

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/tracing"
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

// resolve returns the time at which a task fires, in UTC and whole milliseconds, or an error that says what is wrong. A zero at and a nil
// delay are no time.
func resolve(now, at time.Time, delay *time.Duration, past string) (time.Time, error) {
	if past != "" && past != api.Refuse && past != api.Fire {
		return time.Time{}, task.Wrong("past", "%.64q is neither fire nor refuse", past)
	}
	switch {
	case !at.IsZero() && delay != nil:
		return time.Time{}, task.Wrong("action_time", "give either ActionTime or Delay, not both")
	case at.IsZero() && delay == nil:
		return time.Time{}, api.NoTime()
	case at.IsZero() && *delay < 0:
		return time.Time{}, task.Wrong("delay", "%s is negative; give a delay from now, 0s or more", *delay)
	case at.IsZero() && *delay > MaxAhead:
		return time.Time{}, task.Wrong("delay", "%s is more than 10 years", *delay)
	case at.IsZero():
		return task.CeilMilli(now.Add(*delay)), nil
	case isPast(now, at) && past == api.Fire && at.Before(time.Unix(0, 0)):
		return time.Unix(0, 0).UTC(), nil
	case isPast(now, at) && past == api.Fire:
		return task.CeilMilli(at), nil
	case isPast(now, at):
		return time.Time{}, task.Wrong("action_time", "%s is more than %s ago; it is %s now. With past: fire the task would be due at once",
			at.UTC().Format(time.RFC3339Nano), MaxPast, now.UTC().Format(time.RFC3339))
	case at.After(now.Add(MaxAhead)):
		return time.Time{}, task.Wrong("action_time", "%s is more than 10 years ahead", at.UTC().Format(time.RFC3339Nano))
	}
	return task.CeilMilli(at), nil
}

// isPast reports whether a time is one that Past decides about.
func isPast(now, at time.Time) bool { return !at.IsZero() && at.Before(now.Add(-MaxPast)) }

// submitted is the result of a submit.
type submitted struct {
	task      task.Task // as stored
	duplicate bool      // the dedup_key existed: task is the first task, unchanged or moved (see api.Submit)
	// err is nil, task.FieldError, task.ErrUnavailable, or the error of a ctx that ended before writing began.
	// If a first task was to be moved, it may also be task.ConflictError.
	err error
}

// check turns a request into a task, or names the field that is wrong.
func (s *submits) check(r *api.Submit, now time.Time) (task.Task, task.BizType, error) {
	b, err := s.named(r.BizType)
	if err != nil {
		return task.Task{}, b, err
	}
	var delay *time.Duration
	if r.ActionTime.IsZero() {
		delay = r.FromNow()
	}
	due, err := resolve(now, r.ActionTime, delay, r.Past)
	if err != nil {
		return task.Task{}, b, err
	}
	if err := checkText("attribute", r.Attribute, task.MaxAttribute); err != nil {
		return task.Task{}, b, err
	}
	if err := checkDuplicate(r); err != nil {
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
		return 0, task.Wrong("timeout", "%s is out of range; give 1ms to 24h", d)
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond), nil
}

func checkText(field, text string, most int) error {
	if len(text) > most {
		return task.Wrong(field, "has %d bytes; at most %d fit", len(text), most)
	}
	return api.CheckText(field, text)
}

// Submit stores one task durably. After a nil error it is committed.
func (s *submits) Submit(ctx context.Context, r api.Submit) (api.Submitted, error) {
	got := s.submit(ctx, []api.Submit{r})[0]
	stored, err := s.shown(got.task, got.err)
	return api.Submitted{Task: stored, Duplicate: got.duplicate}, err
}

// SubmitBatch stores up to 10,000 tasks and returns a result for each of them, in order. A refused one does not
// affect the others. After an error none is stored.
func (s *submits) SubmitBatch(ctx context.Context, list []api.Submit) ([]api.BatchResult, error) {
	if n := len(list); n < 1 || n > MaxBatch {
		return nil, task.Wrong("tasks", "holds %d tasks; give 1 to %d", n, MaxBatch)
	}
	results := make([]api.BatchResult, len(list))
	for i, r := range s.submit(ctx, list) {
		if r.err != nil {
			results[i].Err = api.NewBatchError(r.err)
		} else {
			results[i] = api.BatchResult{JobID: api.ID(r.task.JobID), Duplicate: r.duplicate}
		}
	}
	return results, nil
}

// acceptedRequest is a request that has become a task.
type acceptedRequest struct {
	index   int // of the request
	bizType task.BizType
}

func (s *submits) submit(ctx context.Context, requests []api.Submit) []submitted {
	results := make([]submitted, len(requests))
	tasks := make([]task.Task, 0, len(requests))
	accepted := make([]acceptedRequest, 0, len(requests)) // by index of tasks
	var replays []replay
	traces := s.traceSubmits(ctx, requests)
	now := s.cfg.Now()
	for i := range requests {
		t, b, err := s.check(&requests[i], now)
		if err != nil {
			results[i].err = err
			if isReplay(&requests[i], b, now) {
				replays = append(replays, replay{&requests[i], b.ID, &results[i]})
			}
			continue
		}
		t.Trace = traces.of(i)
		tasks, accepted = append(tasks, t), append(accepted, acceptedRequest{i, b})
	}

	// Hold tasks that are due soon before a scan can see their rows, so that only this call queues them.
	holds := s.holdQueued(ctx, tasks)
	isAgain := func(i int) bool { return requests[accepted[i].index].OnDuplicate == api.Again }
	// It waits for the commits even if the caller leaves, so a stored task is always queued.
	s.insert(ctx, tasks, isAgain, func(decided []int, list []store.Inserted) {
		inserted := make([]dispatch.Change, 0, len(decided))
		for _, i := range decided {
			in, result, h := &list[i], &results[accepted[i].index], holds[i]
			*result = submitted{in.Task, in.Duplicate, in.Err}
			isNew := in.Err == nil && !in.Duplicate
			if h != nil && !(isNew && in.Task.JobID == tasks[i].JobID) { // the scanner finds the row that the store has
				h.Remove()
				h = nil
			}
			if isNew {
				s.cfg.Observer.Submitted(accepted[i].bizType, 1)
				inserted = append(inserted, dispatch.Change{Kind: dispatch.Inserted, Row: &result.task, Fresh: true, Hold: h})
			}
		}
		s.cfg.Dispatch.Moved(inserted...)
	})
	s.moveDuplicates(ctx, requests, results)
	s.answerReplays(ctx, replays)
	s.confirmFirst(requests, results)
	traces.end(requests, results)
	return results
}

// insert stores tasks, and passes their results on: of each task once, and before it waits for others. Where a task may take the key of one
// that has ended, one whose run has ended here is waited for: its outcome is about to be recorded.
func (s *submits) insert(ctx context.Context, tasks []task.Task, isAgain func(i int) bool,
	passOn func(decided []int, list []store.Inserted)) {
	var late []int
	var again []task.Task
	var waits []<-chan struct{}
	isPassed := make([]bool, len(tasks))
	sortOut := func(decided []int, list []store.Inserted) {
		ready := decided[:0]
		for _, i := range decided {
			if isPassed[i] {
				continue
			}
			isPassed[i] = true
			if recorded := s.awaitedFirst(&list[i], isAgain(i)); recorded != nil {
				late, again, waits = append(late, i), append(again, tasks[i]), append(waits, recorded)
			} else {
				ready = append(ready, i)
			}
		}
		passOn(ready, list)
	}
	all := make([]int, len(tasks))
	for i := range all {
		all[i] = i
	}
	results := s.cfg.Store.InsertAgain(ctx, tasks, isAgain, sortOut)
	sortOut(all, results)
	if late == nil {
		return
	}
	patience, cancel := context.WithTimeout(ctx, recordedPatience)
	defer cancel()
	for _, recorded := range waits {
		select {
		case <-recorded:
		case <-patience.Done():
		}
	}
	for n, in := range s.cfg.Store.InsertAgain(ctx, again, func(int) bool { return true }, nil) {
		results[late[n]] = in
	}
	passOn(late, results)
}

// awaitedFirst returns a channel that is closed when the outcome of a first task is recorded whose key a new one may take then; nil: there
// is none.
func (s *submits) awaitedFirst(in *store.Inserted, isAgain bool) <-chan struct{} {
	if in.Err != nil || !in.Duplicate || !isAgain || in.Task.Status != task.Pending {
		return nil
	}
	return s.cfg.Queue.Recorded(in.Task.JobID)
}

// holdQueued holds the tasks that belong into this node's queue. It returns a hold for each task, or nil.
func (s *submits) holdQueued(ctx context.Context, tasks []task.Task) []*queue.Hold {
	holds := make([]*queue.Hold, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if s.cfg.Dispatch.Where(t) != dispatch.Queue {
			continue
		}
		p, _ := s.partition(t.JobID)
		if h, err := s.cfg.Queue.Hold(ctx, t.JobID, p); err == nil {
			holds[i] = h
		}
	}
	return holds
}

// submitTraces are the traces of the requests of a SubmitBatch. A request with a traceparent has its own span. The others
// share one, a child of the span in ctx.
type submitTraces struct {
	shared *tracing.Span
	kept   string // the traceparent of the tasks without an own one
	own    map[int]ownTrace
}

type ownTrace struct {
	span *tracing.Span
	kept string
}

func (s *submits) traceSubmits(ctx context.Context, requests []api.Submit) (t submitTraces) {
	for i := range requests {
		if came, ok := tracing.WithRemote(ctx, requests[i].Trace); ok {
			if t.own == nil {
				t.own = make(map[int]ownTrace)
			}
			span, kept := s.cfg.Tracer.Submit(came)
			t.own[i] = ownTrace{span, kept}
		}
	}
	if len(t.own) < len(requests) {
		t.shared, t.kept = s.cfg.Tracer.Submit(ctx)
	}
	return t
}

// of returns the traceparent that the task of a request keeps.
func (t *submitTraces) of(i int) string {
	if own, ok := t.own[i]; ok {
		return own.kept
	}
	return t.kept
}

// end ends the spans.
func (t *submitTraces) end(requests []api.Submit, results []submitted) {
	if t.shared == nil && len(t.own) == 0 {
		return
	}
	for i, own := range t.own {
		own.span.EndSubmit(requests[i].BizType, results[i].task.JobID, results[i].err)
	}
	if len(requests) == 1 {
		t.shared.EndSubmit(requests[0].BizType, results[0].task.JobID, results[0].err)
		return
	}
	var failed error
	for i := range results {
		if _, own := t.own[i]; !own && failed == nil {
			failed = results[i].err
		}
	}
	t.shared.EndBatch(len(requests)-len(t.own), failed)
}
