package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
)

// refused checks that err is the server's refusal, and gives it.
func refused(t *testing.T, err error, status int) *client.Error {
	t.Helper()
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, status, e.Status, e)
	return e
}

func TestSubmitAndGet(t *testing.T) {
	c, ctx := newCenter(t), t.Context()
	due := time.Date(2030, 1, 2, 3, 4, 5, 67_000_001, time.FixedZone("", 7200))
	s, err := c.Submit(ctx, client.Submit{BizType: "coupon", BizID: 1<<64 - 1, ActionTime: due, Attribute: "é<&>\x00\u2028😀", DedupKey: "k"})
	require.NoError(t, err)
	require.False(t, s.Duplicate)
	require.Equal(t, client.BizID{Number: 1<<64 - 1}, s.Task.BizID)
	require.NotEmpty(t, s.Task.ETag)
	require.Equal(t, "pending", s.Task.Status)
	require.Equal(t, "é<&>\x00\u2028😀", s.Task.Attribute)
	require.Equal(t, due.UTC().Add(999_999), s.Task.ActionTime.Time())

	got, err := c.Get(ctx, uint64(s.Task.JobID))
	require.NoError(t, err)
	require.Equal(t, s.Task, got)

	again, err := c.Submit(ctx, client.Submit{BizType: "coupon", BizID: 1<<64 - 1, DedupKey: "k", Now: true})
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.Equal(t, s.Task, again.Task)

	before := time.Now()
	at, err := c.Submit(ctx, client.Submit{BizType: "coupon", BizID: 1, Now: true})
	require.NoError(t, err)
	require.WithinRange(t, at.Task.ActionTime.Time(), before, time.Now().Add(time.Millisecond))
	_, err = c.Submit(ctx, client.Submit{BizType: "coupon", BizID: 1})
	require.Equal(t, "body.action_time", refused(t, err, 422).Errors[0].Location, "a forgotten time is not now")
	_, err = c.SubmitBatch(ctx, []client.Submit{{BizType: "coupon", Now: true}, {BizType: "coupon"}})
	require.ErrorContains(t, err, "task 1: ")
}

