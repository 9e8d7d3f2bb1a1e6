package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/timeoutcenter/toc/client"
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
