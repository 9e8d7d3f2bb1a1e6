package rest

import (
	"context"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
)

const pathByKey = "/v1/tasks/by-key"

// ByKey is embedded by the inputs of routes that name a task by its caller's own key. They look
// the job_id up, and the rest is as with a job_id. A key is one task's for as long as that is stored.
type ByKey struct {
	BizType  string    `query:"biz_type" required:"true" minLength:"1" doc:"Name of its business type." example:"order_close"`
	BizID    api.BizID `query:"biz_id" required:"true" minLength:"1" maxLength:"128" doc:"Its biz_id, a number or a text." example:"42"`
	DedupKey string    `query:"dedup_key" required:"true" minLength:"1" doc:"The dedup_key of its submit." example:"order-42-unpaid"`
}

// isOfKey reports whether a field of an operation is part of a key, and so in the query.
func isOfKey(op huma.Operation, field string) bool {
	return strings.HasPrefix(op.Path, pathByKey) && slices.Contains([]string{"biz_type", "biz_id", "dedup_key"}, field)
}

func (k *ByKey) key() intake.Key {
	return intake.Key{BizType: k.BizType, BizID: k.BizID.Number, BizKey: k.BizID.Key, DedupKey: k.DedupKey}
}

func (a *handlers) getByKey(ctx context.Context, in *ByKey) (*taskOutput, error) {
	t, err := a.desk.ByKey(ctx, in.key())
	return a.found(ctx, t, err)
}

type changeByKeyInput struct {
	ByKey
	Change
}

func (a *handlers) changeByKey(ctx context.Context, in *changeByKeyInput) (*taskOutput, error) {
	t, err := a.desk.ByKey(ctx, in.key())
	if err != nil {
		return nil, err
	}
	return a.one(a.desk.Reschedule(ctx, t.JobID, intake.ChangeOf(&in.sent, in.tags)))
}

type cancelByKeyInput struct {
	ByKey
	Condition
}

func (a *handlers) cancelByKey(ctx context.Context, in *cancelByKeyInput) (*output[api.Cancelled], error) {
	t, err := a.desk.ByKey(ctx, in.key())
	if err != nil {
		return nil, err
	}
	return a.cancelled(a.desk.CancelIf(ctx, t.JobID, in.tags))
}
