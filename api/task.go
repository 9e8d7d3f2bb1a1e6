package api

import (
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Task is a task as JSON, as GET /v1/tasks/{job_id} answers it. Empty timeout, attribute, last_error and dedup_key are
// left out, and so is a time that is not known; attempts is always there.
type Task struct {
	JobID      ID       `json:"job_id" doc:"Unique id of the task" example:"413351953711104"`
	BizType    string   `json:"biz_type" doc:"Name of the business type" example:"order_close"`
	BizID      BizID    `json:"biz_id" doc:"The business's own id" example:"42"`
	Status     string   `json:"status" enum:"pending,processed,cancelled,dead"`
	ActionTime Time     `json:"action_time" doc:"Next time to run"`
	DueTime    Time     `json:"due_time" doc:"The time that was promised: action_time as it was submitted or last rescheduled"`
	Timeout    Duration `json:"timeout,omitzero" doc:"How long one run may take; left out: as long as its business type says" example:"1.5s"`
	Attribute  string   `json:"attribute,omitempty" doc:"The caller's payload"`
	Attempts   int      `json:"attempts" doc:"Failed runs so far"`
	LastError  string   `json:"last_error,omitempty" doc:"Why the last failed run failed"`
	DedupKey   string   `json:"dedup_key,omitempty" doc:"Idempotency key of the submit"`
	Created    Time     `json:"gmt_create,omitzero"`
	Modified   Time     `json:"gmt_modified,omitzero"`
	Running    *Running `json:"running,omitempty" doc:"Where it runs now. Only in the answer to a look-up of one pending task."`

	// ETag names this state of the task, where it came with the header of that name; see client.IfMatch.
	ETag string `json:"-"`
}

// Running says where a task runs.
type Running struct {
	Node  string `json:"node,omitempty" doc:"Name of the node that runs it. Left out if a consumer has leased it" example:"node-1"`
	Since Time   `json:"since" doc:"When it was started; when its lease was given or extended"`
	Until Time   `json:"until,omitzero" doc:"When its lease ends"`
}

// Task gives what t stands for. bizType is the id that t.BizType stands for.
func (t Task) Task(bizType uint64) (task.Task, error) {
	status, err := task.ParseStatus(t.Status)
	got := task.Task{
		JobID:      uint64(t.JobID),
		BizID:      t.BizID.Number,
		BizKey:     t.BizID.Key,
		BizType:    bizType,
		Status:     status,
		ActionTime: t.ActionTime.Time(),
		Timeout:    time.Duration(t.Timeout),
		Attribute:  t.Attribute,
		Attempts:   t.Attempts,
		LastError:  t.LastError,
		DedupKey:   t.DedupKey,
		Created:    t.Created.Time(),
		Modified:   t.Modified.Time(),
	}
	if due := t.DueTime.Time(); !due.Equal(got.ActionTime) {
		got.DueTime = due
	}
	return got, err
}

// From gives the JSON form of t. bizType is the name that t.BizType stands for.
func From(t task.Task, bizType string) Task {
	return Task{
		JobID:      ID(t.JobID),
		BizType:    bizType,
		BizID:      BizID{t.BizID, t.BizKey},
		Status:     t.Status.String(),
		ActionTime: Time(t.ActionTime),
		DueTime:    Time(t.Promised()),
		Timeout:    Duration(t.Timeout),
		Attribute:  t.Attribute,
		Attempts:   t.Attempts,
		LastError:  t.LastError,
		DedupKey:   t.DedupKey,
		Created:    Time(t.Created),
		Modified:   Time(t.Modified),
	}
}
