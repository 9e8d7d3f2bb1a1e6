package app_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// A batch is answered task by task, in order. One that is refused does not spoil the rest.
func ExampleTasks_SubmitBatch() {
	center, stop := startQuiet()
	defer stop()

	orders := []client.Submit{
		{BizType: "order_close", BizID: 42, Delay: time.Hour},
		{BizType: "order_clsoe", BizID: 43, Delay: time.Hour},
		{BizType: "order_close", BizID: 44, Delay: time.Hour},
	}
	results, err := center.Tasks().SubmitBatch(context.Background(), orders)
	check(err) // with an error none is stored
	for i, r := range results {
		if r.Err != nil {
			fmt.Println("order", orders[i].BizID, "is refused:", r.Err)
			continue
		}
		fmt.Println("order", orders[i].BizID, "is stored")
	}
	// Output:
	// order 42 is stored
	// order 43 is refused: biz_type: "order_clsoe" is not configured; there are: order_close, demo_log
	// order 44 is stored
}

// A submit can move the first task of its DedupKey, so a program need not know whether there is one.
func ExampleTasks_Submit_move() {
	center, stop := startQuiet()
	defer stop()
	ctx, tasks := context.Background(), center.Tasks()

	seen := time.Now() // each visit gives a session half an hour more
	visit := client.Submit{BizType: "order_close", BizID: 42, DedupKey: "session", OnDuplicate: client.Move}
	visit.ActionTime = seen.Add(30 * time.Minute)
	first, err := tasks.Submit(ctx, visit)
	check(err)
	visit.ActionTime = seen.Add(40 * time.Minute)
	second, err := tasks.Submit(ctx, visit)
	check(err)

	fmt.Println("the same task:", second.Duplicate, second.Task.JobID == first.Task.JobID)
	fmt.Println("later by", second.Task.ActionTime.Time().Sub(first.Task.ActionTime.Time()))
	// Output:
	// the same task: true true
	// later by 10m0s
}

// A task that runs cannot be cancelled any more.
func ExampleTasks_Cancel() {
	started, finish := make(chan bool), make(chan bool)
	slow := processor.Func(func(context.Context, task.Task) error { close(started); <-finish; return nil })
	center, stop := startQuiet(app.WithBizType(configs.BizType{ID: 3, Name: "mail"}, slow))
	defer stop()

	ctx := context.Background()
	s, err := center.Tasks().Submit(ctx, client.Submit{BizType: "mail", BizID: 42, Now: true})
	check(err)
	<-started
	var conflict *task.ConflictError
	if err := center.Tasks().Cancel(ctx, uint64(s.Task.JobID)); errors.As(err, &conflict) {
		fmt.Println("too late:", conflict.Conflict == task.ConflictRunning)
	}
	close(finish)
	// Output:
	// too late: true
}

// The caller's own key names a task as well as its job_id does: the order is paid, so it is not to be closed.
func ExampleTasks_CancelByKey() {
	center, stop := startQuiet()
	defer stop()
	ctx, tasks := context.Background(), center.Tasks()

	_, err := tasks.Submit(ctx, client.Submit{BizType: "order_close", BizID: 42, Delay: time.Hour, DedupKey: "unpaid"})
	check(err)
	unpaid := client.Key{BizType: "order_close", BizID: 42, DedupKey: "unpaid"}
	check(tasks.CancelByKey(ctx, unpaid))
	t, err := tasks.GetByKey(ctx, unpaid)
	fmt.Println(t.Status, err)

	err = tasks.CancelByKey(ctx, client.Key{BizType: "order_close", BizID: 43, DedupKey: "unpaid"})
	fmt.Println("order 43 has none:", errors.Is(err, task.ErrNotFound))
	// Output:
	// cancelled <nil>
	// order 43 has none: true
}

