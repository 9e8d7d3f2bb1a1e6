package httpapi

import (
	"context"

	"github.com/timeoutcenter/toc/intake"
)

type listDeadInput struct {
	BizType string     `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Limit   int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many tasks: 1 to 1000, 100 if left out."`
	Cursor  deadCursor `query:"cursor" doc:"The next_cursor of the page before."`
}

func (a *api) listDead(ctx context.Context, in *listDeadInput) (*pageOutput, error) {
	p, err := a.desk.ListDead(ctx, in.BizType, in.Cursor.after, in.Limit)
	return a.page(ctx, listDead, p, err)
}

type redriveDeadInput struct{ body[redriveRequest] }

// Redriven answers a redrive of many tasks.
type Redriven struct {
	Matched  int `json:"matched" doc:"Dead tasks that match, whatever the limit."`
	Redriven int `json:"redriven" doc:"Of those, put back to pending; 0 in a dry run."`
}

type redriveDeadOutput struct{ Body Redriven }

func (a *api) redriveDead(ctx context.Context, in *redriveDeadInput) (*redriveDeadOutput, error) {
	asked := &in.sent
	r, err := a.desk.RedriveDead(ctx, intake.RedriveDead{
		BizType: asked.BizType.value, Limit: asked.Limit.value, DryRun: asked.DryRun.value,
	})
	if err != nil {
		return nil, err
	}
	return &redriveDeadOutput{Redriven{Matched: r.Matched, Redriven: r.Redriven}}, nil
}
