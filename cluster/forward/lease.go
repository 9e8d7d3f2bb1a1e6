package forward

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// unanswered are the questions for leases of which no answer has arrived: nobody has the leases that it may hold.
type unanswered struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]bool
}

// keptUnanswered is the maximum number of unanswered questions. The oldest are forgotten: if their leases end, that is a failed run.
const keptUnanswered = 1000

func (u *unanswered) add() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.open) == keptUnanswered {
		delete(u.open, slices.Min(slices.Collect(maps.Keys(u.open))))
	}
	if u.open == nil {
		u.open = make(map[uint64]bool)
	}
	u.last++
	u.open[u.last] = true
	return u.last
}

func (u *unanswered) remove(question uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, question)
}

// Unanswered returns the questions for leases that this node has asked another one and that have no answer.
func (f *Forwarder) Unanswered(node string) (questions []uint64) {
	u := &f.peer(node).questions
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.open))
}

// Lease asks the node for due tasks of its partitions. With q.Wait it only waits until the node has one.
func (n *node) Lease(ctx context.Context, bizType string, q api.AskLease) (api.LeaseAnswer, error) {
	if q.Wait > 0 {
		return askWithin(ctx, n, 0, n.cfg.Timeout+q.Wait, func(ctx context.Context) (api.LeaseAnswer, error) {
			return n.waiter.Lease(ctx, bizType, q)
		})
	}
	question := n.peer.questions.add()
	answer, err := askWithin(context.WithValue(ctx, questionKey{}, question), n, 0, n.cfg.Timeout,
		func(ctx context.Context) (api.LeaseAnswer, error) {
			return n.owner.Lease(ctx, bizType, q)
		})
	if !errors.Is(err, task.ErrUnavailable) {
		n.peer.questions.remove(question)
	}
	return answer, err
}

type questionKey struct{}

// numbered sends the number of a question along with it.
type numbered struct{ http.RoundTripper }

func (t numbered) RoundTrip(r *http.Request) (*http.Response, error) {
	if question, ok := r.Context().Value(questionKey{}).(uint64); ok {
		r = r.Clone(r.Context())
		r.Header.Set(api.HeaderQuestion, strconv.FormatUint(question, 10))
	}
	return t.RoundTripper.RoundTrip(r)
}

// Undelivered returns a function that reports whether nobody can have the leases that a node was given in answer to a question: its
// process of now has ended since, it does not answer, or the answer has not reached it.
func (f *Forwarder) Undelivered(node string, question uint64) func() bool {
	before, known := f.member(node)
	return func() bool {
		m, there := f.member(node)
		if !there || known && m.Instance != before.Instance {
			return true
		}
		answer, err := f.askLately(m)
		return err != nil || slices.Contains(answer.Unanswered, api.ID(question))
	}
}

// askLately returns the answer of a node in an exchange. It is asked when a lease ends, and an answer to a question that is younger
// than the shortest lease is proof enough: it came after the lease was given.
func (f *Forwarder) askLately(m cluster.Member) (api.ExchangeAnswer, error) {
	switch v := f.View(m.Name); {
	case v.hasFailed():
		return api.ExchangeAnswer{}, errSilent
	case time.Since(v.Sent) < intake.MinTTR:
		return v.Answer, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	return f.Exchange(ctx, m, f.question(false))
}

// errSilent: the node did not answer lately, and is not asked again yet.
var errSilent = errors.New("it did not answer just now")

// answerWithin is how long the ends of leases wait for a node that is silent, once in the time askAgain.
const answerWithin = 200 * time.Millisecond
