package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

type leaseInput struct {
	NamedBizType
	body[api.LeaseRequest]
}

// Resolve reads the body, and lets the connection live as long as the request may wait.
func (in *leaseInput) Resolve(ctx huma.Context) []error {
	errs := in.body.Resolve(ctx)
	_, w := humago.Unwrap(ctx)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(intake.MaxWait + time.Minute))
	return errs
}

func (a *handlers) lease(ctx context.Context, in *leaseInput) (*output[api.LeaseAnswer], error) {
	ask := intake.Lease{BizType: in.Name, Max: max(1, in.sent.Max)}
	if in.sent.Wait != nil {
		ask.Wait = time.Duration(*in.sent.Wait)
	}
	if in.sent.TTR != nil {
		if ask.TTR = time.Duration(*in.sent.TTR); ask.TTR == 0 {
			return nil, &task.FieldError{Field: "ttr", Message: "0s is out of range; leave it out for that of the business type"}
		}
	}
	answer, err := a.desk.Lease(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &output[api.LeaseAnswer]{answer}, nil
}

func (a *handlers) settle(ctx context.Context, in *body[api.SettleRequest]) (*output[api.SettleAnswer], error) {
	results, err := a.desk.Settle(ctx, in.sent.Settle)
	if err != nil {
		return nil, err
	}
	return &output[api.SettleAnswer]{api.SettleAnswer{Results: results}}, nil
}
