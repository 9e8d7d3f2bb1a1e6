package intake

import (
	"cmp"
	"context"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

const (
	retryWait  = 20 * time.Second       // a retry of all at once is waited for no longer
	retryLook  = 100 * time.Millisecond // between two looks at it
	retryLeast = time.Hour              // what a Go processor may ask for, beyond the longest pause of its business type
)

// lastRetry is a time after the next run of any task of a business type, or of all (nil), that waits to run again.
func (s *Service) lastRetry(bizType *uint64) time.Time {
	longest := retryLeast
	for _, b := range s.Types().All() {
		if bizType == nil || b.ID == *bizType {
			longest = max(longest, b.BackoffMax)
		}
	}
	return s.cfg.Now().Add(longest)
}

// Retry makes the pending tasks of a business type run now that have failed and would run again later. It is an operation, at a
// rate or (0) at the highest. Without a rate its end is waited for; an Operation in the answer goes on. The error of an unknown name is
// a task.UnknownTypeError.
func (s *Service) Retry(ctx context.Context, bizType string, rate float64) (answer api.Retried, err error) {
	b, err := s.Types().Find(bizType)
	if err != nil {
		return answer, err
	}
	if err := checkRate(rate); err != nil {
		return answer, err
	}
	started, err := s.startOperation(ctx, store.OperationRetry, api.DeadRequest{BizType: b.Name, Rate: cmp.Or(rate, MaxRate)},
		store.DeadFilter{BizType: &b.ID, Until: s.lastRetry(&b.ID)})
	answer = api.Retried{Matched: started.matched, Operation: started.operation}
	if err != nil || rate > 0 {
		return answer, err
	}
	for end := time.Now().Add(retryWait); time.Now().Before(end); {
		if err := wait.For(ctx, retryLook); err != nil {
			return answer, err
		}
		o, err := s.operation(ctx, uint64(answer.Operation))
		if err != nil {
			return answer, err
		}
		if answer.Retried = o.Done; o.State != store.OperationRunning {
			answer.Operation = 0
			return answer, nil
		}
	}
	return answer, nil
}
