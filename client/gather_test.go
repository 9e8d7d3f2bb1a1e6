package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

var whatTime = regexp.MustCompile(`it is \S+ now`)

// A submit that goes with others gets the answer that it would have got alone.
func TestTheAnswerIsThatOfASubmitAlone(t *testing.T) {
	c, ctx := newCenter(t), t.Context()
	again := client.Submit{BizType: "order_close", BizID: 1, Delay: time.Hour, DedupKey: "k"}
	_, err := c.Submit(ctx, again)
	require.NoError(t, err)
	gone, moved := again, again
	gone.BizID, gone.OnDuplicate = 2, client.Move
	s, err := c.Submit(ctx, gone)
	require.NoError(t, err)
	require.NoError(t, c.Cancel(ctx, uint64(s.Task.JobID)))
	moved.OnDuplicate, moved.DedupKey, moved.BizID = client.Move, "another", 5
	_, err = c.Submit(ctx, moved)
	require.NoError(t, err)
	list := []client.Submit{
		again, gone, moved,
		{BizType: "nope", BizID: 3, Now: true},
		{BizType: "order_close", BizID: 3, Now: true, Attribute: strings.Repeat("a", 5000)},
		{BizType: "order_close", BizID: 3, Now: true, OnDuplicate: client.Again},
		{BizType: "order_close", BizID: 3, Now: true, DedupKey: strings.Repeat("k", 65), Timeout: 25 * time.Hour, Past: "x"},
		{BizType: "order_close", BizID: 3, ActionTime: time.Now().Add(-time.Hour)},
		{BizType: "order_close", BizID: 3, Delay: -time.Hour},
	}
	answers, errs := c.SubmitTogether(ctx, list...)
	for i, one := range list {
		alone, err := c.Submit(ctx, one)
		if one.OnDuplicate == client.Move && err == nil { // it was moved twice
			require.Equal(t, []any{alone.Task.JobID, true}, []any{answers[i].Task.JobID, answers[i].Duplicate})
			alone = answers[i]
		}
		require.Equal(t, alone, answers[i], "%+v", one)
		if err == nil {
			require.NoError(t, errs[i])
			continue
		}
		var want, got *client.Error
		require.ErrorAs(t, err, &want)
		require.ErrorAs(t, errs[i], &got)
		for _, e := range []*client.Error{want, got} {
			e.Detail = whatTime.ReplaceAllString(e.Detail, "")
			if len(e.Errors) > 0 {
				e.Errors[0].Message = whatTime.ReplaceAllString(e.Errors[0].Message, "")
			}
		}
		require.Equal(t, want, got)
	}
	stored, errs := c.SubmitTogether(ctx, client.Submit{BizType: "coupon", BizID: 4, Now: true}, client.Submit{BizType: "coupon", BizKey: "é", Delay: time.Hour,
		Past: client.Fire, Timeout: time.Second})
	require.Equal(t, []error{nil, nil}, errs)
	for _, s := range stored {
		require.False(t, s.Duplicate)
		got, err := c.Get(ctx, uint64(s.Task.JobID))
		require.NoError(t, err)
		require.Equal(t, got, s.Task)
	}
}

// line is a center whose requests wait until they are let go, all in one process and one bubble of time.
type line struct {
	t       *testing.T
	handler http.Handler
	mu      sync.Mutex
	paths   []string
	open    chan struct{} // closed: requests do not wait
}

