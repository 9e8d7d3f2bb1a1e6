package traffic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/task"
)

// changeSomehow lets a caller or a hand do one thing to a task.
func (l actor) changeSomehow(ctx context.Context, h *audit.History) {
	switch l.IntN(13) {
	case 0, 1:
		l.byAPI(h, audit.Cancelled)
	case 2, 3, 4:
		l.byAPI(h, audit.Rescheduled)
	case 5, 6:
		l.byTag(ctx, h)
	case 7:
		l.byHand(h, audit.Cancelled)
	case 8, 9:
		l.byHand(h, audit.Rescheduled)
	case 10:
		if h.Key != "" {
			l.byAPI(h, audit.Resubmitted)
		}
	case 11:
		l.byHand(h, []string{audit.Edited, audit.Lowered}[l.IntN(2)])
	default:
		l.lock(ctx, h)
	}
}

// byAPI asks any node for a change.
func (l actor) byAPI(h *audit.History, kind string) {
	at := l.center.Any(l.Rand, "")
	if at == nil {
		return
	}
	c := &audit.Change{Kind: kind, Sent: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), RequestTimeout)
	defer cancel()
	var err error
	switch kind {
	case audit.Cancelled:
		c.Set.Status = new(task.Cancelled)
		err = at.API.Cancel(ctx, h.JobID)
	case audit.Redriven:
		c.From = task.Dead
		c.Set.Status, c.Set.Attempts = new(task.Pending), new(int)
		_, err = at.API.Redrive(ctx, h.JobID)
		c.Set.Low, c.Set.High = c.Sent.Add(-time.Second), time.Now().Add(time.Second)
		if err != nil {
			c.Set.High = time.Now().Add(audit.Undecided)
		}
	case audit.Resubmitted:
		due, text := l.ahead(), "s"+strconv.FormatUint(l.keys.Add(1), 10)
		c.Set = audit.Effect{Low: due, High: due, Attribute: audit.TextHash(text), HasAttribute: true}
		_, err = at.API.Submit(ctx, client.Submit{BizType: h.BizType, BizID: h.BizID, DedupKey: h.Key, ActionTime: due, Attribute: text,
			OnDuplicate: client.Move})
	case audit.Rescheduled:
		due := l.ahead()
		c.Set.Low, c.Set.High = due, due
		ask := client.Change{ActionTime: due}
		if l.IntN(2) == 0 {
			ask.Attribute = new("r" + strconv.FormatUint(l.keys.Add(1), 10))
			c.Set.Attribute, c.Set.HasAttribute = audit.TextHash(*ask.Attribute), true
		}
		_, err = at.API.Reschedule(ctx, h.JobID, ask)
	}
	l.settle(h, c, err)
}

// settle writes down what came of a change by the API.
func (l actor) settle(h *audit.History, c *audit.Change, err error) {
	c.Answered = time.Now()
	var refusal *client.Error
	switch isRefusal := errors.As(err, &refusal); {
	case err == nil:
		c.Done = audit.Made
	case isRefusal && refusal.Status == http.StatusConflict:
		l.conflicts.Add(1)
		c.ByState = true
		if conflict, ok := errors.AsType[*task.ConflictError](err); ok {
			c.Conflict = conflict.Conflict
		}
	case isRefusal && refusal.Status == http.StatusPreconditionFailed && !c.Read.IsZero():
		l.preconditions.Add(1)
		c.Mismatch = true
	case isRefusal && refusal.Status < 500:
		l.problem("refused to %s task %d: %v", c.Kind, h.JobID, err)
	default:
		c.Done = audit.Unknown
		l.unavailable.Add(1)
	}
	h.Add(c)
}

// byTag reschedules a task as it was read; at times a hand or a caller changes it in between.
func (l actor) byTag(ctx context.Context, h *audit.History) {
	asked := time.Now()
	tag, err := l.tagged(ctx, h, http.MethodGet, "", nil)
	read := time.Now()
	if err != nil || tag == "" {
		l.untagged.Add(1)
		return
	}
	between := func() { Wait(ctx, time.Millisecond) } // in virtual time all would be one instant, and its calls could have any order
	between()
	switch l.IntN(4) {
	case 0:
		l.byHand(h, audit.Rescheduled)
		between()
	case 1:
		l.byAPI(h, audit.Rescheduled)
		between()
	}
	due := l.ahead()
	c := &audit.Change{Kind: audit.Rescheduled, Asked: asked, Read: read, Sent: time.Now(), Set: audit.Effect{Low: due, High: due}}
	_, err = l.tagged(ctx, h, http.MethodPatch, tag, []byte(fmt.Sprintf(`{"action_time":%q}`, due.Format(time.RFC3339Nano))))
	l.settle(h, c, err)
}

// tagged sends a request with If-Match, and gives the ETag of the answer; empty: it has none.
func (l actor) tagged(ctx context.Context, h *audit.History, method, tag string, body []byte) (string, error) {
	at := l.center.Any(l.Rand, "")
	if at == nil {
		return "", errors.New("no node is up")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, at.URL+"/v1/tasks/"+strconv.FormatUint(h.JobID, 10), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if tag != "" {
		r.Header.Set("If-Match", tag)
	}
	answer, err := l.center.HTTP.Do(r)
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
func (l actor) redriveDead(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(l.center.Redrive, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, id := range l.dead() {
			h := l.historyOf(id)
			if h == nil || ctx.Err() != nil || h.Poison || h.ChangesMade(audit.Redriven) >= 2 || l.IntN(2) == 0 {
				continue
			}
			if l.IntN(2) == 0 {
				l.byAPI(h, audit.Redriven)
			} else {
				l.byHand(h, audit.Redriven)
			}
		}
	}
}
