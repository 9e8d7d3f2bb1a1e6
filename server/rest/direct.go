package rest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// ownInput is an input that reads the whole request itself, of at most so many bytes. A huma.StatusError among the errors names the
// status to answer.
type ownInput[I any] interface {
	*I
	receive(ctx context.Context, w http.ResponseWriter, r *http.Request, most int64) []error
}

// ownOutput is an output that sets the headers of its answer, and returns the status and the body.
type ownOutput[O any] interface {
	*O
	answer(h http.Header) (status int, body any)
}

// direct is route for requests that come by the thousand. Huma looks through the types of each request and answer by reflection,
// which takes longer than the handler, so it serves only requests with a query here: it refuses them.
func direct[I, O any, PI ownInput[I], PO ownOutput[O]](a *handlers, pattern, name string, handle func(context.Context, *I) (*O, error)) {
	op, unbounded := a.operation(pattern, name), descriptions[name].unbounded
	a.router.around = func(byHuma http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "" {
				byHuma(w, r)
				return
			}
			var of struct { // one allocation
				in      I
				share   share
				bounded bounded
			}
			of.share = share{Context: fromPeer(r.Context(), r.Header), budget: a.budget}
			defer of.share.release()
			if errs := PI(&of.in).receive(&of.share, w, r, op.MaxBodyBytes); len(errs) > 0 {
				writeProblem(w, invalid(errs))
				return
			}
			var ctx context.Context = &of.share
			if unbounded {
				endlessAnswer(w)
			} else {
				of.bounded.within(ctx, a.cfg.Timeout)
				defer of.bounded.end()
				ctx = &of.bounded
			}
			out, err := handle(ctx, &of.in)
			if err != nil {
				writeProblem(w, a.problem(op, err))
				return
			}
			h := w.Header()
			h["Content-Type"] = contentJSON
			status, body := PO(out).answer(h)
			w.WriteHeader(status)
			_ = writeJSON(w, body) // an error is the connection's
		}
	}
	route(a, pattern, name, handle)
	a.router.around = nil
}

// contentJSON is shared by all answers, which do not change it.
var contentJSON = []string{typeJSON}

// invalid is the problem that huma makes of the errors of an input.
func invalid(errs []error) *problem {
	status := http.StatusUnprocessableEntity
	for _, err := range errs {
		if s, ok := errors.AsType[huma.StatusError](err); ok {
			status = s.GetStatus()
		}
	}
	p := newProblem(status, "validation failed")
	for _, err := range errs {
		if d, ok := err.(huma.ErrorDetailer); ok {
			p.Errors = append(p.Errors, d.ErrorDetail())
		}
	}
	return p
}

// bounded is a context that ends after a while. Most requests are answered before anybody waits for that, so its timer starts when
// somebody does.
type bounded struct {
	context.Context // of the caller
	deadline        time.Time

	mu    sync.Mutex
	timed context.Context // nil: nobody waits
	stop  context.CancelFunc
}

// within makes it end after d, or with ctx.
func (b *bounded) within(ctx context.Context, d time.Duration) {
	b.Context, b.deadline = ctx, time.Now().Add(d)
}

// end ends the context of those who wait.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
}

// start starts the timer.
func (b *bounded) start() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.stop = context.WithDeadline(b.Context, b.deadline)
	}
	return b.timed
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) { return b.start().Deadline() }

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.start().Done() }

// Err implements context.Context.
func (b *bounded) Err() error {
	if b.now() == b.Context && time.Now().Before(b.deadline) {
		return b.Context.Err()
	}
	return b.start().Err()
}

// Value implements context.Context.
func (b *bounded) Value(key any) any { return b.now().Value(key) }

// now is the context with the timer, or that of the caller before it has started.
func (b *bounded) now() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		return b.Context
	}
	return b.timed
}
