package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
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
		body = api.From(tasks[i], w.bizType).AppendJSON(body)
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
	byID, err := readResults(resp, bodySize+int64(len(tasks))*resultSize)
	if err != nil {
		err = errors.New(w.target + ": 2xx, but its results cannot be read: " + w.shown(err.Error()))
	} else if byID == nil {
		return // a 2xx for all
	}
	for i := range tasks {
		switch r := byID[api.ID(tasks[i].JobID)]; {
		case r != nil:
			verdicts[i] = w.resultOf(r)
		case err != nil:
			verdicts[i] = err
		default:
			verdicts[i] = errors.New(w.target + ": its answer has no result for this task")
		}
	}
}

// readResults reads the results of a 2xx, at most most bytes of it. Without results, as in an object of the receiver's own or a
// text, the map is nil. After an error it has the results that came before the error: an answer whose form is wrong must not
// count as a yes.
func readResults(resp *http.Response, most int64) (byID map[api.ID]*result, err error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	text := bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff"))) // .NET's UTF-8 begins with this mark
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isJSON := mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
	if len(text) == 0 || !isJSON && text[0] != '{' && text[0] != '[' {
		return nil, err
	}
	byID, wrong := decodeResults(json.NewDecoder(bytes.NewReader(text)))
	switch {
	case wrong == nil:
		return byID, nil
	case int64(len(body)) == most:
		return byID, fmt.Errorf("it is longer than %d KiB", most>>10)
	}
	return byID, cmp.Or(err, wrong)
}

// decodeResults decodes an answer one result after the other.
func decodeResults(d *json.Decoder) (byID map[api.ID]*result, err error) {
	switch start, err := d.Token(); {
	case err != nil:
		return nil, err
	case start == json.Delim('['):
		return nil, errors.New(`it is an array; the results belong into {"results": […]}`)
	case start != json.Delim('{'):
		return nil, nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return byID, err
		}
		if key != "results" {
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return byID, err
			}
			continue
		}
		switch start, err := d.Token(); {
		case err != nil:
			return byID, err
		case start == nil: // an empty list, as Go writes one to which nothing was added
			byID = map[api.ID]*result{}
			continue
		case start != json.Delim('['):
			return byID, errors.New("results is no array")
		}
		byID = map[api.ID]*result{}
		for d.More() {
			var r result
			if err := d.Decode(&r); err != nil {
				return byID, err
			}
			byID[r.JobID] = &r
		}
		if _, err := d.Token(); err != nil { // ]
			return byID, err
		}
	}
	_, err = d.Token() // }
	return byID, err
}

// result is what became of one task of a batch.
type result struct {
	JobID      api.ID `json:"job_id"`
	Status     int    `json:"status"`
	RetryAfter pause  `json:"retry_after"`
	Error      string `json:"error"` // why not; for last_error
}

func (w *Processor) resultOf(r *result) error {
	if r.Status >= 200 && r.Status <= 299 {
		return nil
	}
	return w.refusal(r.Status, w.shown(r.Error), time.Duration(r.RetryAfter))
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
