package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/wire"
)

// Limits implements processor.Limited.
func (w *Processor) Limits() (tasks, workers int) { return max(1, w.batch), 0 }

// ProcessBatch posts tasks as a JSON array in one call. The receiver answers 2xx with a result for each task, or with one
// status for all: any other answer, or a 2xx without results.
func (w *Processor) ProcessBatch(ctx context.Context, tasks []task.Task) []error {
	verdicts := make([]error, len(tasks))
	err := w.call(ctx, w.several(tasks), func(resp *http.Response) { w.verdicts(resp, tasks, verdicts) })
	if err != nil {
		for i := range verdicts {
			verdicts[i] = err
		}
	}
	return verdicts
}

// several is the call of many tasks. It is never repeated as it is, so its id is new each time.
func (w *Processor) several(tasks []task.Task) message {
	body := []byte{'['}
	for i := range tasks {
		if i > 0 {
			body = append(body, ',')
		}
		body = wire.From(tasks[i], w.bizType).AppendJSON(body)
	}
	m := message{id: "batch_" + rand.Text(), body: append(body, ']')}
	if len(tasks) == 1 {
		m.trace = tasks[0].Trace
	}
	return m
}

// resultSize is what a result may take of an answer to a batch, in bytes.
const resultSize = 1 << 10

// verdicts makes an answer for each task of the receiver's answer.
func (w *Processor) verdicts(resp *http.Response, tasks []task.Task, verdicts []error) {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		verdict := w.verdict(resp)
		for i := range verdicts {
			verdicts[i] = verdict
		}
		return
	}
	most := bodySize + int64(len(tasks))*resultSize
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	var answer struct {
		Results []result `json:"results"`
	}
	trimmed := strings.TrimSpace(string(body))
	if err == nil && !strings.HasPrefix(trimmed, "{") {
		return // a 2xx for all
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		err = errors.New(w.target + ": 2xx, but its results cannot be read: " + w.shown(err.Error()))
	} else if answer.Results == nil {
		return
	}
	byID := make(map[wire.ID]*result, len(answer.Results))
	for i := range answer.Results {
		byID[answer.Results[i].JobID] = &answer.Results[i]
	}
	for i := range tasks {
		switch r := byID[wire.ID(tasks[i].JobID)]; {
		case r != nil:
			verdicts[i] = w.resultOf(r)
		case err != nil:
			verdicts[i] = err
		default:
			verdicts[i] = errors.New(w.target + ": its answer has no result for this task")
		}
	}
}

// result is what became of one task of a batch.
type result struct {
	JobID      wire.ID `json:"job_id"`
	Status     int     `json:"status"`
	RetryAfter pause   `json:"retry_after"`
	Error      string  `json:"error"` // why not; for last_error
}

func (w *Processor) resultOf(r *result) error {
	if r.Status >= 200 && r.Status <= 299 {
		return nil
	}
	parts := []string{w.target, strings.TrimSpace(strconv.Itoa(r.Status) + " " + http.StatusText(r.Status))}
	if said := w.shown(r.Error); said != "" {
		parts = append(parts, said)
	}
	failed := errors.New(strings.Join(parts, ": "))
	switch {
	case r.Status == http.StatusGone:
		return processor.Discard(failed)
	case r.RetryAfter > 0 && (r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable):
		return processor.RetryAfter(min(time.Duration(r.RetryAfter), w.longest), failed)
	}
	return failed
}

// pause is a retry_after: seconds, or a text like 10s. Anything else is none.
type pause time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (p *pause) UnmarshalJSON(text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	seconds := 0.
	switch v := value.(type) {
	case float64:
		seconds = v
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			seconds = d.Seconds()
		} else if seconds, err = strconv.ParseFloat(v, 64); err != nil {
			seconds = 0
		}
	}
	*p = pause(min(max(seconds, 0), maxPause.Seconds()) * float64(time.Second))
	return nil
}

// maxPause bounds what is read of a retry_after; backoff.max bounds it further.
const maxPause = 1000 * time.Hour
