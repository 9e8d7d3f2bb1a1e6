package rest

import (
	"context"
	"reflect"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
)

type batchInput struct{ body[batch] }

// bodyType is the type of the body in the documentation.
func (*batchInput) bodyType() reflect.Type { return reflect.TypeFor[api.BatchRequest]() }

// submitBatch stores the good tasks of a batch and says what is wrong with the
// others.
func (a *handlers) submitBatch(ctx context.Context, in *batchInput) (*output[api.BatchAnswer], error) {
	items := in.sent.Tasks
	if err := takeAnswer(ctx, int64(len(items))*batchResultSize); err != nil {
		return nil, err
	}
	results := make([]api.BatchResult, len(items))
	good := make([]intake.Submit, 0, len(items))
	places := make([]int, 0, len(items)) // of good, in items
	for i, item := range items {
		if item.fault != nil {
			results[i].Err = &api.BatchError{Field: item.fault.field, Message: item.fault.message}
			continue
		}
		good, places = append(good, item.submit), append(places, i)
	}

	var internal error
	for i, s := range a.desk.SubmitBatch(ctx, good) {
		r, known := s.Wire()
		if !known {
			internal, r.Err.Message = s.Err, detailInternal
		}
		results[places[i]] = r
	}
	if internal != nil { // once a batch, not once a task
		a.log.Error("tasks of a batch failed", "err", internal)
	}
	return &output[api.BatchAnswer]{api.BatchAnswer{Results: results}}, nil
}
