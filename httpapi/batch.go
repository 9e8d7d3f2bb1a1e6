package httpapi

import (
	"context"
	"errors"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/taskjson"
)

type batchInput struct{ body[batchRequest] }

// BatchAnswer answers a batch: one result a task, in order.
type BatchAnswer struct {
	Results []BatchResult `json:"results" nullable:"false"`
}

// BatchResult is what became of one task: a job_id, or an error.
type BatchResult struct {
	JobID     *taskjson.ID `json:"job_id,omitempty" doc:"Id of the task." example:"413351953711104"`
	Duplicate bool         `json:"duplicate,omitempty" doc:"The dedup_key was known: job_id is the first task's, which is unchanged, or moved if the task asked for that."`
	Error     *BatchError  `json:"error,omitempty" doc:"Why this task was not stored."`
}

// BatchError says why one task of a batch was not stored.
type BatchError struct {
	Field   string `json:"field" doc:"The field that is wrong; empty if none is." example:"biz_type"`
	Message string `json:"message" doc:"What would be right."`
	Outcome string `json:"outcome,omitempty" enum:"already_processed,already_cancelled,dead,running" doc:"Why the first task could not be moved."`
	Retry   bool   `json:"retry,omitempty" doc:"Nothing is wrong with the task: submit it again."`
}

type batchOutput struct{ Body BatchAnswer }

// submitBatch stores the good tasks of a batch and says what is wrong with the
// others.
func (a *api) submitBatch(ctx context.Context, in *batchInput) (*batchOutput, error) {
	items := in.sent.Tasks.items
	if err := takeAnswer(ctx, int64(len(items))*batchResultSize); err != nil {
		return nil, err
	}
	results := make([]BatchResult, len(items))
	good := make([]intake.Submit, 0, len(items))
	places := make([]int, 0, len(items)) // of good, in items
	for i, item := range items {
		if item.fault != nil {
			results[i].Error = &BatchError{Field: item.fault.field, Message: item.fault.message}
			continue
		}
		good, places = append(good, item.submit), append(places, i)
	}

	var internal error
	for i, s := range a.desk.SubmitBatch(ctx, good) {
		r := &results[places[i]]
		if s.Err == nil {
			id := taskjson.ID(s.Task.JobID)
			r.JobID, r.Duplicate = &id, s.Duplicate
			continue
		}
		var field *task.FieldError
		var conflict *task.ConflictError
		switch {
		case errors.As(s.Err, &field):
			r.Error = &BatchError{Field: field.Field, Message: field.Message}
		case errors.As(s.Err, &conflict):
			r.Error = &BatchError{Field: "dedup_key", Message: conflict.Error(), Outcome: string(conflict.Conflict)}
		case unavailable(s.Err):
			r.Error = &BatchError{Message: detailUnavailable + detailRepeat, Retry: true}
			switch {
			case errors.Is(s.Err, task.ErrLocked):
				r.Error.Message = detailLocked
			case errors.Is(s.Err, task.ErrNotBegun):
				r.Error.Message = detailNotBegun
			}
		default:
			r.Error = &BatchError{Message: detailInternal}
			internal = s.Err
		}
	}
	if internal != nil { // once a batch, not once a task
		a.log.Error("tasks of a batch failed", "err", internal)
	}
	return &batchOutput{BatchAnswer{results}}, nil
}
