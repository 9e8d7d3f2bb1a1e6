package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// The commands of a delay queue that Youzan has described (https://tech.youzan.com/queuing_delay/), for programs that move
// over: add, pop, finish and delete, each a POST of one JSON object. A topic is a business type whose processor is pull, and
// the id of a job is the biz_id of its task. Each answer is as Youzan's, with status 200 and success, error, id and value.

// The codes of the answers, by which a program need not read error.
const (
	youzanNone    = 1 // no job is due, or no such job
	youzanInvalid = 2
	youzanLater   = 3 // it cannot be decided now: send it again
)

// youzanCommand is the body of a request.
type youzanCommand struct {
	Command string      `json:"command" enum:"add,pop,finish,delete" doc:"add: stores a job. pop: hands out one that is due. finish: ends one that was popped. delete: ends one that is not over." example:"add"`
	Topic   string      `json:"topic,omitempty" doc:"Name of a business type whose processor is pull. add and pop need it, finish and delete only if jobs of several topics have the id." example:"order_close"`
	ID      *api.BizID  `json:"id,omitempty" minLength:"1" maxLength:"128" doc:"Of add, finish and delete, which need it: the biz_id of the task, a number or a text." example:"o-1"`
	Delay   json.Number `json:"delay,omitempty" minimum:"0" doc:"Of add: when the job is due, in seconds from now. Left out: at once." example:"1800"`
	TTR     json.Number `json:"TTR,omitempty" minimum:"0" doc:"Of add: how long its consumer has the job, in seconds. Left out: pull.ttr of the business type." example:"60"`
	Body    string      `json:"body,omitempty" doc:"Of add: what the job is about, at most 4096 bytes." example:"{\"shop\":7}"`
	Wait    json.Number `json:"wait,omitempty" minimum:"0" doc:"Of pop: how long to wait if no job is due, in seconds, at most 60. Left out: not at all." example:"30"`
	Max     int         `json:"max,omitempty" minimum:"1" maximum:"256" default:"1" doc:"Of pop: at most this many jobs; with more than 1 they are answered as jobs." example:"50"`
}

// readYouzan reads a request as all bodies are read, but for its names: upper case is as good as lower, and what it does not
// know it leaves out, as Youzan's programs may send more.
func readYouzan(text []byte) (c youzanCommand, err error) {
	if err := check(text); err != nil {
		return c, &task.FieldError{Field: "body", Message: err.Error() + `; send a command like {"command":"pop","topic":"order_close"}`}
	}
	if faults := fillKnown(&c, bytes.TrimSpace(text)); len(faults) > 0 {
		return c, &task.FieldError{Field: cmp.Or(faults[0].field, "body"), Message: faults[0].message}
	}
	return c, nil
}

// youzanFields are what the fields of a submit are called here.
var youzanFields = map[string]string{"attribute": "body", "timeout": "TTR", "action_time": "delay", "delay": "delay", "biz_id": "id",
	"biz_type": "topic", "name": "topic"}

// YouzanJob is embedded by the answer: a job as pop answers it, or what it is called.
type YouzanJob struct {
	ID    string  `json:"id,omitempty" doc:"The id of the job." example:"o-1"`
	Value *string `json:"value,omitempty" doc:"Of pop: the body of the job, which may be empty." example:"{\"shop\":7}"`
	Topic string  `json:"topic,omitempty" doc:"Of pop: the topic of the job." example:"order_close"`
	TTR   float64 `json:"TTR,omitempty" doc:"Of pop: how long the caller has the job, in seconds." example:"60"`
	JobID api.ID  `json:"job_id,omitzero" doc:"The job_id of the task." example:"413351953711104"`
}

// youzanAnswer is the body of an answer.
type youzanAnswer struct {
	Success bool   `json:"success" doc:"It was done. A pop of nothing is a success without an id." example:"true"`
	Error   string `json:"error,omitempty" doc:"What is wrong." example:"there is no such job"`
	YouzanJob
	Jobs []YouzanJob `json:"jobs,omitempty" nullable:"false" doc:"Of pop with max above 1: the jobs."`
	Code int         `json:"code" enum:"0,1,2,3" doc:"0: done. 1: no job is due, or there is no such job. 2: a field is wrong. 3: it cannot be decided now; send it again." example:"0"`
}

// youzanDone answers what was done to one job.
func youzanDone(c *youzanCommand, jobID uint64) youzanAnswer {
	return youzanAnswer{Success: true, YouzanJob: YouzanJob{ID: c.ID.String(), JobID: api.ID(jobID)}}
}

