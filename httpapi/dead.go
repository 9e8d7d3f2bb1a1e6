package httpapi

import (
	"context"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/wire"
)

type listDeadInput struct {
	BizType string     `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Limit   int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many tasks: 1 to 1000, 100 if left out."`
	Cursor  deadCursor `query:"cursor" doc:"The next_cursor of the page before."`
}

func (a *api) listDead(ctx context.Context, in *listDeadInput) (*output[wire.Page], error) {
	p, err := a.desk.ListDead(ctx, in.BizType, in.Cursor.after, in.Limit)
	return a.page(ctx, wire.ListDead, p, err)
}

func (a *api) redriveDead(ctx context.Context, in *body[wire.RedriveRequest]) (*output[wire.Redriven], error) {
	r, err := a.desk.RedriveDead(ctx, intake.RedriveOf(&in.sent))
	if err != nil {
		return nil, err
	}
	return &output[wire.Redriven]{wire.Redriven(r)}, nil
}
