package console_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/console"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "let-me-in-0123456"

// fake is a console over a real desk and a real store, with no engine: tasks stay as they are.
type fake struct {
	*console.Console
	api    http.Handler // what a server serves: with the console in it
	desk   *intake.Service
	store  *store.Store
	center *center
	log    *bytes.Buffer
	cookie string

	mu     sync.Mutex
	tokens []string
	now    time.Time
}

func newFake(t testing.TB, types ...task.BizType) *fake {
	if len(types) == 0 {
		types = []task.BizType{{ID: 1, Name: "order_close", Mode: task.ModeScan, MaxRetries: 3}, {ID: 2, Name: "coupon", Mode: task.ModeRedis, RateLimit: 100}}
	}
	list, err := task.NewTypes(types...)
	require.NoError(t, err)
	f := &fake{log: &bytes.Buffer{}, tokens: []string{"another-token-0123", token}, center: &center{types: list}}
	stored := fakecenter.OnStore(t, types, func(cfg *intake.Config) {
		cfg.Decisions = f.center
	})
	f.desk, f.store = stored.Service, stored.Store
	f.Console = console.New(console.Config{
		Node: "n1", Center: f.desk, Status: f.center, Tokens: f.known, Now: f.time,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	})
	f.api = rest.New(rest.Config{Center: f.desk, Status: started{}, Console: f.Console, Tokens: f.known})
	f.cookie = console.SessionOf(token, time.Now().Add(time.Hour))
	return f
}

func (f *fake) known() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens
}

func (f *fake) time() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now.IsZero() {
		return time.Now()
	}
	return f.now
}

// center is a center whose nodes say what a test has them say.
type center struct {
	types *task.Types

	mu       sync.Mutex
	paused   map[string]*api.Pause
	retrying map[string]int
	due      bool                // the pauses of those are over
	nodes    []console.NodePulse // none: one that is calm
	counted  metrics.OfType
	asked    int // how often Pulses was called
}

func (c *center) Cluster(context.Context) (api.Cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cluster := api.Cluster{Node: "n1", Partitions: 16}
	for _, n := range c.list() {
		cluster.Nodes = append(cluster.Nodes, api.Node{Name: n.Name, Address: n.Address, Partitions: n.Partitions})
	}
	return cluster, nil
}

func (c *center) list() []console.NodePulse {
	if len(c.nodes) > 0 {
		return c.nodes
	}
	all := make([]int, 16)
	for i := range all {
		all[i] = i
	}
	return []console.NodePulse{{Name: "n1", Address: "127.0.0.1:8080", Partitions: all, Pulse: api.Pulse{Node: "n1", Ready: true, Databases: []api.PulseServer{{Up: true}, {Up: true}}}}}
}

func (c *center) BizTypes(context.Context) ([]api.BizType, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []api.BizType
	for _, b := range c.types.All() {
		retryable := c.retrying[b.Name]
		if c.due {
			retryable = 0
		}
		list = append(list, api.BizType{Retryable: retryable, ID: api.ID(b.ID), Name: b.Name, Mode: string(b.Mode), Processor: "webhook", RateLimit: b.RateLimit, Paused: c.paused[b.Name], Retrying: c.retrying[b.Name], OldestRetry: 75, LastError: "the <shop> is down"})
	}
	return list, nil
}

func (c *center) Pulses(context.Context) []console.NodePulse {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.list()
}

func (c *center) say(nodes ...console.NodePulse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = nodes
}

func (c *center) OfType(task.BizType) metrics.OfType { return c.counted }

// Set implements intake.Decisions.
func (c *center) Set(_ context.Context, row store.Control) error {
	b, _ := c.types.ByID(row.BizType)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = nil
	if row.Paused {
		c.paused = map[string]*api.Pause{b.Name: {By: row.Actor, Since: api.Time(time.Now()), Reason: row.Reason, Until: api.Time(row.Until)}}
	}
	return nil
}

