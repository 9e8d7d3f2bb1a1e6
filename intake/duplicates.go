package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/task"
)

// OnDuplicate says what a submit does to the task that has its dedup_key already.
type OnDuplicate string

// The ways.
const (
	Keep OnDuplicate = "keep" // nothing
	Move OnDuplicate = "move" // gives it this time, attribute and, where one is given, timeout; it must be pending
)

func (r *Submit) checkDuplicate() error {
	switch {
	case r.OnDuplicate != "" && r.OnDuplicate != Keep && r.OnDuplicate != Move:
		return &task.FieldError{Field: "on_duplicate", Message: fmt.Sprintf("%.64q is neither keep nor move", r.OnDuplicate)}
	case r.OnDuplicate != "" && r.DedupKey == "":
		return &task.FieldError{Field: "on_duplicate", Message: "needs a dedup_key; without one there are no duplicates"}
	}
	return checkText("dedup_key", r.DedupKey, task.MaxDedupKey)
}

// moveDuplicates moves the first tasks of those requests that ask for it. Several
// requests for one task are obeyed in order, whichever of them was stored.
func (d *Desk) moveDuplicates(ctx context.Context, requests []Submit, results []Submitted) {
	var order [][]int // places in requests, by task
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
	g.SetLimit(moves)
	for _, places := range order {
		if len(places) == 1 && !results[places[0]].Duplicate {
			continue
		}
		g.Go(func() error {
			for n, i := range places {
				if n > 0 || results[i].Duplicate {
					d.moveFirst(ctx, &requests[i], &results[i])
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// moves is how many first tasks a batch moves at the same time: they share commits.
const moves = 256

func (d *Desk) moveFirst(ctx context.Context, r *Submit, result *Submitted) {
	c := Change{When: &r.When, Attribute: &r.Attribute}
	if r.Timeout != 0 {
		c.Timeout = &r.Timeout
	}
	moved, err := d.Reschedule(ctx, result.Task.JobID, c)
	if errors.Is(err, task.ErrNotFound) { // purged a moment ago
		err = Unavailable("task %d has just been deleted; submit again", result.Task.JobID)
	}
	if err != nil {
		*result = Submitted{Err: err}
		return
	}
	result.Task = moved
}

// replay is a request whose time has passed, and which may have been answered when
// it had not.
type replay struct {
	*Submit
	bizType uint64
	result  *Submitted
}

// replayed tells whether a refused request may be a replay.
func (r *Submit) replayed(b task.BizType, now time.Time) bool {
	late := r.When.kind == whenAt && r.When.at.Before(now.Add(-MaxPast))
	return late && b.ID != 0 && r.DedupKey != "" && r.OnDuplicate != Move && r.checkDuplicate() == nil
}

// Bounds of looking up first tasks: how many at the same time, and how long all
// those of a batch may take.
const (
	lookUps        = 8
	lookUpPatience = 10 * time.Second
)

// answerReplays answers requests whose dedup_key is known with the first task, as if
// they had come in time. The others stay refused.
func (d *Desk) answerReplays(ctx context.Context, replays []replay) {
	if len(replays) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpPatience)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(lookUps)
	for _, r := range replays {
		g.Go(func() error {
			bizID, bizKey, err := task.BizIDOf(r.BizID, r.BizKey)
			if err != nil {
				return nil // stays refused
			}
			switch first, err := d.cfg.Store.First(ctx, bizID, bizKey, r.bizType, r.DedupKey); {
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
