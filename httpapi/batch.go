package httpapi

import (
	"context"
	"errors"
	"reflect"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/wire"
)

type batchInput struct{ body[batch] }

// bodyType tells the documentation what is read.
func (*batchInput) bodyType() reflect.Type { return reflect.TypeFor[wire.BatchRequest]() }

// submitBatch stores the good tasks of a batch and says what is wrong with the
// others.
func (a *api) submitBatch(ctx context.Context, in *batchInput) (*output[wire.BatchAnswer], error) {
	items := in.sent.Tasks
	if err := takeAnswer(ctx, int64(len(items))*batchResultSize); err != nil {
		return nil, err
	}
	results := make([]wire.BatchResult, len(items))
	good := make([]intake.Submit, 0, len(items))
	places := make([]int, 0, len(items)) // of good, in items
	for i, item := range items {
		if item.fault != nil {
			results[i].Err = &wire.BatchError{Field: item.fault.field, Message: item.fault.message}
			continue
		}
		good, places = append(good, item.submit), append(places, i)
	}

	var internal error
	for i, s := range a.desk.SubmitBatch(ctx, good) {
		r := &results[places[i]]
		if s.Err == nil {
			r.JobID, r.Duplicate = wire.ID(s.Task.JobID), s.Duplicate
			continue
		}
		var field *task.FieldError
		var conflict *task.ConflictError
		switch {
		case errors.As(s.Err, &field):
			r.Err = &wire.BatchError{Field: field.Field, Message: field.Message}
		case errors.As(s.Err, &conflict):
			r.Err = &wire.BatchError{Field: "dedup_key", Message: conflict.Error(), Outcome: string(conflict.Conflict)}
		case unavailable(s.Err):
			r.Err = &wire.BatchError{Message: undecided(s.Err, detailUnavailable+detailRepeat), Retry: true}
		default:
			r.Err = &wire.BatchError{Message: detailInternal}
			internal = s.Err
		}
	}
	if internal != nil { // once a batch, not once a task
		a.log.Error("tasks of a batch failed", "err", internal)
	}
	return &output[wire.BatchAnswer]{wire.BatchAnswer{Results: results}}, nil
}