func newLine(t *testing.T, d *fakecenter.Center) *line {
	types, err := task.NewTypes(task.BizType{ID: 1, Name: "order_close"})
	require.NoError(t, err)
	d.BizTypes = types
	return &line{t: t, handler: rest.New(rest.Config{Center: d, Status: calm{}}), open: make(chan struct{})}
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	require.NoError(l.t, err)
	l.mu.Lock()
	l.paths = append(l.paths, fmt.Sprint(r.URL.Host, r.URL.Path, " ", bytes.Count(body, []byte(`"biz_type"`))))
	l.mu.Unlock()
	select {
	case <-l.open:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	sent := httptest.NewRequest(r.Method, r.URL.Path, bytes.NewReader(body)).WithContext(r.Context())
	sent.Header = r.Header
	l.handler.ServeHTTP(w, sent)
	return w.Result(), nil
}

func (l *line) client(more ...client.Option) *client.Client {
	return client.New("http://a", append(more, client.WithHTTPClient(&http.Client{Transport: l}), client.WithGathering(true))...)
}

// asked are the requests since the last call.
func (l *line) asked() (paths []string) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	paths, l.paths = l.paths, nil
	return paths
}

// callers are submits under way.
type callers struct {
	sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// submit submits a task as another caller, and waits until that stands still.
func (c *callers) submit(ctx context.Context, to *client.Client, attribute, key string) {
	c.Go(func() {
		s, err := to.Submit(ctx, client.Submit{BizType: "order_close", BizID: 1, Now: true, Attribute: attribute, DedupKey: key})
		if err == nil && s.Task.Attribute != attribute {
			err = fmt.Errorf("%s got the answer of %s", attribute, s.Task.Attribute)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	})
	synctest.Wait()
}

// left are the errors of the callers that have got an answer.
func (c *callers) left() []error {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs
}

// done waits for all callers and returns their errors.
func (c *callers) done() (errs []error) {
	c.Wait()
	errs, c.errs = c.errs, nil
	return errs
}

// What comes while two requests are under way goes as one, and each caller gets its own answer.
func TestConcurrentSubmitsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := newLine(t, &fakecenter.Center{}), t.Context()
		c, all := l.client(), &callers{}
		for i := range 10 {
			all.submit(ctx, c, fmt.Sprint("task ", i), "")
		}
		all.submit(ctx, c, strings.Repeat("x", 4<<10), "")
		require.Equal(t, []string{"a/v1/tasks 1", "a/v1/tasks 1", "a/v1/tasks 1"}, l.asked(), "the first two, and the large one")
		for i := range 4 {
			all.submit(ctx, c, fmt.Sprint("safe ", i), "k")
		}
		require.Equal(t, []string{"a/v1/tasks 1", "a/v1/tasks 1"}, l.asked(), "what is safe to repeat does not go with what is not")
		close(l.open)
		require.Equal(t, make([]error, 15), all.done())
		require.ElementsMatch(t, []string{"a/v1/tasks/batch 8", "a/v1/tasks/batch 2"}, l.asked())
		all.submit(ctx, c, "idle", "")
		require.Equal(t, []error{nil}, all.done())
		require.Equal(t, []string{"a/v1/tasks 1"}, l.asked())
	})
}

// A request that takes long holds up no other one.
func TestASlowSubmitHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := newLine(t, &fakecenter.Center{}), t.Context()
		c, all := l.client(), &callers{}
		for range 5 {
			all.submit(ctx, c, "a", "")
		}
		require.Len(t, l.asked(), 2)
		time.Sleep(50 * time.Millisecond)
		require.Equal(t, []string{"a/v1/tasks/batch 3"}, l.asked())
		all.submit(ctx, c, "a", "")
		require.Equal(t, []string{"a/v1/tasks 1"}, l.asked())
		close(l.open)
		require.Equal(t, make([]error, 6), all.done())
	})
}