// youzan serves POST /youzan.
func (a *handlers) youzan(w http.ResponseWriter, r *http.Request) {
	answer, err := a.youzanCommand(w, r)
	if err != nil {
		field, isField := errors.AsType[*task.FieldError](err)
		conflict, isConflict := errors.AsType[*task.ConflictError](err)
		switch {
		case isField:
			named := task.FieldError{Field: cmp.Or(youzanFields[field.Field], field.Field), Message: field.Message}
			answer = youzanAnswer{Code: youzanInvalid, Error: named.Error()}
		case errors.Is(err, task.ErrNotFound):
			answer = youzanAnswer{Code: youzanNone, Error: "there is no such job"}
		case isConflict:
			answer = youzanAnswer{Code: youzanNone, Error: "the job is " + string(conflict.Conflict)}
		case api.IsUnavailable(err), errors.Is(err, context.Canceled):
			answer = youzanAnswer{Code: youzanLater, Error: "it cannot be decided now; send it again"}
		default:
			a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
			answer = youzanAnswer{Code: youzanLater, Error: detailInternal}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *handlers) youzanCommand(w http.ResponseWriter, r *http.Request) (youzanAnswer, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, smallBody))
	if err != nil {
		return youzanAnswer{}, task.Wrong("body", "did not arrive, or is larger than %d bytes", smallBody)
	}
	c, err := readYouzan(text)
	if err != nil {
		return youzanAnswer{}, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(intake.MaxWait + time.Minute))
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout+intake.MaxWait)
	defer cancel()
	switch c.Command {
	case "pop":
		return a.youzanPop(ctx, &c)
	case "add", "finish", "delete":
		switch {
		case c.ID == nil:
			return youzanAnswer{}, task.Wrong("id", "is missing; give the id of the job")
		case c.Command == "add":
			return a.youzanAdd(ctx, &c)
		}
		return a.youzanEnd(ctx, &c)
	default:
		return youzanAnswer{}, task.Wrong("command", "is %.64q; give add, pop, finish or delete", c.Command)
	}
}

// seconds reads a number of seconds; none is 0.
func seconds(field string, n json.Number) (time.Duration, error) {
	if n == "" {
		return 0, nil
	}
	s, err := strconv.ParseFloat(string(n), 64)
	if err != nil || s < 0 || s > intake.MaxAhead.Seconds() {
		return 0, task.Wrong(field, "is %.64s; give seconds, 0 or more", n)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// youzanKey is the dedup_key of each job.
const youzanKey = "youzan"

// youzanAdd stores a job. One with the id of a job that is not over is that job; after its end the id is free again.
func (a *handlers) youzanAdd(ctx context.Context, c *youzanCommand) (youzanAnswer, error) {
	delay, err := seconds("delay", c.Delay)
	if err != nil {
		return youzanAnswer{}, err
	}
	ttr, err := seconds("TTR", c.TTR)
	if err != nil {
		return youzanAnswer{}, err
	}
	if b, ok := a.center.Types().ByName(c.Topic); !ok || !b.Pull {
		return youzanAnswer{}, task.Wrong("topic", "%.64q is no business type with the processor pull", c.Topic)
	}
	s, err := a.center.Submit(ctx, api.Submit{BizType: c.Topic, BizID: c.ID.Number, BizKey: c.ID.Key, Delay: delay, Now: true,
		Attribute: c.Body, DedupKey: youzanKey, OnDuplicate: api.Again, Timeout: ttr})
	if err != nil {
		return youzanAnswer{}, err
	}
	return youzanDone(c, uint64(s.Task.JobID)), nil
}

func (a *handlers) youzanPop(ctx context.Context, c *youzanCommand) (youzanAnswer, error) {
	wait, err := seconds("wait", c.Wait)
	if err != nil {
		return youzanAnswer{}, err
	}
	got, err := a.center.Lease(ctx, c.Topic, api.AskLease{Max: c.Max, Wait: min(wait, intake.MaxWait)})
	switch {
	case errors.Is(err, task.ErrNotFound):
		return youzanAnswer{}, task.Wrong("topic", "%.64q is no business type", c.Topic)
	case err != nil:
		return youzanAnswer{}, err
	case len(got.Tasks) == 0:
		return youzanAnswer{Success: true, Code: youzanNone}, nil
	}
	b, _ := a.center.Types().ByName(c.Topic)
	jobs := make([]YouzanJob, len(got.Tasks))
	for i, t := range got.Tasks {
		jobs[i] = YouzanJob{Topic: c.Topic, ID: t.Task.BizID.String(), TTR: cmp.Or(time.Duration(t.Task.Timeout), b.TTR).Seconds(),
			Value: &t.Task.Attribute, JobID: t.Task.JobID}
	}
	if c.Max > 1 {
		return youzanAnswer{Success: true, Jobs: jobs}, nil
	}
	return youzanAnswer{Success: true, YouzanJob: jobs[0]}, nil
}

// youzanEnd finishes a job that was popped, or deletes one that is not over. A task that came by another way can be popped as well, so
// it can be finished and deleted while it is.
func (a *handlers) youzanEnd(ctx context.Context, c *youzanCommand) (youzanAnswer, error) {
	orKey := ""
	if c.Command == "delete" {
		orKey = youzanKey
	}
	open, err := a.center.FindLeased(ctx, *c.ID, c.Topic, orKey)
	switch {
	case err != nil:
		return youzanAnswer{}, err
	case len(open) == 0:
		return youzanAnswer{}, task.ErrNotFound
	case len(open) > 1:
		return youzanAnswer{}, task.Wrong("topic", "is needed: several jobs have this id")
	}
	t := open[0]
	if !t.HasLease() {
		if err := a.center.Cancel(ctx, t.JobID); err != nil {
			return youzanAnswer{}, err
		}
		return youzanDone(c, t.JobID), nil
	}
	do := api.Settlement{Lease: api.Lease{JobID: api.ID(t.JobID), Number: t.Lease}.String(), Do: "ack"}
	if c.Command == "delete" {
		do.Do, do.Error = "reject", "deleted"
	}
	results, err := a.center.Settle(ctx, do)
	switch {
	case err != nil:
		return youzanAnswer{}, err
	case results[0].Result == api.SettledUnavailable:
		return youzanAnswer{}, task.ErrUnavailable
	case results[0].Result != api.SettledOK:
		return youzanAnswer{}, task.ErrNotFound
	}
	return youzanDone(c, t.JobID), nil
}
