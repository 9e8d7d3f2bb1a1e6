package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"
)

// budget bounds what requests under way hold in memory: the bodies of batches, and the
// answers of lists and batches. Beyond it requests are refused, and nothing is changed.
type budget struct {
	bodies, answers *semaphore.Weighted
	most            int64 // of bodies
}

func newBudget(cfg *Config) *budget {
	return &budget{semaphore.NewWeighted(cfg.MaxBodies), semaphore.NewWeighted(cfg.MaxAnswers), cfg.MaxBodies}
}

// share is the context of a request, and what it holds of a budget.
type share struct {
	context.Context // of the request
	*budget
	body, answer int64
}

type shareKey struct{}

// Value implements context.Context.
func (s *share) Value(key any) any {
	if _, is := key.(shareKey); is {
		return s
	}
	return s.Context.Value(key)
}

func (s *share) release() {
	s.bodies.Release(s.body)
	s.answers.Release(s.answer)
}

// withShare has a request hold what it takes until it is answered.
func (b *budget) withShare(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	s := &share{Context: fromPeer(ctx.Context(), r.Header), budget: b}
	defer s.release()
	next(huma.WithContext(ctx, s))
}

const (
	// freeBytes is how much of each body is read in any case: that is bounded by the number of connections, and large
	// bodies never keep small ones out.
	freeBytes = 64 << 10
	// prepaidBytes is read before all the rest is paid for.
	prepaidBytes = 256 << 10
	// bodyCost is what a large body takes in memory: itself, its texts, and what is made of them.
	bodyCost = 3
	// maxWaitForRoom is how long a body waits for those before it.
	maxWaitForRoom = 2 * time.Second
)

var errBusy = errors.New(detailBusy)

// makeRoom takes from the budget what a body of so many bytes needs.
func makeRoom(ctx context.Context, bytes int64) error {
	s, ok := ctx.Value(shareKey{}).(*share)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxWaitForRoom)
	defer cancel()
	cost := min(bodyCost*bytes, s.most-s.body) // one body always fits
	if s.bodies.Acquire(ctx, cost) != nil {
		return errBusy
	}
	s.body += cost
	return nil
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

// The bytes that a task of an answer takes at most, without its texts.
const (
	batchResultSize = 400
	taskSize        = 800
)
