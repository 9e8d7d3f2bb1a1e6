package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis, as cmd/toc does
	testrig.SideBySide(4)
	testrig.Main(m, testrig.IgnoreServers())
}

// token opens the center of the tests.
const token = "token-of-the-browser-tests"

// The business types of the center. What a task of each does: the first is run, the second fails as its attribute says
// and is dead at once, the third fails with each line of its attribute, and is tried again an hour later, the fourth runs until the test ends.
const (
	orders  = "order_close"
	mails   = "mail_send"
	coupons = "coupon_expire"
	reports = "report_build"
)

// center is a running center with the address of its API and console.
type center struct {
	url  string
	api  *client.Client
	stop func() // ends it before the test does
}

// start starts a center on SQLite, which ends with the test.
func start(t testing.TB, change ...func(*configs.Config)) *center {
	t.Helper()
	cfg := configs.Default()
	cfg.Node.Name = "node-1"
	cfg.HTTP.Listen = "127.0.0.1:0"
	cfg.HTTP.Tokens = []string{token}
	cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 2, 0
	cfg.Scan.Schedule, cfg.Scan.Lookahead = "@every 1s", time.Second
	cfg.Shutdown.Drain = 5 * time.Second
	cfg.BizTypes = nil
	for i, name := range []string{orders, mails, coupons, reports} {
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Processor = uint64(i+1), name, name
		cfg.BizTypes = append(cfg.BizTypes, b)
	}
	cfg.BizTypes[1].MaxRetries = 0
	cfg.BizTypes[2].Backoff = configs.Backoff{Min: time.Hour, Max: time.Hour}
	cfg.BizTypes[3].Timeout = 10 * time.Minute
	for _, c := range change {
		c(&cfg)
	}
	c := &center{}
	c.url, c.stop = run(t, cfg)
	c.api = client.New(c.url, client.WithToken(token))
	return c
}

func run(t testing.TB, cfg configs.Config) (url string, stop func()) {
	t.Helper()
	ready, ended := make(chan string, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	fails := processor.Func(func(_ context.Context, tk task.Task) error { return errors.New(tk.Attribute) })
	a, err := app.New(cfg,
		app.WithLogger(slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))),
		app.WithReady(func(addr string) { ready <- addr }),
		app.WithProcessor(orders, processor.Func(func(context.Context, task.Task) error { return nil })),
		app.WithProcessor(mails, fails),
		app.WithProcessor(coupons, processor.Func(func(_ context.Context, tk task.Task) error {
			lines := strings.Split(tk.Attribute, "\n")
			if n := len(lines) - 1; tk.Attempts >= n {
				return errors.New(lines[n])
			}
			return processor.RetryAfter(200*time.Millisecond, errors.New(lines[tk.Attempts]))
		})),
		app.WithProcessor(reports, processor.Func(func(run context.Context, _ task.Task) error {
			select {
			case <-run.Done():
			case <-ctx.Done():
			}
			return errors.New("interrupted")
		})))
	require.NoError(t, err)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	select {
	case addr := <-ready:
		return "http://" + addr, stop
	case err := <-ended:
		ended <- err
		require.NoError(t, err, "the center did not start")
		return "", stop
	}
}

// open opens a tab that is logged in.
func (c *center) open(t testing.TB, view browser.View) *browser.Tab {
	t.Helper()
	tab := browser.Open(t, c.url, view)
	login(tab, token)
	tab.Until("the tab is logged in", func() bool { return tab.Path() == "/console/" })
	return tab
}

func login(tab *browser.Tab, token string) {
	tab.Go("/console/login")
	tab.Fill("Token", token)
	tab.Press("Log in")
}

var bizIDs atomic.Uint64

// submit stores a task, of a biz_id of its own where none is given.
func (c *center) submit(t testing.TB, s client.Submit) client.Task {
	t.Helper()
	if s.BizID == 0 && s.BizKey == "" {
		s.BizID = 1000 + bizIDs.Add(1)
	}
	got, err := c.api.Submit(t.Context(), s)
	require.NoError(t, err)
	return got.Task
}

// later stores a pending task that no test waits for.
func (c *center) later(t testing.TB, bizType string) client.Task {
	return c.submit(t, client.Submit{BizType: bizType, Delay: 5 * time.Hour, Attribute: `{"order":"7001"}`})
}

