package rest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

// slowBody is a batch whose last byte does not come before it is let go.
type slowBody struct {
	left    int
	reached chan<- struct{} // told when all but that has been read
	letGo   <-chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.reached <- struct{}{}
		<-b.letGo
		return 0, io.ErrUnexpectedEOF
	}
	n := min(b.left, len(p))
	b.left -= n
	return copy(p[:n], strings.Repeat(" ", n)), nil
}

// Bodies that are being sent hold no more memory than the budget; the next ones are refused, and told when to come
// again. Before, 200 bodies that stopped after a megabyte held 263 MB for a minute.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFake(newFakeCenter(t), func(c *rest.Config) { c.MaxBodies = 9 << 20 })
		reached, letGo := make(chan struct{}, 3), make(chan struct{})
		var slow sync.WaitGroup
		for range 3 {
			slow.Go(func() {
				r := httptest.NewRequest("POST", "/v1/tasks/batch", &slowBody{left: 1<<20 - 100, reached: reached, letGo: letGo})
				r.ContentLength = 1 << 20
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusBadRequest {
					t.Errorf("a body that does not arrive whole: %d %s", w.Code, w.Body)
				}
			})
		}
		for range 3 {
			<-reached
		}
		batch := `{"tasks":[{"biz_type":"order_close","biz_id":1,"delay":"1h"}]` + strings.Repeat(" ", 1<<19) + "}"
		refused := call(h, "POST", "/v1/tasks/batch", batch)
		require.Contains(t, refused.problem(t, 503).Errors[0].Message, "nothing was changed")
		require.Equal(t, "1", refused.Header().Get("Retry-After"))
		require.Equal(t, 200, call(h, "GET", "/healthz", "").Code)
		require.Equal(t, 201, call(h, "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":1,"delay":"1h"}`).Code, "small ones are not kept out")
		close(letGo)
		slow.Wait()
		require.Equal(t, 200, call(h, "POST", "/v1/tasks/batch", batch).Code)
	})
}

// Large bodies wait for each other: none is refused because several have begun.
func TestLargeBodiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFake(newFakeCenter(t), func(c *rest.Config) { c.MaxBodies = 5 << 20 }) // room for one of them, and what the others begin with
		batch := `{"tasks":[{"biz_type":"order_close","biz_id":1,"delay":"1h"}]` + strings.Repeat(" ", 1<<20) + "}"
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/tasks/batch", strings.NewReader(batch)))
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		callers.Wait()
	})
}

// Long answers do the same: a list is refused, and a batch before anything of it is stored.
func TestLongAnswersAreBounded(t *testing.T) {
	d := newFakeCenter(t)
	d.Tasks = []api.Task{{JobID: 1, Attribute: strings.Repeat("a", 4000)}}
	h := newFake(d, func(c *rest.Config) { c.MaxAnswers = 4000 })
	p := call(h, "GET", "/v1/tasks?biz_id=1", "").problem(t, 503)
	require.Contains(t, p.Detail, "nothing was changed")
	batch := func(n int) string {
		return `{"tasks":[` + strings.TrimSuffix(strings.Repeat(`{"biz_type":"order_close","biz_id":1,"delay":"1h"},`, n), ",") + `]}`
	}
	before := d.Calls.Load()
	require.Equal(t, "1", call(h, "POST", "/v1/tasks/batch", batch(11)).Header().Get("Retry-After"))
	require.Equal(t, before, d.Calls.Load())
	require.Equal(t, 200, call(h, "POST", "/v1/tasks/batch", batch(10)).Code)
	require.Equal(t, 200, call(h, "POST", "/v1/tasks/batch", batch(10)).Code, "what is answered is given back")
}

// What is known not to have been done is said.
func TestASubmitThatWasNotBegunSaysSo(t *testing.T) {
	d := newFakeCenter(t)
	d.Err = fmt.Errorf("insert: %w: %w", task.ErrNotBegun, task.ErrUnavailable)
	p := call(newFake(d), "POST", "/v1/tasks", `{"biz_type":"order_close","biz_id":1,"delay":"1h"}`).problem(t, 503)
	require.Contains(t, p.Detail, "nothing was changed")
}
