package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// undecided is for how long a change without an answer may still be made.
const undecided = 30 * time.Second

// changeSomehow lets a caller or a hand do one thing to a task.
func (l *load) changeSomehow(ctx context.Context, h *history) {
	switch rand.IntN(13) {
	case 0, 1:
		l.byAPI(h, cancelled)
	case 2, 3, 4:
		l.byAPI(h, rescheduled)
	case 5, 6:
		l.byTag(ctx, h)
	case 7:
		l.hands.change(l, h, cancelled)
	case 8, 9:
		l.hands.change(l, h, rescheduled)
	case 10:
		if h.key != "" {
			l.byAPI(h, resubmitted)
		}
	case 11:
		l.hands.change(l, h, []string{edited, lowered}[rand.IntN(2)])
	default:
		l.hands.lock(ctx, l, h)
	}
}

// byAPI asks any node for a change.
func (l *load) byAPI(h *history, kind string) {
	api := l.fleet.anyAPI()
	if api == nil {
		return
	}
	c := &change{kind: kind, sent: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var err error
	switch kind {
	case cancelled:
		c.set.status = new(task.Cancelled)
		err = api.Cancel(ctx, h.jobID)
	case redriven:
		c.from = task.Dead
		c.set.status, c.set.attempts = new(task.Pending), new(int)
		_, err = api.Redrive(ctx, h.jobID)
		c.set.low, c.set.high = c.sent.Add(-time.Second), time.Now().Add(time.Second)
		if err != nil {
			c.set.high = time.Now().Add(undecided)
		}
	case resubmitted:
		due, text := ahead(), "s"+strconv.FormatUint(l.keys.Add(1), 10)
		c.set = effect{low: due, high: due, attribute: textHash(text), hasAttribute: true}
		_, err = api.Submit(ctx, client.Submit{BizType: h.bizType, BizID: h.bizID, DedupKey: h.key, ActionTime: due, Attribute: text,
			OnDuplicate: client.Move})
	case rescheduled:
		due := ahead()
		c.set.low, c.set.high = due, due
		ask := client.Change{ActionTime: due}
		if rand.IntN(2) == 0 {
			ask.Attribute = new("r" + strconv.FormatUint(l.keys.Add(1), 10))
			c.set.attribute, c.set.hasAttribute = textHash(*ask.Attribute), true
		}
		_, err = api.Reschedule(ctx, h.jobID, ask)
	}
	l.settle(h, c, err)
}

// settle writes down what came of a change by the API.
func (l *load) settle(h *history, c *change, err error) {
	c.answered = time.Now()
	var refusal *client.Error
	switch isRefusal := errors.As(err, &refusal); {
	case err == nil:
		c.done = made
	case isRefusal && refusal.Status == http.StatusConflict:
		l.conflicts.Add(1)
	case isRefusal && refusal.Status == http.StatusPreconditionFailed && !c.read.IsZero():
		l.preconditions.Add(1)
		c.mismatch = true
	case isRefusal && refusal.Status < 500:
		l.problem("refused to %s task %d: %v", c.kind, h.jobID, err)
	default:
		c.done = unknown
		l.unavailable.Add(1)
	}
	h.add(c)
}

// byTag reschedules a task as it was read; at times a hand or a caller changes it in between.
func (l *load) byTag(ctx context.Context, h *history) {
	asked := time.Now()
	tag, err := l.tagged(ctx, h, http.MethodGet, "", nil)
	read := time.Now()
	if err != nil || tag == "" {
		l.untagged.Add(1)
		return
	}
	switch rand.IntN(4) {
	case 0:
		l.hands.change(l, h, rescheduled)
	case 1:
		l.byAPI(h, rescheduled)
	}
	due := ahead()
	c := &change{kind: rescheduled, asked: asked, read: read, sent: time.Now(), set: effect{low: due, high: due}}
	_, err = l.tagged(ctx, h, http.MethodPatch, tag, []byte(fmt.Sprintf(`{"action_time":%q}`, due.Format(time.RFC3339Nano))))
	l.settle(h, c, err)
}

// tagged sends a request with If-Match, and gives the ETag of the answer; empty: it has none.
func (l *load) tagged(ctx context.Context, h *history, method, tag string, body []byte) (string, error) {
	n := l.fleet.any(nil)
	if n == nil {
		return "", errors.New("no node is up")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, n.url()+"/v1/tasks/"+strconv.FormatUint(h.jobID, 10), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if tag != "" {
		r.Header.Set("If-Match", tag)
	}
	answer, err := l.fleet.http.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode > 299 {
		return "", &client.Error{Status: answer.StatusCode, Title: string(text)}
	}
	return answer.Header.Get("ETag"), nil
}

// redriveDead gives dead tasks another chance, up to twice each: by the API, or by hand with and without a fresh set of
// retries.
func (l *load) redriveDead(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, id := range l.hands.dead(l) {
			h := l.historyOf(id)
			if h == nil || ctx.Err() != nil || h.attribute == poison || h.changesMade(redriven) >= 2 || rand.IntN(2) == 0 {
				continue
			}
			if rand.IntN(2) == 0 {
				l.byAPI(h, redriven)
			} else {
				l.hands.change(l, h, redriven)
			}
		}
	}
}
