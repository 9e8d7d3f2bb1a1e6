package rest

import (
	"context"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
)

type listOperationsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many operations: 1 to 1000, 100 if left out."`
}

func (a *handlers) operations(ctx context.Context, in *listOperationsInput) (*output[api.Operations], error) {
	list, err := a.desk.Operations(ctx, in.Limit)
	if err != nil {
		return nil, err
	}
	return &output[api.Operations]{intake.OperationsOf(list, a.desk.Types())}, nil
}

type operationInput struct {
	ID idParam `path:"id" doc:"The operation's id." example:"1886427354112000001"`
}

func (a *handlers) getOperation(ctx context.Context, in *operationInput) (*output[api.Operation], error) {
	return a.shownOperation(a.desk.Operation(ctx, uint64(in.ID.ID)))
}

func (a *handlers) stopOperation(ctx context.Context, in *operationInput) (*output[api.Operation], error) {
	return a.shownOperation(a.desk.StopOperation(ctx, uint64(in.ID.ID)))
}

func (a *handlers) undoOperation(ctx context.Context, in *operationInput) (*output[api.Operation], error) {
	return a.shownOperation(a.desk.UndoOperation(ctx, uint64(in.ID.ID)))
}

func (a *handlers) shownOperation(o store.Operation, err error) (*output[api.Operation], error) {
	if err != nil {
		return nil, err
	}
	return &output[api.Operation]{intake.Operation(&o, a.desk.Types())}, nil
}