// A caller leaves when its context ends, at once; a request ends when all of its callers have left.
func TestACallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakecenter.Center{}
		l := newLine(t, d)
		c, all := l.client(), &callers{}
		first, cancelFirst := context.WithCancel(t.Context())
		all.submit(first, c, "a", "")
		all.submit(first, c, "a", "")
		second, cancelSecond := context.WithTimeout(t.Context(), time.Second)
		defer cancelSecond()
		third, cancelThird := context.WithCancel(t.Context())
		fourth, cancelFourth := context.WithCancel(t.Context())
		all.submit(second, c, "b", "")
		all.submit(third, c, "c", "")
		all.submit(fourth, c, "d", "")
		cancelFourth()
		require.Len(t, all.left(), 1, "it has not been sent")
		cancelFirst()
		require.Equal(t, []string{"a/v1/tasks 1", "a/v1/tasks 1", "a/v1/tasks/batch 2"}, l.asked())
		require.Len(t, all.left(), 3)
		time.Sleep(time.Second)
		require.Len(t, all.left(), 4)
		require.ErrorIs(t, all.left()[3], context.DeadlineExceeded)
		cancelThird()
		for i, err := range all.done() {
			require.Equal(t, i != 3, errors.Is(err, context.Canceled), err)
		}
		synctest.Wait() // the request has ended, or the bubble would not
		require.Zero(t, d.Calls.Load())
	})
}

// older refuses what it does not know of a batch.
func older(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/batch") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"status":422,"errors":[{"location":"body.full","message":"is no field of this body; there are: tasks"}]}`))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A center that does not know full answers gets each submit alone, and is asked again a minute later.
func TestGatheringAtAnOlderCenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := newLine(t, &fakecenter.Center{}), t.Context()
		l.handler = older(l.handler)
		c, all := l.client(), &callers{}
		for i := range 4 {
			all.submit(ctx, c, fmt.Sprint(i), "")
		}
		close(l.open)
		require.Equal(t, make([]error, 4), all.done())
		one := "a/v1/tasks 1"
		require.Equal(t, []string{one, one, "a/v1/tasks/batch 2", one, one}, l.asked())
		l.open = make(chan struct{})
		for i := range 4 {
			all.submit(ctx, c, fmt.Sprint(i), "")
		}
		require.Equal(t, []string{one, one, one, one}, l.asked())
		close(l.open)
		require.Equal(t, make([]error, 4), all.done())
		time.Sleep(time.Minute)
		l.open = make(chan struct{})
		for i := range 4 {
			all.submit(ctx, c, fmt.Sprint(i), "")
		}
		require.Equal(t, []string{one, one}, l.asked())
		close(l.open)
		require.Equal(t, make([]error, 4), all.done())
	})
}

// What is safe to repeat and was refused for now goes to the next server, alone.
func TestGatheredSubmitsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakecenter.Center{Err: task.ErrUnavailable}
		l := newLine(t, d)
		c := l.client(client.WithServers("http://b"))
		close(l.open)
		a := client.Submit{BizType: "order_close", BizID: 1, Now: true, DedupKey: "k"}
		_, errs := c.SubmitTogether(t.Context(), a, a)
		require.ErrorIs(t, errs[0], task.ErrUnavailable)
		require.ElementsMatch(t, []string{"a/v1/tasks/batch 2", "a/v1/tasks 1", "a/v1/tasks 1", "b/v1/tasks 1", "b/v1/tasks 1"}, l.asked())
		a.DedupKey = ""
		_, errs = c.SubmitTogether(t.Context(), a, a)
		require.Equal(t, time.Second, refused(t, errs[1], 503).RetryAfter)
		require.Equal(t, []string{"a/v1/tasks/batch 2"}, l.asked())
	})
}

// An answer that is none, and one that is lost, is an error for each caller.
func TestBadAnswersToGatheredSubmits(t *testing.T) {
	for _, body := range []string{`{}`, `{"results":[{},{}]}`, `{"results":[{"answer":{}},{"job_id":"1"}]}`, `{"results":[null,null]}`, `[`} {
		c := client.New("http://a", client.WithHTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})}))
		a := client.Submit{BizType: "order_close", BizID: 1, Now: true}
		_, errs := c.SubmitTogether(t.Context(), a, a)
		require.Error(t, errs[0], body)
		require.Error(t, errs[1], body)
	}
}