// answer is what came back.
type answer struct {
	*httptest.ResponseRecorder
	text string // the body, unpacked
}

// ask sends a request of a browser that is logged in.
func (f *fake) ask(t testing.TB, method, target string, form url.Values, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Accept-Encoding", "gzip")
	if f.cookie != "" {
		r.AddCookie(&http.Cookie{Name: "__Host-toc", Value: f.cookie})
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	a := answer{w, w.Body.String()}
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		require.NoError(t, err)
		text, err := io.ReadAll(z)
		require.NoError(t, err)
		a.text = string(text)
	}
	return a
}

// get opens a page that must be there.
func (f *fake) get(t testing.TB, target string) string {
	t.Helper()
	a := f.ask(t, "GET", target, nil)
	require.Equal(t, 200, a.Code, a.text)
	return a.text
}

// post sends a form that must lead on to another page, and opens that.
func (f *fake) post(t testing.TB, target string, pairs ...string) string {
	t.Helper()
	a := f.ask(t, "POST", target, fields(pairs...))
	require.Equal(t, 303, a.Code, a.text)
	to, _, _ := strings.Cut(a.Header().Get("Location"), "#")
	return f.get(t, to)
}

func fields(pairs ...string) url.Values {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// submitted stores a task that is due in an hour.
func (f *fake) submitted(t testing.TB, bizID uint64, more ...func(*api.Submit)) task.Task {
	t.Helper()
	s := api.Submit{BizType: "order_close", BizID: bizID, Delay: time.Hour}
	for _, m := range more {
		m(&s)
	}
	got, err := f.desk.Submit(t.Context(), s)
	require.NoError(t, err)
	return f.read(t, uint64(got.Task.JobID))
}

// died stores a task that has died of an error.
func (f *fake) died(t testing.TB, bizID uint64, text string) task.Task {
	t.Helper()
	got := f.submitted(t, bizID)
	attempts := 4
	ok, err := f.store.Move(t.Context(), store.Move{JobID: got.JobID, To: task.Dead, Set: store.Set{Attempts: &attempts, LastError: &text}})
	require.NoError(t, err)
	require.True(t, ok)
	dead := f.read(t, got.JobID)
	await.That(t, func() bool { return time.Now().After(dead.Modified) }, "it counts as one that has died") // stamps are up to a millisecond ahead
	return dead
}

// fails records a failed run of a task, as a worker does.
func (f *fake) fails(t testing.TB, jobID uint64, to task.Status, text string) time.Time {
	t.Helper()
	read := f.read(t, jobID)
	attempts := read.Attempts + 1
	ok, err := f.store.Move(t.Context(), store.Move{JobID: jobID, To: to, Read: &read, Set: store.Set{Attempts: &attempts, LastError: &text}})
	require.NoError(t, err)
	require.True(t, ok)
	return f.read(t, jobID).Modified
}

// read is a task as it stands.
func (f *fake) read(t testing.TB, jobID uint64) task.Task {
	t.Helper()
	got, err := f.store.Get(t.Context(), jobID)
	require.NoError(t, err)
	return got
}

// audit lists who did what to what, the latest first.
func (f *fake) audit(t testing.TB) []api.AuditEntry {
	t.Helper()
	p, err := f.desk.Audit(t.Context(), api.Audit{})
	require.NoError(t, err)
	return p.Entries
}

func at(jobID uint64) string { return "/console/tasks/" + strconv.FormatUint(jobID, 10) }

func typeURL(name string) string { return "/console/types/" + url.PathEscape(name) }

func escape(text string) string { return url.QueryEscape(text) }

func entry(text string) store.AuditEntry {
	return store.AuditEntry{Actor: text[:60], Action: "pause", Target: text, Detail: text}
}

// started is the rest.Status of a node that takes requests.
type started struct{ rest.Status }

func (started) Waiting() string { return "" }
