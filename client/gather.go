package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/groupcommit"
)

// WithGathering says whether the Submits of concurrent callers go to the center in one request, which costs both sides less.
// A submit is sent at once, unless two requests are under way; what comes meanwhile is the next request. Each caller gets the answer
// to a single submit, when all submits of the request are answered. On by default, but not with WithHTTPClient,
// whose transport may read the contexts of the callers, as one does that traces requests.
func WithGathering(on bool) Option { return func(c *Client) { c.gathers = &on } }

// The limits of gathering. The largest request has less than a MiB, which proxies let through.
const (
	gatherTasks  = 256                   // in a request
	gatherBytes  = 4000                  // of a task; a larger one goes alone
	gatherFlight = 2                     // requests under way
	gatherSlow   = 50 * time.Millisecond // a request that takes longer holds up no other: the row of one of its tasks may be locked
	gatherPause  = time.Minute           // all go alone for so long after a server has refused to take them together
)

// gatherer sends the submits of concurrent callers together.
type gatherer struct {
	client *Client
	// groups are by isSafe: submits that may be repeated at another server never go together with the others.
	groups      map[bool]*groupcommit.Group[*gathered]
	pausedUntil atomic.Int64 // Unix time in ns
}

// gathered is the submit of a caller, and its answer.
type gathered struct {
	ctx      context.Context
	text     []byte
	isSafe   bool
	answered chan struct{} // closed when the answer is here
	task     Task
	status   int
	err      error
}

func newGatherer(c *Client) *gatherer {
	g := &gatherer{client: c, groups: make(map[bool]*groupcommit.Group[*gathered])}
	for _, isSafe := range []bool{false, true} {
		g.groups[isSafe] = groupcommit.New(gatherTasks, gatherFlight, g.flush)
	}
	return g
}

// takes reports whether a submit may go together with others.
func (g *gatherer) takes(s *gathered) bool {
	return g != nil && len(s.text) <= gatherBytes && s.ctx.Err() == nil && time.Now().UnixNano() >= g.pausedUntil.Load()
}

// submit waits for the answer, or until the caller's context ends.
func (g *gatherer) submit(s *gathered) (Task, int, error) {
	s.answered = make(chan struct{})
	g.groups[s.isSafe].Add(s)
	select {
	case <-s.answered:
		return s.task, s.status, s.err
	case <-s.ctx.Done():
		return Task{}, 0, fmt.Errorf("POST /v1/tasks: %w", s.ctx.Err())
	}
}

// flush sends a batch. It returns when all of it is answered, or when that takes long.
func (g *gatherer) flush(batch []*gathered) {
	list := slices.DeleteFunc(slices.Clone(batch), func(s *gathered) bool { return s.ctx.Err() != nil })
	done := make(chan struct{})
	go func() {
		defer close(done)
		if len(list) > 1 {
			list = g.sendTogether(list)
		}
		var alone sync.WaitGroup
		for _, s := range list {
			alone.Go(func() {
				s.task, s.status, s.err = g.client.submitAlone(s)
				close(s.answered)
			})
		}
		alone.Wait()
	}()
	select {
	case <-done:
	case <-time.After(gatherSlow):
	}
}

// sendTogether sends a list in one request, and returns the submits that must go alone.
func (g *gatherer) sendTogether(list []*gathered) (alone []*gathered) {
	ctx, cancel := context.WithCancelCause(context.Background()) // of no caller
	defer cancel(nil)
	var left atomic.Int32
	text := []byte(`{"full":true,"tasks":[`)
	for i, s := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, s.text...)
		defer context.AfterFunc(s.ctx, func() {
			if int(left.Add(1)) == len(list) { // nobody waits for an answer
				cancel(s.ctx.Err())
			}
		})()
	}
	text = append(text, `]}`...)

	var answer api.BatchAnswer
	_, err := g.client.each(ctx, list[0].isSafe, func(ctx context.Context, base string) (int, error) {
		return g.client.send(ctx, base, http.MethodPost, batchPath, text, &answer, nil)
	})
	if isForGood(err) { // nothing is stored; the server is older than this client, say
		g.pausedUntil.Store(time.Now().Add(gatherPause).UnixNano())
		return list
	}
	if err == nil && len(answer.Results) != len(list) {
		err = fmt.Errorf("%s: the answer has %d results for %d tasks", batchPath, len(answer.Results), len(list))
	}
	for i, s := range list {
		if s.err = err; err == nil {
			s.read(answer.Results[i].Answer)
		}
		if err == nil && s.err != nil && goesOn(s.err, s.isSafe) && g.client.hasOthers() {
			alone = append(alone, s)
			continue
		}
		close(s.answered)
	}
	return alone
}

// read reads the answer to one task of a request.
func (s *gathered) read(a *api.SubmitAnswer) {
	switch {
	case a != nil && a.Problem != nil:
		s.status, s.err = a.Status, a.Problem
		a.Problem.RetryAfter = time.Duration(a.RetryAfter) * time.Second
	case a != nil && a.Task != nil:
		s.status, s.task = a.Status, *a.Task
		s.task.ETag = a.ETag
	default:
		s.err = errors.New(batchPath + ": the answer has neither a task nor a problem")
	}
}
