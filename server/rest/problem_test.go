package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// calls is one request for each route that asks the desk.
var calls = [][3]string{
	{"POST", "/v1/tasks", submitBody},
	{"GET", "/v1/tasks/1", ""},
	{"GET", "/v1/tasks/1/why", ""},
	{"GET", "/v1/tasks?biz_id=1", ""},
	{"POST", "/v1/tasks/1/cancel", ""},
	{"PATCH", "/v1/tasks/1", `{"delay":"1h"}`},
	{"POST", "/v1/tasks/1/redrive", ""},
	{"GET", "/v1/tasks/by-key?biz_type=order_close&biz_id=a&dedup_key=k", ""},
	{"PATCH", "/v1/tasks/by-key?biz_type=order_close&biz_id=a&dedup_key=k", `{"delay":"1h"}`},
	{"POST", "/v1/tasks/by-key/cancel?biz_type=order_close&biz_id=a&dedup_key=k", ""},
	{"GET", "/v1/tasks", ""},
	{"GET", "/v1/forecast", ""},
	{"GET", "/v1/dead", ""},
	{"POST", "/v1/dead/redrive", "{}"},
	{"POST", "/v1/dead/discard", `{"rate":10}`},
	{"GET", "/v1/operations", ""},
	{"GET", "/v1/operations/1", ""},
	{"POST", "/v1/operations/1/stop", ""},
	{"GET", "/v1/cluster", ""},
	{"GET", "/v1/biz-types", ""},
	{"POST", "/v1/biz-types/order_close/pause", ""},
	{"POST", "/v1/biz-types/order_close/resume", ""},
	{"POST", "/v1/biz-types/order_close/retry", ""},
	{"POST", "/v1/biz-types/order_close/lease", ""},
	{"POST", "/v1/leases/settle", `{"settle":[{"lease":"a-b","do":"ack"}]}`},
}

// newFakeCenter stores nothing.
func newFakeCenter(t testing.TB) *fakecenter.Center {
	types, err := task.NewTypes(bizTypes()...)
	require.NoError(t, err)
	return &fakecenter.Center{BizTypes: types}
}

// newFake is the API over a fake desk.
func newFake(d *fakecenter.Center, with ...func(*rest.Config)) http.Handler {
	cfg := rest.Config{Center: d, Status: failing{d: d}, Nodes: &exchanged{}}
	for _, w := range with {
		w(&cfg)
	}
	return rest.New(cfg)
}

// failing is a status that fails as the desk does.
type failing struct {
	calm
	d *fakecenter.Center
}

func (f failing) Cluster(ctx context.Context) (api.Cluster, error) {
	return api.Cluster{}, f.d.Cancel(ctx, 1)
}

func (f failing) BizTypes(ctx context.Context) ([]api.BizType, error) {
	return nil, f.d.Cancel(ctx, 1)
}

func (f failing) Ready(context.Context) api.Readiness {
	return api.Readiness{Degraded: []string{"database 3 does not answer"}, Reasons: []string{"database_down of database 3"}}
}

