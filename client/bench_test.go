package client_test

import (
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

// BenchmarkSubmit measures single submits of 32 callers over HTTP, with a store in SQLite.
func BenchmarkSubmit(b *testing.B) {
	stored := fakecenter.OnStore(b, []task.BizType{{ID: 1, Name: "order_close"}})
	server := httptest.NewServer(rest.New(rest.Config{Center: stored.Service, Status: calm{}}))
	defer server.Close()
	c := client.New(server.URL)
	defer c.CloseIdleConnections()
	var last atomic.Uint64
	b.ReportAllocs()
	b.SetParallelism(16) // times GOMAXPROCS, which is 2
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := last.Add(1)
			_, err := c.Submit(b.Context(), client.Submit{BizType: "order_close", BizID: id, Delay: time.Hour, Attribute: `{"shop":7,"user":"u-1234"}`,
				DedupKey: fmt.Sprint("order-", id)})
			require.NoError(b, err)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submits/s")
}
