package intake

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/task"
)

func checkDuplicate(r *api.Submit) error {
	switch {
	case r.OnDuplicate != "" && r.OnDuplicate != api.Keep && r.OnDuplicate != api.Move && r.OnDuplicate != api.Again:
		return task.Wrong("on_duplicate", "%.64q is none of keep, move and again", r.OnDuplicate)
	case r.OnDuplicate != "" && r.DedupKey == "":
		return task.Wrong("on_duplicate", "needs a dedup_key; without one there are no duplicates")
	}
	return checkText("dedup_key", r.DedupKey, task.MaxDedupKey)
}

// moveDuplicates moves the first tasks of the requests with on_duplicate: move. Several requests for one task
// apply in their order, whichever of them was stored.
func (s *submits) moveDuplicates(ctx context.Context, requests []api.Submit, results []submitted) {
	if !slices.ContainsFunc(requests, func(r api.Submit) bool { return r.OnDuplicate == api.Move }) {
		return // most submits, which should not pay for the rest
	}
	var order [][]int // indexes of requests, by task
	index := make(map[uint64]int)
	for i := range results {
		if requests[i].OnDuplicate != api.Move || results[i].err != nil {
			continue
		}
		id := results[i].task.JobID
		at, known := index[id]
		if !known {
			at = len(order)
			index[id] = at
			order = append(order, nil)
		}
		order[at] = append(order[at], i)
	}
	var g errgroup.Group
	g.SetLimit(concurrentMoves)
	for _, places := range order {
		if len(places) == 1 && !results[places[0]].duplicate {
			continue
		}
		g.Go(func() error {
			for n, i := range places {
				if n > 0 || results[i].duplicate {
					s.moveFirst(ctx, &requests[i], &results[i])
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// concurrentMoves is the number of first tasks that a batch moves at a time. Concurrent moves share commits.
const concurrentMoves = 256

// moveFirst moves a task if it is still as it was read, or else reads it again: a statement that reaches the database late, when
// its caller has long given up, does not come behind a newer move. The callers of this node take turns, so only other nodes and
// hands change the task meanwhile.
func (s *submits) moveFirst(ctx context.Context, r *api.Submit, result *submitted) {
	c := api.Change{ActionTime: r.ActionTime, Attribute: &r.Attribute, Timeout: r.Timeout, Past: r.Past}
	if c.ActionTime.IsZero() {
		c.Delay = r.FromNow()
	}
	first := result.task
	end, err := s.beginMove(ctx, first.JobID)
	if err != nil {
		*result = submitted{err: err}
		return
	}
	defer end()
	moved, err := s.moveAsRead(ctx, &first, c)
	for try := 0; ; try++ {
		if _, changed := errors.AsType[*task.ChangedError](err); !changed {
			break
		}
		if try == moveTries {
			err = NotBegun("task %d keeps changing; submit again", first.JobID)
			break
		}
		if first, err = s.cfg.Store.Get(ctx, first.JobID); err == nil {
			moved, err = s.moveAsRead(ctx, &first, c)
		}
	}
	if errors.Is(err, task.ErrNotFound) { // purged a moment ago
		err = NotBegun("task %d has just been deleted; submit again", result.task.JobID)
	}
	if err != nil {
		*result = submitted{err: err}
		return
	}
	result.task = moved
}

const moveTries = 100

// confirmFirst puts first tasks where they wait, in case they were lost there: their callers may submit again because they
// wait in vain.
func (s *submits) confirmFirst(requests []api.Submit, results []submitted) {
	var first []dispatch.Change
	for i := range results {
		r := &results[i]
		if r.err == nil && r.duplicate && r.task.Status == task.Pending && requests[i].OnDuplicate != api.Move {
			first = append(first, dispatch.Change{Kind: dispatch.Confirmed, Row: &r.task})
		}
	}
	s.cfg.Dispatch.Moved(first...)
}

// beginMove waits until no other move of a first task is under way on this node.
func (s *submits) beginMove(ctx context.Context, jobID uint64) (end func(), err error) {
	mine := make(chan struct{})
	for {
		other, busy := s.moving.LoadOrStore(jobID, mine)
		if !busy {
			return func() { s.moving.Delete(jobID); close(mine) }, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, errGivenUp
		}
	}
}

var errGivenUp = NotBegun("the submit was given up")

func (s *submits) moveAsRead(ctx context.Context, first *task.Task, c api.Change) (task.Task, error) {
	if ctx.Err() != nil { // an insert does not end with its caller
		return task.Task{}, errGivenUp
	}
	moved, err := s.changes.Reschedule(ctx, first.JobID, c, api.IfMatch(first.Tag()))
	if err != nil {
		return task.Task{}, err
	}
	return moved.Task(first.BizType)
}

// replay is a request whose time has passed. It may repeat a request that was accepted when the time had not
// passed.
type replay struct {
	*api.Submit
	bizType uint64
	result  *submitted
}

// isReplay reports whether a refused request may be a replay.
func isReplay(r *api.Submit, b task.BizType, now time.Time) bool {
	return isPast(now, r.ActionTime) && b.ID != 0 && r.DedupKey != "" && r.OnDuplicate != api.Move && checkDuplicate(r) == nil
}

// Bounds of the look-ups of first tasks: how many run at a time, and how long those of one batch may take.
const (
	concurrentLookUps = 8
	lookUpTimeout     = 10 * time.Second
)

// answerReplays answers a request whose dedup_key exists with the first task, as if the request had come in
// time. The others stay refused, also those for which a new task would take the key.
func (s *submits) answerReplays(ctx context.Context, replays []replay) {
	if len(replays) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(concurrentLookUps)
	for _, r := range replays {
		g.Go(func() error {
			bizID, bizKey, err := task.BizIDOf(r.BizID, r.BizKey)
			if err != nil {
				return nil // stays refused
			}
			switch first, err := s.cfg.Store.First(bounded, bizID, bizKey, r.bizType, r.DedupKey); {
			case err == nil && r.OnDuplicate == api.Again && first.Status != task.Pending:
			case err == nil:
				*r.result = submitted{task: first, duplicate: true}
			case !errors.Is(err, task.ErrNotFound):
				r.result.err = err
			}
			return nil
		})
	}
	_ = g.Wait()
}