// A biz_id may be a text, and a task may be called by the key of its submit.
func TestTextsAndKeys(t *testing.T) {
	c, ctx := newCenter(t), t.Context()
	const uuid = "6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d"
	key := client.Key{BizType: "order_close", BizKey: uuid, DedupKey: "a key&more"}
	s, err := c.Submit(ctx, client.Submit{BizType: "order_close", BizKey: uuid, Delay: time.Hour, DedupKey: key.DedupKey, Timeout: 1500 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, uuid, s.Task.BizID.String())
	require.EqualValues(t, 1500*time.Millisecond, s.Task.Timeout)
	require.Equal(t, s.Task.ActionTime, s.Task.DueTime)
	page, err := c.List(ctx, client.List{BizKey: uuid})
	require.NoError(t, err)
	require.Len(t, page.Tasks, 1)
	require.Empty(t, page.Tasks[0].ETag)

	got, err := c.GetByKey(ctx, key)
	require.NoError(t, err)
	require.Equal(t, s.Task, got)
	moved, err := c.RescheduleByKey(ctx, key, client.Change{Timeout: time.Second})
	require.NoError(t, err)
	require.EqualValues(t, time.Second, moved.Timeout)
	due := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	again := client.Submit{BizType: "order_close", BizKey: uuid, ActionTime: due, DedupKey: key.DedupKey, OnDuplicate: client.Move}
	first, err := c.Submit(ctx, again)
	require.NoError(t, err)
	require.True(t, first.Duplicate)
	require.Equal(t, []any{s.Task.JobID, due}, []any{first.Task.JobID, first.Task.ActionTime.Time()})
	require.NoError(t, c.CancelByKey(ctx, key))
	require.Equal(t, "already_cancelled", refused(t, c.CancelByKey(ctx, key), 409).Outcome)
	_, err = c.Submit(ctx, again)
	require.Equal(t, "already_cancelled", refused(t, err, 409).Outcome)
	results, err := c.SubmitBatch(ctx, []client.Submit{again})
	require.NoError(t, err)
	require.Equal(t, "already_cancelled", results[0].Err.Outcome)

	key.BizKey, key.BizID = "", 7
	_, err = c.GetByKey(ctx, key)
	refused(t, err, 404)
	key.BizKey = uuid
	_, err = c.GetByKey(ctx, key)
	require.Equal(t, "query.biz_id", refused(t, err, 422).Errors[0].Location, "a number and a text")
	_, err = c.Submit(ctx, client.Submit{BizType: "order_close", BizKey: "\xff"})
	require.Equal(t, "body.biz_id", refused(t, err, 422).Errors[0].Location)
}

// A change that names a state of the task is made of that state or not at all.
func TestIfMatch(t *testing.T) {
	c, ctx := newCenter(t), t.Context()
	id := uint64(c.submitted(t, 1))
	seen, err := c.Get(ctx, id)
	require.NoError(t, err)
	mine := "mine"
	changed, err := c.Reschedule(ctx, id, client.Change{Attribute: &mine}, client.IfMatch(`"x"`, seen.ETag))
	require.NoError(t, err)
	for name, change := range map[string]func(opts ...client.ChangeOption) error{
		"reschedule": func(opts ...client.ChangeOption) error {
			_, err := c.Reschedule(ctx, id, client.Change{Attribute: &mine}, opts...)
			return err
		},
		"cancel":  func(opts ...client.ChangeOption) error { return c.Cancel(ctx, id, opts...) },
		"redrive": func(opts ...client.ChangeOption) error { _, err := c.Redrive(ctx, id, opts...); return err },
	} {
		for _, tags := range [][]string{{seen.ETag}, {}, {""}, {`"`}, {"x", seen.ETag}} {
			err := change(client.IfMatch(tags...))
			if len(tags) == 1 && tags[0] == `"` {
				refused(t, err, 422)
				continue
			}
			require.Equal(t, &changed, refused(t, err, 412).Task, "%s %q", name, tags)
		}
	}
	require.NoError(t, c.Cancel(ctx, id, client.IfMatch(strings.Trim(changed.ETag, `"`))), "without its quotes, too")
	require.Equal(t, "already_cancelled", refused(t, c.Cancel(ctx, id, client.IfMatch("*")), 409).Outcome)
}

func TestRefusals(t *testing.T) {
	c, ctx := newCenter(t), t.Context()
	_, err := c.Submit(ctx, client.Submit{BizType: "nope", Delay: time.Hour})
	e := refused(t, err, 422)
	require.Equal(t, "Unprocessable Entity", e.Title)
	require.Len(t, e.Errors, 1)
	require.Equal(t, "body.biz_type", e.Errors[0].Location)
	require.EqualError(t, err, `422 Unprocessable Entity: body.biz_type: "nope" is not configured; there are: order_close, coupon`)

	_, err = c.Submit(ctx, client.Submit{BizType: "coupon", Delay: -time.Second})
	require.Equal(t, "body.delay", refused(t, err, 422).Errors[0].Location)
	_, err = c.Submit(ctx, client.Submit{BizType: "coupon", ActionTime: time.Unix(0, 0)})
	require.Equal(t, "body.action_time", refused(t, err, 422).Errors[0].Location)
	for _, s := range []client.Submit{{BizType: "\xff"}, {BizType: "coupon", Attribute: "\xff"}, {BizType: "coupon", DedupKey: "\xff"}} {
		_, err = c.Submit(ctx, s)
		require.Contains(t, refused(t, err, 422).Errors[0].Message, "UTF-8")
		_, err = c.SubmitBatch(ctx, []client.Submit{s})
		refused(t, err, 422)
	}
	_, err = c.Get(ctx, 1)
	require.EqualError(t, refused(t, err, 404), "404 Not Found: no task has this job_id")
	_, err = c.List(ctx, client.List{BizID: 1, Limit: 1001})
	require.Equal(t, "query.limit", refused(t, err, 422).Errors[0].Location)
	_, err = c.ListDead(ctx, client.ListDead{Cursor: "nope"})
	require.Equal(t, "query.cursor", refused(t, err, 422).Errors[0].Location)
	_, err = c.SubmitBatch(ctx, nil)
	require.Equal(t, "body.tasks", refused(t, err, 422).Errors[0].Location)
}

func TestStatus(t *testing.T) {
	c, ctx := newCenter(t), t.Context()
	cluster, err := c.Cluster(ctx)
	require.NoError(t, err)
	require.Equal(t, client.Cluster{
		Node: "n1", Partitions: 4, Nodes: []client.Node{{Name: "n1", Address: "127.0.0.1:8080", Partitions: []int{0, 1, 2, 3}}},
	}, cluster)
	types, err := c.BizTypes(ctx)
	require.NoError(t, err)
	require.Equal(t, []client.BizType{{ID: 1<<64 - 1, Name: "order_close", Mode: "scan", Processor: "log", QueueDepth: 3, Running: 2, Overdue: 1}}, types)
}

func TestToken(t *testing.T) {
	c := newCenter(t, "secret")
	_, err := c.Cluster(t.Context())
	refused(t, err, 401)
	own := &http.Client{Transport: &http.Transport{}}
	known := client.New(c.url, client.WithToken("secret"), client.WithHTTPClient(own))
	defer known.CloseIdleConnections()
	_, err = known.Cluster(t.Context())
	require.NoError(t, err)
}

func TestWithHeader(t *testing.T) {
	var seen http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		_, _ = fmt.Fprint(w, `{"outcome":"cancelled"}`)
	}))
	defer server.Close()
	c := client.New(server.URL, client.WithHeader("x-a", "1"), client.WithHeader("X-B", ""), client.WithHeader("X-A", "2"), client.WithToken("secret"))
	defer c.CloseIdleConnections()
	for range 2 {
		require.NoError(t, c.Cancel(t.Context(), 1))
		require.Equal(t, []string{"2"}, seen["X-A"])
		require.Equal(t, []string{""}, seen["X-B"])
		require.Equal(t, "Bearer secret", seen.Get("Authorization"))
	}
	wrong := client.New(server.URL, client.WithHeader("X-A", "a\nb"))
	require.Error(t, wrong.Cancel(t.Context(), 1))
}