func TestTableOfErrors(t *testing.T) {
	secret := "dial tcp 10.0.0.9:3306: password of root"
	for _, row := range []struct {
		err     error
		status  int
		outcome string
		logged  bool
	}{
		{err: &task.FieldError{Field: "limit", Message: "is wrong"}, status: 422},
		{err: fmt.Errorf("wrapped: %w", &task.FieldError{Field: "limit", Message: "is wrong"}), status: 422},
		{err: &task.ConflictError{JobID: 1, Conflict: task.ConflictRunning}, status: 409, outcome: "running"},
		{err: &task.ConflictError{JobID: 1, Conflict: task.ConflictProcessed}, status: 409, outcome: "already_processed"},
		{err: &task.ConflictError{JobID: 1, Conflict: task.ConflictCancelled}, status: 409, outcome: "already_cancelled"},
		{err: &task.ConflictError{JobID: 1, Conflict: task.ConflictDead}, status: 409, outcome: "dead"},
		{err: task.ErrNotFound, status: 404},
		{err: task.ErrUnavailable, status: 503},
		{err: &store.DatabaseError{Database: 3, Err: errors.New(secret)}, status: 503},
		{err: fmt.Errorf("insert: %w", context.DeadlineExceeded), status: 503},
		{err: context.Canceled, status: 503},
		{err: errors.New(secret), status: 500, logged: true},
	} {
		var log bytes.Buffer
		d := newFakeCenter(t)
		d.Err = row.err
		h := newFake(d, func(c *rest.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		for _, r := range calls {
			t.Run(fmt.Sprint(row.err, " ", r[0], " ", r[1]), func(t *testing.T) {
				log.Reset()
				a := call(h, r[0], r[1], r[2])
				p := a.problem(t, row.status)
				require.Equal(t, row.outcome, p.Outcome)
				require.NotContains(t, a.Body.String(), secret)
				require.Equal(t, errors.As(row.err, new(*store.DatabaseError)), strings.HasSuffix(p.Detail, "(database 3)"), p.Detail)
				if len(p.Errors) > 0 {
					require.Equal(t, p.Errors[0].Location+": "+p.Errors[0].Message, p.Detail, "many clients show nothing else")
				}
				require.Equal(t, row.logged, strings.Contains(log.String(), secret), log.String())
				require.Equal(t, row.status == 503, a.Header().Get("Retry-After") == "1")
				if row.status == 422 {
					where := "body.limit"
					if r[0] == "GET" {
						where = "query.limit"
					}
					require.Equal(t, []string{where}, p.locations())
				}
			})
		}
	}
}

func TestBatchItemsThatFail(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{&task.FieldError{Field: "biz_type", Message: "is wrong"}, `{"results":[{"error":{"field":"biz_type","message":"is wrong"}}]}`},
		{task.ErrUnavailable, `{"results":[{"error":{"field":"","message":"the center cannot decide this now, and what was asked may or may not be done; try again. ` +
			`A submit with a dedup_key is safe to repeat.","retry":true}}]}`},
		{errors.New("secret"), `{"results":[{"error":{"field":"","message":"the center failed; its log says why"}}]}`},
	} {
		d := newFakeCenter(t)
		d.Err = row.err
		require.JSONEq(t, row.want, call(newFake(d), "POST", "/v1/tasks/batch", `{"tasks":[`+submitBody+`]}`).Body.String())
	}
}

func TestNotReady(t *testing.T) {
	a := call(newFake(newFakeCenter(t)), "GET", "/readyz", "")
	a.read(t, 503)
	require.JSONEq(t, `{"ready":false,"degraded":["database 3 does not answer"]}`, a.Body.String())
}

// A handler that takes too long is answered, except for the redrive of many, and for a lease, whose caller says how long.
func TestTimeout(t *testing.T) {
	for _, r := range calls {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeCenter(t)
			unbounded := r[1] == "/v1/dead/redrive" || r[1] == "/v1/dead/discard" || strings.HasSuffix(r[1], "/lease")
			d.Seen = func(ctx context.Context) {
				if unbounded {
					_, bounded := ctx.Deadline()
					require.False(t, bounded)
					return
				}
				<-ctx.Done()
				d.Err = ctx.Err()
			}
			h := newFake(d, func(c *rest.Config) { c.Timeout = 7 * time.Second })
			start := time.Now()
			a := call(h, r[0], r[1], r[2])
			if unbounded {
				require.Equal(t, 200, a.Code)
				return
			}
			a.problem(t, 503)
			require.Equal(t, 7*time.Second, time.Since(start))
		})
	}
}

// A panic costs neither the process nor the connection, and is logged once.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	d := newFakeCenter(t)
	d.Err, d.Panics = errors.New("secret"), true
	server := httptest.NewUnstartedServer(newFake(d, func(c *rest.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }))
	var opened atomic.Int64
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for range 3 {
		answer, err := server.Client().Post(server.URL+"/v1/tasks", "application/json", strings.NewReader(submitBody))
		require.NoError(t, err)
		require.Equal(t, 500, answer.StatusCode)
		require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
		var body bytes.Buffer
		_, err = body.ReadFrom(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.NotContains(t, body.String(), "secret")
	}
	d.Panics, d.Err = false, nil
	answer, err := server.Client().Get(server.URL + "/v1/tasks/1")
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode)
	require.NoError(t, answer.Body.Close())
	require.EqualValues(t, 1, opened.Load(), "the connection survives")
	require.Equal(t, 3, strings.Count(log.String(), "request panicked"))
	require.Contains(t, log.String(), "secret")
}
