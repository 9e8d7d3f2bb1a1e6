package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/store"
)

type listDeadInput struct {
	BizType string     `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
	Error   string     `query:"error" doc:"Only tasks whose last_error has this part, upper and lower case as it stands." example:"is locked"`
	Since   timeParam  `query:"since" doc:"Only tasks that died (gmt_modified) at this time or later, RFC 3339." example:"2026-01-02T15:00:00Z"`
	Until   timeParam  `query:"until" doc:"Only tasks that died before this time, RFC 3339." example:"2026-01-02T16:00:00Z"`
	Limit   int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many tasks: 1 to 1000, 100 if left out."`
	Cursor  deadCursor `query:"cursor" doc:"The next_cursor of the page before."`
}

func (a *handlers) listDead(ctx context.Context, in *listDeadInput) (*output[api.Page], error) {
	p, err := a.desk.ListDead(ctx, intake.Dead{BizType: in.BizType, Error: in.Error, Since: in.Since.Time, Until: in.Until.Time},
		in.Cursor.after, in.Limit)
	return a.page(ctx, api.CursorDead, p, err)
}

type deadGroupsInput struct {
	BizType string `query:"biz_type" doc:"Only tasks of this business type." example:"order_close"`
}

func (a *handlers) deadGroups(ctx context.Context, in *deadGroupsInput) (*output[api.DeadGroups], error) {
	g, err := a.desk.DeadGroups(ctx, in.BizType)
	if err != nil {
		return nil, err
	}
	return &output[api.DeadGroups]{g.Wire(a.desk.Types())}, nil
}

func (a *handlers) redriveDead(ctx context.Context, in *body[api.DeadRequest]) (*changedOutput[api.Redriven], error) {
	r, err := a.desk.RedriveDead(ctx, intake.DeadOf(&in.sent))
	if err != nil {
		return nil, err
	}
	return changedDead(r, api.Redriven{Matched: r.Matched, Redriven: r.Changed, Operation: api.ID(r.Operation)}), nil
}

func (a *handlers) discardDead(ctx context.Context, in *body[api.DeadRequest]) (*changedOutput[api.Discarded], error) {
	r, err := a.desk.DiscardDead(ctx, intake.DeadOf(&in.sent))
	if err != nil {
		return nil, err
	}
	return changedDead(r, api.Discarded{Matched: r.Matched, Discarded: r.Changed, Operation: api.ID(r.Operation)}), nil
}

type changedOutput[T any] struct {
	Status int
	Body   T
}

// changedDead answers a change of dead tasks: 202 if an operation makes it.
func changedDead[T any](r intake.ChangedDead, answer T) *changedOutput[T] {
	out := &changedOutput[T]{http.StatusOK, answer}
	if r.Operation != 0 {
		out.Status = http.StatusAccepted
	}
	return out
}

type auditInput struct {
	Actor  string      `query:"actor" doc:"Only what this one did." example:"api"`
	Action string      `query:"action" doc:"Only this action." example:"redrive"`
	From   timeParam   `query:"from" doc:"Only at this time or later, RFC 3339." example:"2026-01-02T15:00:00Z"`
	To     timeParam   `query:"to" doc:"Only before this time, RFC 3339." example:"2026-01-02T16:00:00Z"`
	Limit  int         `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many entries: 1 to 1000, 100 if left out."`
	Cursor auditCursor `query:"cursor" doc:"The next_cursor of the page before."`
}

func (a *handlers) audit(ctx context.Context, in *auditInput) (*output[api.AuditPage], error) {
	p, err := a.desk.Audit(ctx, intake.Audit{
		Actor: in.Actor, Action: in.Action, From: in.From.Time, To: in.To.Time, After: in.Cursor.after, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	return &output[api.AuditPage]{p.Wire()}, nil
}

// timeParam is a time in a query; zero if it is left out.
type timeParam struct{ time.Time }

// UnmarshalText reads an RFC 3339 time.
func (t *timeParam) UnmarshalText(text []byte) error {
	moment, err := readTime(string(text))
	if err == nil {
		t.Time = *moment
	}
	return err
}

// Schema describes the parameter to huma.
func (timeParam) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// durationParam is a duration in a query; zero if it is left out.
type durationParam struct{ time.Duration }

// UnmarshalText reads a Go duration.
func (d *durationParam) UnmarshalText(text []byte) error {
	read, err := readDuration(string(text))
	if d.Duration = time.Duration(read); err == nil && read <= 0 {
		err = errors.New("must be more than 0")
	}
	return err
}

// Schema describes the parameter to huma.
func (durationParam) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString}
}

// auditCursor says where a page of the audit begins.
type auditCursor struct{ after store.AuditKey }

// UnmarshalText reads a next_cursor.
func (c *auditCursor) UnmarshalText(text []byte) (err error) {
	c.after.At, c.after.Database, c.after.ID, err = api.ParseAuditCursor(text)
	return err
}
