package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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

// startCenter starts a center with an address, on few tables in a directory of its own.
func startCenter() (c *client.Client, stop func()) {
	dir, _ := os.MkdirTemp("", "toc-example-")
	cfg := configs.Default()
	cfg.Store.SQLite.Dir, cfg.HTTP.Listen = dir, "127.0.0.1:0"
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1, 4, 0
	center, err := app.New(cfg, app.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	check(center.Start(context.Background()))
	c = client.New(center.Addr())
	return c, func() {
		c.CloseIdleConnections()
		check(center.Stop(context.Background()))
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A change is made of the task as it was seen, or not at all.
func ExampleIfMatch() {
	c, stop := startCenter()
	defer stop()
	ctx := context.Background()

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

// A look-up finds a task, or answers task.ErrNotFound.
func ExampleClient_Get() {
	c, stop := startCenter()
	defer stop()
	ctx := context.Background()

	s, err := c.Submit(ctx, client.Submit{BizType: "order_close", BizID: 42, Delay: time.Hour, Attribute: "shop 7"})
	check(err)
	t, err := c.Get(ctx, uint64(s.Task.JobID))
	fmt.Println(t.BizType, t.BizID, t.Status, t.Attribute, err)

	_, err = c.Get(ctx, 1)
	fmt.Println("no such task:", errors.Is(err, task.ErrNotFound))
	// Output:
	// order_close 42 pending shop 7 <nil>
	// no such task: true
}

// A program that keeps no job_id asks by its own key. The biz_id may be a text.
func ExampleClient_GetByKey() {
	c, stop := startCenter()
	defer stop()
	ctx := context.Background()

	const order = "6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d"
	s, err := c.Submit(ctx, client.Submit{BizType: "order_close", BizKey: order, Delay: time.Hour, DedupKey: "unpaid"})
	check(err)
	t, err := c.GetByKey(ctx, client.Key{BizType: "order_close", BizKey: order, DedupKey: "unpaid"})
	fmt.Println(t.BizID, t.JobID == s.Task.JobID, err)
	// Output:
	// 6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d true <nil>
}

// The tasks of a biz_id come page by page.
func ExampleClient_List() {
	c, stop := startCenter()
	defer stop()
	ctx := context.Background()
	for _, text := range []string{"first reminder", "second reminder", "close"} {
		_, err := c.Submit(ctx, client.Submit{BizType: "order_close", BizID: 42, Delay: time.Hour, Attribute: text})
		check(err)
	}

	question := client.List{BizID: 42, Status: "pending", Limit: 2}
	for {
		page, err := c.List(ctx, question)
		check(err)
		for _, t := range page.Tasks {
			fmt.Println(t.Attribute)
		}
		if question.Cursor = page.NextCursor; page.NextCursor == "" {
			break
		}
		fmt.Println("the next page")
	}
	// Output:
	// first reminder
	// second reminder
	// the next page
	// close
}

// The business types of a center, and who owns its partitions.
func ExampleClient_BizTypes() {
	c, stop := startCenter()
	defer stop()
	ctx := context.Background()

	types, err := c.BizTypes(ctx)
	check(err)
	for _, b := range types {
		fmt.Println(b.ID, b.Name, "is run by", b.Processor, "in mode", b.Mode)
	}
	cluster, err := c.Cluster(ctx)
	check(err)
	for _, n := range cluster.Nodes {
		fmt.Println("a node with", len(n.Partitions), "of", cluster.Partitions, "partitions")
	}
	// Output:
	// 1 order_close is run by webhook in mode scan
	// 2 demo_log is run by log in mode redis
	// a node with 4 of 4 partitions
}

// A refusal names each field that is wrong.
func ExampleError() {
	c, stop := startCenter()
	defer stop()

	_, err := c.List(context.Background(), client.List{BizID: 42, Status: "done", Limit: 5000})
	var refusal *client.Error
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Status, refusal.Title)
		for _, wrong := range refusal.Errors {
			fmt.Println(wrong.Location, "-", wrong.Message)
		}
	}
	// Output:
	// 422 Unprocessable Entity
	// query.status - expected value to be one of "pending, processed, cancelled, dead"
	// query.limit - expected number <= 1000
}

// A center that cannot decide now says when to ask again. A submit with a DedupKey may be sent again.
func ExampleError_Unwrap() {
	calls := 0
	center := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls > 1 {
			alreadyProcessed(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer center.Close()
	c := client.New(center.URL)
	defer c.CloseIdleConnections()

	unpaid := client.Submit{BizType: "order_close", BizID: 42, Delay: 30 * time.Minute, DedupKey: "unpaid"}
	s, err := c.Submit(context.Background(), unpaid)
	for errors.Is(err, task.ErrUnavailable) {
		var refusal *client.Error
		errors.As(err, &refusal)
		fmt.Println("wait", refusal.RetryAfter) // a program sleeps here
		s, err = c.Submit(context.Background(), unpaid)
	}
	fmt.Println("submitted:", s.Task.Status, err)
	// Output:
	// wait 1s
	// submitted: pending <nil>
}

// A task of a batch that could not be stored now is submitted again, one that is wrong is not.
func ExampleClient_SubmitBatch() {
	center := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"results":[{"job_id":"413351953711104"},
			{"error":{"field":"biz_type","message":"is not configured"}},
			{"error":{"field":"","message":"the task's database is out of reach","retry":true}}]}`)
	}))
	defer center.Close()
	c := client.New(center.URL)
	defer c.CloseIdleConnections()

	orders := []client.Submit{
		{BizType: "order_close", BizID: 42, Delay: time.Hour, DedupKey: "unpaid"},
		{BizType: "order_clsoe", BizID: 43, Delay: time.Hour, DedupKey: "unpaid"},
		{BizType: "order_close", BizID: 44, Delay: time.Hour, DedupKey: "unpaid"},
	}
	results, err := c.SubmitBatch(context.Background(), orders)
	check(err)
	for i, r := range results {
		if r.Err != nil {
			fmt.Printf("order %d: %v; again: %v\n", orders[i].BizID, r.Err, r.Err.Retry)
		}
	}
	// Output:
	// order 43: biz_type: is not configured; again: false
	// order 44: the task's database is out of reach; again: true
}

// The center is behind a proxy whose certificate the machine does not know.
func ExampleWithHTTPClient() {
	proxy := httptest.NewTLSServer(alreadyProcessed)
	defer proxy.Close()

	known := x509.NewCertPool()
	known.AddCert(proxy.Certificate())
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: known}
	c := client.New(proxy.URL, client.WithToken("secret"), client.WithHTTPClient(&http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token goes nowhere else
		},
	}))
	defer c.CloseIdleConnections()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // it bounds one call
	defer cancel()
	s, err := c.Submit(ctx, client.Submit{BizType: "order_close", BizID: 42, Delay: time.Hour})
	fmt.Println(s.Task.Status, err)
	// Output:
	// pending <nil>
}