// die stores a task of mails that fails at once with these words, and waits until it is dead.
func (c *center) die(t testing.TB, lastWords string) client.Task {
	t.Helper()
	got := c.submit(t, client.Submit{BizType: mails, Now: true, Attribute: lastWords})
	c.await(t, got, "dead", func(tk client.Task) bool { return tk.Status == "dead" })
	return got
}

// await waits until a task is as the test wants it.
func (c *center) await(t testing.TB, one client.Task, what string, is func(client.Task) bool) (last client.Task) {
	t.Helper()
	await.That(t, func() bool {
		var err error
		last, err = c.api.Get(t.Context(), uint64(one.JobID))
		require.NoError(t, err)
		return is(last)
	}, "task %s is %s", one.JobID, what)
	return last
}

// story is a center with tasks in every state, as a reader of the console meets one.
type story struct {
	*center
	pending, processed, dead, cancelled, failed, running client.Task
}

func tell(t testing.TB) *story {
	t.Helper()
	s := begin(t)
	s.startReport(t)
	return s
}

// startReport has a task run from now on.
func (s *story) startReport(t testing.TB) {
	t.Helper()
	s.running = s.submit(t, client.Submit{BizType: reports, Now: true})
	s.await(t, s.running, "running", func(tk client.Task) bool { return tk.Running != nil })
}

// begin is a story in which no task runs yet.
func begin(t testing.TB) *story {
	t.Helper()
	s := &story{center: start(t)}
	var batch []client.Submit
	for i := range uint64(60) {
		batch = append(batch, client.Submit{BizType: orders, BizID: 7000 + i, Delay: time.Duration(i+1) * 4 * time.Minute, Attribute: fmt.Sprintf(`{"order":"%d"}`, 7000+i)})
	}
	rush := time.Now().Add(40 * time.Minute).Truncate(time.Second)
	for i := range uint64(25) { // a crowded second
		batch = append(batch, client.Submit{BizType: coupons, BizID: 8000 + i, ActionTime: rush, Attribute: "coupon " + strconv.FormatUint(8000+i, 10)})
	}
	results, err := s.api.SubmitBatch(t.Context(), batch)
	require.NoError(t, err)
	for _, r := range results {
		require.Nil(t, r.Err)
	}
	s.pending = s.later(t, orders)
	s.processed = s.submit(t, client.Submit{BizType: orders, Now: true})
	s.failed = s.submit(t, client.Submit{BizType: coupons, Now: true, Attribute: "dial tcp 10.0.0.9:443: i/o timeout\nthe coupon service answers 429\nthe coupon service answers 503"})
	s.cancelled = s.later(t, orders)
	require.NoError(t, s.api.Cancel(t.Context(), uint64(s.cancelled.JobID)))
	for i := range 5 {
		s.dead = s.die(t, fmt.Sprintf("smtp: 10.0.0.%d refused the connection", i))
	}
	for i := range 3 {
		s.die(t, fmt.Sprintf("no such customer: %d", 500+i))
	}
	s.await(t, s.failed, "failed in each way", func(tk client.Task) bool { return tk.Attempts == 3 })
	_, err = s.api.Pause(t.Context(), coupons, client.Pause{Reason: "the coupon service is being moved"})
	require.NoError(t, err)
	s.await(t, s.processed, "processed", func(tk client.Task) bool { return tk.Status == "processed" })
	return s
}

// pages are the paths of all pages, and what each is called.
func (s *story) pages() []page {
	return []page{
		{"overview", "/console/"},
		{"forecast", "/console/forecast"},
		{"types", "/console/types"},
		{"type", "/console/types/" + orders},
		{"paused-type", "/console/types/" + coupons},
		{"tasks", "/console/tasks"},
		{"tasks-found", "/console/tasks?biz_type=" + orders + "&status=pending"},
		{"task-pending", "/console/tasks/" + s.pending.JobID.String()},
		{"task-processed", "/console/tasks/" + s.processed.JobID.String()},
		{"task-dead", "/console/tasks/" + s.dead.JobID.String()},
		{"task-failed", "/console/tasks/" + s.failed.JobID.String()},
		{"task-running", "/console/tasks/" + s.running.JobID.String()},
		{"task-cancelled", "/console/tasks/" + s.cancelled.JobID.String()},
		{"dead", "/console/dead"},
		{"operations", "/console/operations"},
		{"cluster", "/console/cluster"},
		{"audit", "/console/audit"},
	}
}

type page struct{ name, path string }
