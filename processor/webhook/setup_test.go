package webhook_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

var orderClose = task.BizType{ID: 7, Name: "order_close", Workers: 64, Timeout: 30 * time.Second, BackoffMax: 10 * time.Minute}

// order is a task that is due.
func order() task.Task {
	return task.Task{
		JobID: 413351953711104, BizID: 42, BizType: 7, Attempts: 2,
		ActionTime: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Attribute: `{"order":"42"}`, LastError: "no answer",
		Created:  time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC),
		Modified: time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC),
	}
}

// open makes a processor that is closed when the test ends.
func open(t testing.TB, cfg webhook.Config) *webhook.Processor {
	t.Helper()
	w, err := webhook.New(orderClose, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// receiver is a server that counts its connections.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	opened int
	closed chan struct{} // one for each connection that was closed
}

func serve(t testing.TB, h http.HandlerFunc) *receiver {
	r := &receiver{Server: httptest.NewUnstartedServer(h), closed: make(chan struct{}, 1024)}
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			r.mu.Lock()
			r.opened++
			r.mu.Unlock()
		case http.StateClosed:
			r.closed <- struct{}{}
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// outcome is a verdict in one word.
func outcome(err error) string {
	pause, again := processor.RetryPause(err)
	switch {
	case err == nil:
		return "processed"
	case processor.IsDiscard(err):
		return "discarded"
	case again:
		return "again in " + pause.String()
	default:
		return "failed"
	}
}
