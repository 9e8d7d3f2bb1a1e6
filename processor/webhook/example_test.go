package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// A receiver verifies the signature of a call before it believes a word of it.
func ExampleNewSigner() {
	signer, err := webhook.NewSigner(secret)
	check(err)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || signer.Verify(body, r.Header) != nil { // also a call that is older than five minutes
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var t api.Task
		check(json.Unmarshal(body, &t))
		fmt.Println("close order", t.BizID, "of job", r.Header.Get("Webhook-Id"))
	}))
	defer receiver.Close()

	p, err := webhook.New(task.BizType{ID: 1, Name: "order_close"}, webhook.Config{URL: receiver.URL, Secret: secret})
	check(err)
	defer p.Close()
	fmt.Println(p.Process(context.Background(), task.Task{JobID: 413351953711104, BizID: 42}))
	forged, err := http.Post(receiver.URL, "application/json", strings.NewReader(`{"biz_id":"43"}`))
	check(err)
	defer forged.Body.Close()
	fmt.Println("without a signature:", forged.Status)
	// Output:
	// close order 42 of job 413351953711104
	// <nil>
	// without a signature: 401 Unauthorized
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// What the receiver answers decides about the task.
func ExampleProcessor() {
	answer := http.StatusNoContent
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30") // of 429 and 503
		w.WriteHeader(answer)
	}))
	defer receiver.Close()
	p, err := webhook.New(task.BizType{ID: 1, Name: "order_close", BackoffMax: time.Minute}, webhook.Config{URL: receiver.URL})
	check(err)
	defer p.Close()

	for _, answer = range []int{http.StatusNoContent, http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError} {
		err := p.Process(context.Background(), task.Task{JobID: 413351953711104, BizID: 42})
		pause, given := processor.RetryPause(err)
		switch {
		case err == nil:
			fmt.Println(answer, "processed")
		case processor.IsDiscard(err):
			fmt.Println(answer, "cancelled")
		case given:
			fmt.Println(answer, "tried again in", pause)
		default:
			fmt.Println(answer, "tried again after the back-off")
		}
	}
	// Output:
	// 204 processed
	// 410 cancelled
	// 429 tried again in 30s
	// 500 tried again after the back-off
}

// While a secret is changed, calls are signed with both: a receiver that knows only the old one verifies them, too.
func ExampleConfig_previousSecret() {
	const old = "an old secret of the shop"
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check(err)
		for _, known := range []string{secret, old, "a secret of another shop"} {
			signer, err := webhook.NewSigner(known)
			check(err)
			fmt.Println(signer.Verify(body, r.Header) == nil)
		}
	}))
	defer receiver.Close()

	p, err := webhook.New(task.BizType{ID: 1, Name: "order_close"},
		webhook.Config{URL: receiver.URL, Secret: secret, PreviousSecret: old})
	check(err)
	defer p.Close()
	check(p.Process(context.Background(), task.Task{JobID: 413351953711104, BizID: 42}))
	// Output:
	// true
	// true
	// false
}
