package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"
)

// budget bounds what requests under way hold in memory: the bodies of batches, and the
// answers of lists and batches. Beyond it requests are refused, and nothing is changed.
type budget struct{ bodies, answers *semaphore.Weighted }

func newBudget(cfg *Config) *budget {
	return &budget{semaphore.NewWeighted(cfg.MaxBodies), semaphore.NewWeighted(cfg.MaxAnswers)}
}

// share is what one request holds of a budget.
type share struct {
	*budget
	body, answer int64
}

type shareKey struct{}

// withShare has a request hold what it takes until it is answered.
func (b *budget) withShare(ctx huma.Context, next func(huma.Context)) {
	s := &share{budget: b}
	defer func() {
		s.bodies.Release(s.body)
		s.answers.Release(s.answer)
	}()
	next(huma.WithContext(ctx, context.WithValue(ctx.Context(), shareKey{}, s)))
}

// What bodies take of the budget at a time, and from which size on: small ones are bounded
// by the number of connections, and large ones never keep them out.
const (
	bodyStep  = 256 << 10
	smallMost = 64 << 10
)

var errBusy = errors.New(detailBusy)

// bodyReader takes from the budget what a body of at most so many bytes needs as it arrives.
func bodyReader(ctx context.Context, body io.Reader, most int64) io.Reader {
	s, ok := ctx.Value(shareKey{}).(*share)
	if !ok || most <= smallMost {
		return body
	}
	return &paidReader{body: body, share: s}
}

type paidReader struct {
	body  io.Reader
	share *share
	left  int64
}

func (r *paidReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		if !r.share.bodies.TryAcquire(bodyStep) {
			return 0, errBusy
		}
		r.share.body += bodyStep
		r.left = bodyStep
	}
	n, err := r.body.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

// takeAnswer takes so many bytes for the answer of the request, or says why not.
func takeAnswer(ctx context.Context, bytes int64) error {
	s, ok := ctx.Value(shareKey{}).(*share)
	if !ok {
		return nil
	}
	if !s.answers.TryAcquire(bytes) {
		p := newProblem(http.StatusServiceUnavailable, detailBusy)
		p.headers = retryAfter
		return p
	}
	s.answer += bytes
	return nil
}

const detailBusy = "too much is being sent and answered at once: nothing was changed; try again"

var retryAfter = http.Header{"Retry-After": {"1"}}

// What a task of an answer takes at most, without its texts.
const (
	batchResultSize = 400
	taskSize        = 800
)
