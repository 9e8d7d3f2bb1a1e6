package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// A submit that is safe to repeat, and a cancel that comes too late.
func Example() {
	center := httptest.NewServer(alreadyProcessed)
	defer center.Close()

	c := client.New(center.URL, client.WithToken("secret"))
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	s, err := c.Submit(ctx, client.Submit{
		BizType: "order_close", BizID: 42, Delay: 30 * time.Minute, DedupKey: "order-42-unpaid",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("task", s.Task.JobID, "is", s.Task.Status)

	var refusal *client.Error
	if err := c.Cancel(ctx, uint64(s.Task.JobID)); errors.As(err, &refusal) {
		fmt.Println("not cancelled:", refusal.Outcome)
	}
	// Output:
	// task 413351953711104 is pending
	// not cancelled: already_processed
}

// alreadyProcessed stands for a center whose task fires at once.
var alreadyProcessed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/tasks" {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"42","status":"pending",`+
			`"action_time":"2026-01-02T15:04:05.000Z","attempts":0}`)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusConflict)
	_, _ = fmt.Fprint(w, `{"title":"Conflict","status":409,"detail":"…","outcome":"already_processed"}`)
})

// A change is made of the task as it was seen, or not at all.
func ExampleIfMatch() {
	dir, _ := os.MkdirTemp("", "toc-example-")
	defer os.RemoveAll(dir)
	cfg := configs.Default()
	cfg.Store.SQLite.Dir, cfg.HTTP.Listen = dir, "127.0.0.1:0"
	center, err := app.New(cfg, app.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	ctx := context.Background()
	check(center.Start(ctx))
	defer center.Stop(ctx)

	c := client.New(center.Addr())
	defer c.CloseIdleConnections()
	s, err := c.Submit(ctx, client.Submit{BizType: "order_close", BizKey: "order-6f1c", Delay: 30 * time.Minute})
	check(err)
	seen, jobID := s.Task.ETag, uint64(s.Task.JobID)
	_, err = c.Reschedule(ctx, jobID, client.Change{Delay: new(time.Hour)}, client.IfMatch(seen))
	fmt.Println("moved:", err)

	var changed *task.ChangedError
	if err := c.Cancel(ctx, jobID, client.IfMatch(seen)); errors.As(err, &changed) {
		fmt.Println("not cancelled: the task has changed since")
	}
	// Output:
	// moved: <nil>
	// not cancelled: the task has changed since
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
