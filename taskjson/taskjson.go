// Package taskjson is the JSON form of a task, as GET /v1/tasks/{job_id} answers
// it. The HTTP API, the Go client, the CLI and the webhook share it, so that a
// task looks the same wherever it is met:
//
//	{
//	  "job_id": "413351953711104", "biz_type": "order_close", "biz_id": "42",
//	  "status": "pending", "action_time": "2026-01-02T15:04:05.000Z",
//	  "attribute": "…", "attempts": 0, "last_error": "…", "dedup_key": "…",
//	  "gmt_create": "…", "gmt_modified": "…"
//	}
//
// A task.Task and the name of its business type come in, JSON goes out, and
// back. The room is a leaf: it refuses to know who asks, how the bytes travel
// and which business types there are.
package taskjson

import (
	"github.com/timeoutcenter/toc/task"
)

// Task is a task as JSON. Empty attribute, last_error and dedup_key are left
// out, and so is a time that is not known; attempts is always there.
type Task struct {
	JobID      ID     `json:"job_id" doc:"Unique id of the task" example:"413351953711104"`
	BizType    string `json:"biz_type" doc:"Name of the business type" example:"order_close"`
	BizID      ID     `json:"biz_id" doc:"The business's own id" example:"42"`
	Status     string `json:"status" enum:"pending,processed,cancelled,dead"`
	ActionTime Time   `json:"action_time" doc:"Next time to run" format:"date-time"`
	Attribute  string `json:"attribute,omitempty" doc:"The caller's payload"`
	Attempts   int    `json:"attempts" doc:"Failed runs so far"`
	LastError  string `json:"last_error,omitempty" doc:"Why the last failed run failed"`
	DedupKey   string `json:"dedup_key,omitempty" doc:"Idempotency key of the submit"`
	Created    Time   `json:"gmt_create,omitzero" format:"date-time"`
	Modified   Time   `json:"gmt_modified,omitzero" format:"date-time"`
}

// Task gives what t stands for. bizType is the id that t.BizType stands for.
func (t Task) Task(bizType uint64) (task.Task, error) {
	status, err := task.ParseStatus(t.Status)
	return task.Task{
		JobID:      uint64(t.JobID),
		BizID:      uint64(t.BizID),
		BizType:    bizType,
		Status:     status,
		ActionTime: t.ActionTime.Time(),
		Attribute:  t.Attribute,
		Attempts:   t.Attempts,
		LastError:  t.LastError,
		DedupKey:   t.DedupKey,
		Created:    t.Created.Time(),
		Modified:   t.Modified.Time(),
	}, err
}

// From gives the JSON form of t. bizType is the name that t.BizType stands for.
func From(t task.Task, bizType string) Task {
	return Task{
		JobID:      ID(t.JobID),
		BizType:    bizType,
		BizID:      ID(t.BizID),
		Status:     t.Status.String(),
		ActionTime: Time(t.ActionTime),
		Attribute:  t.Attribute,
		Attempts:   t.Attempts,
		LastError:  t.LastError,
		DedupKey:   t.DedupKey,
		Created:    Time(t.Created),
		Modified:   Time(t.Modified),
	}
}
