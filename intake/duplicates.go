package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/task"
)

// OnDuplicate is what a submit does if a task already has its dedup_key.
type OnDuplicate string

// The values of OnDuplicate.
const (
	Keep  OnDuplicate = "keep"  // changes nothing
	Move  OnDuplicate = "move"  // gives the task this time, attribute and timeout, if there is one; the task must be pending
	Again OnDuplicate = "again" // as Keep while the task is pending; if it has ended, a new task gets the dedup_key
)

func (r *Submit) checkDuplicate() error {
	switch {
	case r.OnDuplicate != "" && r.OnDuplicate != Keep && r.OnDuplicate != Move && r.OnDuplicate != Again:
		return &task.FieldError{Field: "on_duplicate", Message: fmt.Sprintf("%.64q is none of keep, move and again", r.OnDuplicate)}
	case r.OnDuplicate != "" && r.DedupKey == "":
		return &task.FieldError{Field: "on_duplicate", Message: "needs a dedup_key; without one there are no duplicates"}
	}
	return checkText("dedup_key", r.DedupKey, task.MaxDedupKey)
}

// moveDuplicates moves the first tasks of the requests with on_duplicate: move. Several requests for one task
// apply in their order, whichever of them was stored.
func (s *Service) moveDuplicates(ctx context.Context, requests []Submit, results []Submitted) {
	var order [][]int // indexes of requests, by task
	index := make(map[uint64]int)
	for i := range results {
		if requests[i].OnDuplicate != Move || results[i].Err != nil {
			continue
		}
		id := results[i].Task.JobID
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
		if len(places) == 1 && !results[places[0]].Duplicate {
			continue
		}
		g.Go(func() error {
			for n, i := range places {
				if n > 0 || results[i].Duplicate {
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
func (s *Service) moveFirst(ctx context.Context, r *Submit, result *Submitted) {
	c := Change{When: &r.When, Attribute: &r.Attribute, Past: r.Past}
	if r.Timeout != 0 {
		c.Timeout = &r.Timeout
	}
	first := result.Task
	end, err := s.beginMove(ctx, first.JobID)
	if err != nil {
		*result = Submitted{Err: err}
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
		err = NotBegun("task %d has just been deleted; submit again", result.Task.JobID)
	}
	if err != nil {
		*result = Submitted{Err: err}
		return
	}
	result.Task = moved
}

const moveTries = 100

// confirmFirst puts first tasks where they wait, in case they were lost there: their callers may submit again because they
// wait in vain.
func (s *Service) confirmFirst(requests []Submit, results []Submitted) {
	var first []task.Task
	for i, r := range results {
		if r.Err == nil && r.Duplicate && r.Task.Status == task.Pending && requests[i].OnDuplicate != Move {
			first = append(first, r.Task)
		}
	}
	if len(first) > 0 {
		s.cfg.Dispatch.Confirm(first...)
	}
}

// beginMove waits until no other move of a first task is under way on this node.
func (s *Service) beginMove(ctx context.Context, jobID uint64) (end func(), err error) {
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

func (s *Service) moveAsRead(ctx context.Context, first *task.Task, c Change) (task.Task, error) {
	if ctx.Err() != nil { // an insert does not end with its caller
		return task.Task{}, errGivenUp
	}
	c.IfMatch = []string{first.Tag()}
	return s.Reschedule(ctx, first.JobID, c)
}

// replay is a request whose time has passed. It may repeat a request that was accepted when the time had not
// passed.
type replay struct {
	*Submit
	bizType uint64
	result  *Submitted
}

// isReplay reports whether a refused request may be a replay.
func (r *Submit) isReplay(b task.BizType, now time.Time) bool {
	return r.When.isPast(now) && b.ID != 0 && r.DedupKey != "" && r.OnDuplicate != Move && r.checkDuplicate() == nil
}

// Bounds of the look-ups of first tasks: how many run at a time, and how long those of one batch may take.
const (
	concurrentLookUps = 8
	lookUpTimeout     = 10 * time.Second
)

// answerReplays answers a request whose dedup_key exists with the first task, as if the request had come in
// time. The others stay refused, also those for which a new task would take the key.
func (s *Service) answerReplays(ctx context.Context, replays []replay) {
	if len(replays) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(concurrentLookUps)
	for _, r := range replays {
		g.Go(func() error {
			bizID, bizKey, err := task.BizIDOf(r.BizID, r.BizKey)
			if err != nil {
				return nil // stays refused
			}
			switch first, err := s.cfg.Store.First(ctx, bizID, bizKey, r.bizType, r.DedupKey); {
			case err == nil && r.OnDuplicate == Again && first.Status != task.Pending:
			case err == nil:
				*r.result = Submitted{Task: first, Duplicate: true}
			case !errors.Is(err, task.ErrNotFound):
				r.result.Err = err
			}
			return nil
		})
	}
	_ = g.Wait()
}
