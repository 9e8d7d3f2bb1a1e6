package httpapi_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/httpapi"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// Bodies that are being sent hold no more memory than the budget; the next ones are refused, and told when to come
// again. Before, 200 bodies that stopped after a megabyte held 263 MB for a minute.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	server := httptest.NewServer(newFake(newFakeDesk(t), func(c *httpapi.Config) { c.MaxBodies = 3 << 20 }))
	defer server.Close()
	begin := func(size int) net.Conn {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /v1/tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat(" ", size-1))
		require.NoError(t, err)
		return conn
	}
	ask := func(size int) *http.Response {
		a, err := http.Post(server.URL+"/v1/tasks/batch", "application/json", strings.NewReader(`{"tasks":[]`+strings.Repeat(" ", size)+"}"))
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
		return a
	}
	var slow []net.Conn
	for range 3 {
		slow = append(slow, begin(1<<20))
	}
	require.Eventually(t, func() bool { return ask(1<<19).StatusCode == http.StatusServiceUnavailable }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "1", ask(1<<19).Header.Get("Retry-After"))
	alive, err := http.Get(server.URL + "/healthz")
	require.NoError(t, err)
	alive.Body.Close()
	require.Equal(t, 200, alive.StatusCode)
	small, err := http.Post(server.URL+"/v1/tasks", "application/json", strings.NewReader(`{"biz_type":"order_close","biz_id":1,"delay":"1h"}`))
	require.NoError(t, err)
	small.Body.Close()
	require.Equal(t, 201, small.StatusCode, "they are not kept out")
	for _, conn := range slow {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return ask(1<<19).StatusCode != http.StatusServiceUnavailable }, 10*time.Second, 10*time.Millisecond)
}

// Long answers do the same: a list is refused, and a batch before anything of it is stored.
func TestLongAnswersAreBounded(t *testing.T) {
	d := newFakeDesk(t)
	d.page = intake.Page{Tasks: []task.Task{{JobID: 1, BizType: 1, Attribute: strings.Repeat("a", 4000)}}}
	h := newFake(d, func(c *httpapi.Config) { c.MaxAnswers = 4000 })
	p := call(h, "GET", "/v1/tasks?biz_id=1", "").problem(t, 503)
	require.Contains(t, p.Detail, "nothing was changed")
	batch := func(n int) string {
		return `{"tasks":[` + strings.TrimSuffix(strings.Repeat(`{"biz_type":"order_close","biz_id":1,"delay":"1h"},`, n), ",") + `]}`
	}
	before := d.calls.Load()
	require.Equal(t, "1", call(h, "POST", "/v1/tasks/batch", batch(11)).Header().Get("Retry-After"))
	require.Equal(t, before, d.calls.Load())
	require.Equal(t, 200, call(h, "POST", "/v1/tasks/batch", batch(10)).Code)
	require.Equal(t, 200, call(h, "POST", "/v1/tasks/batch", batch(10)).Code, "what is answered is given back")
}

// What is known not to have been done is said.
func TestASubmitThatWasNotBegunSaysSo(t *testing.T) {
	d := newFakeDesk(t)
	d.err = fmt.Errorf("insert: %w: %w", task.ErrNotBegun, task.ErrUnavailable)
	p := call(newFake(d), "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":1,"delay":"1h"}`).problem(t, 503)
	require.Contains(t, p.Detail, "nothing was changed")
}