func TestWake(t *testing.T) {
	c := newCenter(t)
	taken, err := c.Wake(t.Context(), []uint64{uint64(c.submitted(t, 1)), 1<<64 - 1})
	require.NoError(t, err)
	require.Zero(t, taken, "nothing is due soon here")
	_, err = c.Wake(t.Context(), nil)
	require.Equal(t, "body.job_ids", refused(t, err, 422).Errors[0].Location)
	_, err = c.Wake(t.Context(), make([]uint64, 1001))
	require.Equal(t, "body.job_ids", refused(t, err, 422).Errors[0].Location)
}

// Without an error a task never fires: what says anything else has not cancelled it.
func TestACancelThatIsNotConfirmedIsNone(t *testing.T) {
	for _, body := range []string{`{}`, `{"outcome":"ok"}`, `{"status":"up"}`, `[]`, `"cancelled"`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) }))
		c := client.New(server.URL)
		require.Error(t, c.Cancel(t.Context(), 1), body)
		c.CloseIdleConnections()
		server.Close()
	}
}

// What stands in between may answer anything.
func TestAnswersOfOthers(t *testing.T) {
	var answer http.HandlerFunc
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer server.Close()
	c := client.New(strings.TrimPrefix(server.URL, "http://"))
	defer c.CloseIdleConnections()

	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(502)
		_, _ = fmt.Fprint(w, "<h1>Bad Gateway</h1>", strings.Repeat("x", 3<<20))
	}
	_, err := c.Get(t.Context(), 1)
	e := refused(t, err, 502)
	require.Equal(t, "Bad Gateway", e.Title)
	require.Contains(t, e.Detail, "<h1>")
	require.Less(t, len(e.Detail), 300)
	require.Equal(t, 3*time.Second, e.RetryAfter)

	answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") }
	_, err = c.Get(t.Context(), 1)
	require.ErrorContains(t, err, "GET /v1/tasks/1: read answer")
	require.False(t, errors.As(err, new(*client.Error)))

	answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Get(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	_, err = client.New("http://127.0.0.1:0").Get(t.Context(), 1)
	require.Error(t, err)
	_, err = client.New("http://a b").Get(t.Context(), 1)
	require.Error(t, err)
}

// Many callers share few connections.
func TestConnectionsAreUsedAgain(t *testing.T) {
	c := newCenter(t)
	id := c.submitted(t, 1)
	var wg sync.WaitGroup
	errs := make(chan error, 32)
	for range 32 {
		wg.Go(func() {
			for range 20 {
				if _, err := c.Get(t.Context(), uint64(id)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// A redirect would take the token to another host, or from https to http.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	center := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(center.Close)
	c := client.New(center.URL, client.WithToken("secret"))
	t.Cleanup(c.CloseIdleConnections)
	_, err := c.Get(t.Context(), 1)
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusTemporaryRedirect, refusal.Status)
	require.Zero(t, asked.Load())
}
