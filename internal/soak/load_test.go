package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/client"
)

// order is a task as its submitter knows it.
type order struct {
	jobID   uint64
	bizType string
	bizID   uint64
	due     time.Time // as stored first
	tries   int       // submits that were needed
	at      *life     // who took the last of them
	known   time.Time // when it was answered
	change  change    // at most one
}

// change is a cancel or a reschedule of an order, and what came of it.
type change struct {
	kind           changeKind
	sent, answered time.Time
	done           answer
	due            time.Time // a reschedule's
}

type changeKind int

const (
	noChange changeKind = iota
	cancelled
	rescheduled
)

// answer is what the submitter knows of a change.
type answer int

const (
	refused answer = iota // surely not made
	unknown               // nobody could say, or no answer came
	made
)

// load submits tasks until it is told to end.
type load struct {
	fleet *fleet
	rate  int // tasks a second
	work  sync.WaitGroup
	slots chan struct{} // submits under way
	keys  atomic.Uint64

	mu       sync.Mutex
	orders   []*order
	problems []string

	retries, unavailable, conflicts atomic.Int64
}

const (
	submitEvery    = 50 * time.Millisecond
	requestTimeout = 3 * time.Second
	submitPatience = 2 * time.Minute
)

func newLoad(f *fleet, rate int) *load {
	return &load{fleet: f, rate: rate, slots: make(chan struct{}, 128)}
}

// run submits until ctx ends, then waits until each submit and each change has its answer.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(submitEvery)
	defer tick.Stop()
	defer l.work.Wait()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		l.work.Go(func() {
			defer func() { <-l.slots }()
			l.submit(l.rate / int(time.Second/submitEvery))
		})
	}
}

// takes is how long a run of a task takes, in milliseconds: mostly nothing, at times long enough to be caught by a fault.
func takes() int {
	if rand.IntN(50) == 0 {
		return 200
	}
	return rand.IntN(5)
}

// ahead is when a task is due.
func ahead() time.Time {
	return time.Now().Add(500*time.Millisecond + time.Duration(rand.Int64N(int64(4500*time.Millisecond)))).Truncate(time.Millisecond)
}

// submit stores n tasks. What got no answer, or a refusal that asks for it, is submitted again at another node, under
// the same key.
func (l *load) submit(n int) {
	rest := make([]client.Submit, n)
	for i := range rest {
		rest[i] = client.Submit{BizType: bizTypes[i%2], BizID: rand.Uint64(), Attribute: strconv.Itoa(takes()),
			DedupKey: "soak-" + strconv.FormatUint(l.keys.Add(1), 10)}
	}
	deadline := time.Now().Add(submitPatience)
	var at *node
	for tries := 1; len(rest) > 0; tries++ {
		if tries > 1 {
			l.retries.Add(1)
			<-time.After(50 * time.Millisecond)
		}
		if time.Now().After(deadline) {
			l.problem("no node took %d tasks within %s", len(rest), submitPatience)
			return
		}
		if at = l.fleet.any(at); at == nil {
			continue
		}
		for i := range rest {
			rest[i].ActionTime = ahead()
		}
		rest = l.submitAt(at, rest, tries)
	}
}

// submitAt gives those that were not taken.
func (l *load) submitAt(at *node, list []client.Submit, tries int) (rest []client.Submit) {
	api, by := at.now()
	if api == nil {
		return list
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	results, err := api.SubmitBatch(ctx, list)
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Status < 500 {
		l.problem("%s refused a batch: %v", at.name, err)
		return nil
	}
	if err != nil {
		return list
	}
	for i, r := range results {
		s := list[i]
		switch {
		case r.Err != nil && r.Err.Retry:
			rest = append(rest, s)
		case r.Err != nil:
			l.problem("%s refused a task: %v", at.name, r.Err)
		default:
			o := &order{jobID: uint64(r.JobID), bizType: s.BizType, bizID: s.BizID, due: s.ActionTime, tries: tries, at: by, known: time.Now()}
			if r.Duplicate && !l.learn(o) {
				continue
			}
			l.accept(o)
		}
	}
	return rest
}

// learn reads when a task is due that an earlier attempt has stored.
func (l *load) learn(o *order) bool {
	var last error
	for range 40 {
		if api := l.fleet.anyAPI(); api != nil {
			ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
			t, err := api.Get(ctx, o.jobID)
			cancel()
			if err == nil {
				o.due = t.ActionTime.Time()
				return true
			}
			last = err
		}
		<-time.After(50 * time.Millisecond)
	}
	l.problem("task %d is called a duplicate but cannot be read: %v", o.jobID, last)
	return false
}

func (l *load) accept(o *order) {
	l.mu.Lock()
	l.orders = append(l.orders, o)
	l.mu.Unlock()
	switch rand.IntN(25) {
	case 0:
		o.change.kind = cancelled
	case 1:
		o.change.kind = rescheduled
	default:
		return
	}
	l.work.Go(func() { l.alter(o) })
}

// alter cancels or reschedules a task, at times so late that it runs already.
func (l *load) alter(o *order) {
	<-time.After(time.Duration(rand.Float64() * 1.02 * float64(time.Until(o.due)))) // the customer's moment
	api := l.fleet.anyAPI()
	if api == nil {
		o.change.kind = noChange
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var err error
	o.change.sent = time.Now()
	if o.change.kind == cancelled {
		err = api.Cancel(ctx, o.jobID)
	} else {
		o.change.due = ahead()
		_, err = api.Reschedule(ctx, o.jobID, client.Change{ActionTime: o.change.due})
	}
	o.change.answered = time.Now()
	var refusal *client.Error
	switch isRefusal := errors.As(err, &refusal); {
	case err == nil:
		o.change.done = made
	case isRefusal && refusal.Status == http.StatusConflict:
		l.conflicts.Add(1)
	case isRefusal && refusal.Status < 500:
		l.problem("refused to change task %d: %v", o.jobID, err)
	default:
		o.change.done = unknown
		l.unavailable.Add(1)
	}
}

func (l *load) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}
