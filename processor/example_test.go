package processor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

var (
	errPaid     = errors.New("the order is paid")
	errBusy     = errors.New("the shop is busy")
	errNoSocket = errors.New("no socket is free")
)

// The answer of a processor decides about its task. To test a processor, call it.
func Example() {
	shop := map[uint64]error{1: nil, 2: errPaid, 3: errBusy, 4: errNoSocket}
	closeOrder := func(_ context.Context, id uint64) error { return shop[id] }

	closeUnpaid := processor.Func(func(ctx context.Context, t task.Task) error {
		err := closeOrder(ctx, t.BizID)
		switch {
		case errors.Is(err, errPaid):
			return processor.Discard(err) // cancelled: it never runs again
		case errors.Is(err, errBusy):
			return processor.RetryAfter(time.Minute, err) // a failed run: tried again in a minute
		case errors.Is(err, errNoSocket):
			return processor.NoAttempt(time.Second, err) // not tried: again in a second, no attempt is counted
		}
		return err // nil: processed. Any other error: a failed run, tried again after the back-off
	})

	ctx := context.Background()
	fmt.Println("unpaid:", closeUnpaid.Process(ctx, task.Task{BizID: 1}))
	fmt.Println("paid:", processor.IsDiscard(closeUnpaid.Process(ctx, task.Task{BizID: 2})))
	pause, _ := processor.RetryPause(closeUnpaid.Process(ctx, task.Task{BizID: 3}))
	fmt.Println("busy:", pause)
	pause, _ = processor.IsNoAttempt(closeUnpaid.Process(ctx, task.Task{BizID: 4}))
	fmt.Println("no socket:", pause)
	// Output:
	// unpaid: <nil>
	// paid: true
	// busy: 1m0s
	// no socket: 1s
}

// A task that no run can ever end well is discarded, so that it does not use up its retries.
func ExampleDiscard() {
	sendMail := processor.Func(func(_ context.Context, t task.Task) error {
		var mail struct{ To string }
		if err := json.Unmarshal([]byte(t.Attribute), &mail); err != nil {
			return processor.Discard(err)
		}
		fmt.Println("mail to", mail.To)
		return nil
	})
	fmt.Println(sendMail.Process(context.Background(), task.Task{Attribute: `{"to":"ann"}`}))
	err := sendMail.Process(context.Background(), task.Task{Attribute: `to ann`})
	fmt.Println("discarded:", processor.IsDiscard(err))
	// Output:
	// mail to ann
	// <nil>
	// discarded: true
}

// A processor has a back-off of its own: a minute more after each failed run.
func ExampleRetryAfter() {
	busy := processor.Func(func(_ context.Context, t task.Task) error {
		return processor.RetryAfter(time.Duration(t.Attempts+1)*time.Minute, errBusy)
	})
	for failed := range 3 {
		err := busy.Process(context.Background(), task.Task{Attempts: failed})
		pause, _ := processor.RetryPause(err)
		fmt.Println(err, "- again in", pause, errors.Is(err, errBusy))
	}
	// Output:
	// the shop is busy - again in 1m0s true
	// the shop is busy - again in 2m0s true
	// the shop is busy - again in 3m0s true
}

// mailer sends one mail for each task.
type mailer struct {
	send func(texts []string) []error
}

// Process sends one mail.
func (m *mailer) Process(ctx context.Context, t task.Task) error {
	return m.ProcessBatch(ctx, []task.Task{t})[0]
}

// ProcessBatch sends many mails at once. It answers one error for each task, in order.
func (m *mailer) ProcessBatch(_ context.Context, tasks []task.Task) []error {
	texts := make([]string, len(tasks))
	for i, t := range tasks {
		texts[i] = t.Attribute
	}
	return m.send(texts)
}

// A processor that is also a Batch is given tasks that are due together in one call.
func ExampleBatch() {
	m := &mailer{send: func(texts []string) []error {
		fmt.Println("one connection for", len(texts), "mails")
		return make([]error, len(texts))
	}}
	fmt.Println(m.ProcessBatch(context.Background(), []task.Task{{Attribute: "to ann"}, {Attribute: "to bob"}}))
	// Output:
	// one connection for 2 mails
	// [<nil> <nil>]
}