// A task that waits for tomorrow runs at once, with another attribute.
func ExampleTasks_Reschedule() {
	sent := make(chan string)
	sendMail := processor.Func(func(_ context.Context, t task.Task) error { sent <- t.Attribute; return nil })
	center, stop := startQuiet(app.WithBizType(configs.BizType{ID: 3, Name: "mail"}, sendMail))
	defer stop()
	ctx, tasks := context.Background(), center.Tasks()

	s, err := tasks.Submit(ctx, client.Submit{BizType: "mail", BizID: 42, Delay: 24 * time.Hour, Attribute: "a reminder"})
	check(err)
	now := client.Change{Delay: new(time.Duration(0)), Attribute: new("the last reminder")}
	_, err = tasks.Reschedule(ctx, uint64(s.Task.JobID), now)
	check(err)
	fmt.Println("sent", <-sent)
	// Output:
	// sent the last reminder
}

// The task says what became of it, and why.
func ExampleTasks_Get() {
	closeUnpaid := processor.Func(func(context.Context, task.Task) error {
		return processor.Discard(errors.New("the order is paid"))
	})
	center, stop := startQuiet(app.WithBizType(configs.BizType{ID: 3, Name: "close"}, closeUnpaid))
	defer stop()
	ctx, tasks := context.Background(), center.Tasks()

	s, err := tasks.Submit(ctx, client.Submit{BizType: "close", BizID: 42, Now: true})
	check(err)
	waitUntil(tasks, uint64(s.Task.JobID), task.Cancelled)
	t, err := tasks.Get(ctx, uint64(s.Task.JobID))
	check(err)
	fmt.Println(t.Status, "after", t.Attempts, "failed runs:", t.LastError)
	// Output:
	// cancelled after 0 failed runs: discarded: the order is paid
}

// waitUntil waits until a task has a status.
func waitUntil(tasks *app.Tasks, jobID uint64, status task.Status) {
	await.That(example{}, func() bool {
		t, err := tasks.Get(context.Background(), jobID)
		check(err)
		return t.Status == status.String()
	}, "task %d is %s", jobID, status)
}

// example is an await.T: an example has no *testing.T.
type example struct{}

func (example) Helper() {}

func (example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A mail server was away for longer than the retries of a mail. Redrive gives the dead task a fresh start.
func ExampleTasks_Redrive() {
	var serverIsUp atomic.Bool
	sendMail := processor.Func(func(context.Context, task.Task) error {
		if !serverIsUp.Load() {
			return processor.RetryAfter(0, errors.New("no mail server"))
		}
		return nil
	})
	center, stop := startQuiet(app.WithBizType(configs.BizType{ID: 3, Name: "mail", MaxRetries: 1}, sendMail))
	defer stop()
	ctx, tasks := context.Background(), center.Tasks()

	s, err := tasks.Submit(ctx, client.Submit{BizType: "mail", BizID: 42, Now: true})
	check(err)
	jobID := uint64(s.Task.JobID)
	waitUntil(tasks, jobID, task.Dead)
	serverIsUp.Store(true)
	t, err := tasks.Redrive(ctx, jobID)
	fmt.Println(t.Status, "with", t.Attempts, "failed runs", err)
	waitUntil(tasks, jobID, task.Processed) // the mail is sent
	// Output:
	// pending with 0 failed runs <nil>
}

// A dry run counts the dead tasks that would get a fresh start.
func ExampleTasks_RedriveDead() {
	fail := processor.Func(func(context.Context, task.Task) error { return processor.RetryAfter(0, errors.New("no mail server")) })
	center, stop := startQuiet(app.WithBizType(configs.BizType{ID: 3, Name: "mail", MaxRetries: 1}, fail))
	defer stop()
	ctx, tasks := context.Background(), center.Tasks()
	for customer := range uint64(3) {
		s, err := tasks.Submit(ctx, client.Submit{BizType: "mail", BizID: customer, Now: true})
		check(err)
		waitUntil(tasks, uint64(s.Task.JobID), task.Dead)
	}

	found, err := tasks.RedriveDead(ctx, client.RedriveDead{BizType: "mail", DryRun: true})
	fmt.Println(found.Matched, "dead,", found.Redriven, "redriven", err)
	found, err = tasks.RedriveDead(ctx, client.RedriveDead{BizType: "mail", Limit: 1}) // one first, to see whether it works
	fmt.Println(found.Matched, "dead,", found.Redriven, "redriven", err)
	// Output:
	// 3 dead, 0 redriven <nil>
	// 3 dead, 1 redriven <nil>
}
