package dedup_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/timeoutcenter/toc/client/dedup"
)

// A receiver of webhooks does the work of each task once.
func Example() {
	done := dedup.New(dedup.Config{}) // with Redis, if there are several processes
	receive := func(w http.ResponseWriter, r *http.Request) {
		err := done.Do(r.Context(), r.Header.Get("webhook-id"), func(context.Context) error {
			fmt.Println("the order is closed")
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // toc calls again
		}
	}
	for range 2 {
		call := httptest.NewRequest(http.MethodPost, "/", nil)
		call.Header.Set("webhook-id", "413351953711104")
		answer := httptest.NewRecorder()
		receive(answer, call)
		fmt.Println(answer.Code)
	}
	// Output:
	// the order is closed
	// 200
	// 200
}
