package virtual_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a world lives for some seconds
	runtime.GOMAXPROCS(1)   // a bubble's goroutines wake each other up: on several cores that takes a fifth more CPU, and no less time
	logging.Disable()       // of go-redis: a fault was injected
	m.Run()
}

// run is one run of a task.
type run struct {
	node  string
	bizID uint64
	at    time.Time
	late  time.Duration
}

// runs are those of a test.
type runs struct {
	mu   sync.Mutex
	list []run
	does func(ctx context.Context, node string, t task.Task) error // what a run does; nil: nothing
}

func (r *runs) options(node string) []app.Option {
	return []app.Option{app.WithProcessor("note", processor.Func(func(ctx context.Context, t task.Task) error {
		r.mu.Lock()
		r.list = append(r.list, run{node, t.BizID, time.Now().UTC(), time.Since(t.ActionTime)})
		does := r.does
		r.mu.Unlock()
		if does == nil {
			return nil
		}
		return does(ctx, node, t)
	}))}
}

// do says what the next runs do.
func (r *runs) do(does func(ctx context.Context, node string, t task.Task) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.does = does
}

// forget starts with no run again.
func (r *runs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

func (r *runs) all() []run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// of are the runs of the tasks of a biz_id.
func (r *runs) of(bizID uint64) []run {
	return slices.DeleteFunc(r.all(), func(one run) bool { return one.bizID != bizID })
}

// counts says how often each biz_id has run. No run was early.
func (r *runs) counts(t *testing.T) map[uint64]int {
	t.Helper()
	counts := make(map[uint64]int)
	for _, one := range r.all() {
		require.GreaterOrEqual(t, one.late, time.Duration(0), "%v", one)
		counts[one.bizID]++
	}
	return counts
}

// requireOnce requires that the biz_ids from 0 up to n have run once each, and no other.
func (r *runs) requireOnce(t *testing.T, n int) {
	t.Helper()
	counts := r.counts(t)
	require.Len(t, counts, n, "%v", slices.Sorted(maps.Keys(counts)))
	require.Len(t, r.all(), n, "%v", counts)
}

// log is the log of all nodes.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func bizType(name, mode string) configs.BizType {
	b := configs.DefaultBizType()
	b.ID, b.Name, b.Mode, b.Processor = 1, name, mode, "note"
	return b
}

// world runs f in a bubble, for each engine.
func world(t *testing.T, change func(*virtual.Config), f func(t *testing.T, w *virtual.World, r *runs)) {
	for _, mode := range []string{configs.ModeScan, configs.ModeRedis} {
		t.Run(mode, func(t *testing.T) { in(t, mode, change, f) })
	}
}

// in runs f in a bubble, with one engine.
func in(t *testing.T, mode string, change func(*virtual.Config), f func(t *testing.T, w *virtual.World, r *runs)) {
	synctest.Test(t, func(t *testing.T) {
		r := new(runs)
		cfg := virtual.Config{
			Options:   r.options,
			Configure: func(c *configs.Config) { c.BizTypes = []configs.BizType{bizType("order_close", mode)} },
		}
		if change != nil {
			change(&cfg)
		}
		f(t, virtual.New(t, cfg), r)
	})
}

// nodes is a change of world: a cluster whose nodes have another configuration.
func nodes(change func(c *configs.Config)) func(*virtual.Config) {
	return func(v *virtual.Config) { v.Consul = true; also(v, change) }
}

// single is a change of world: a node with HTTP and with another configuration.
func single(change func(c *configs.Config)) func(*virtual.Config) {
	return func(v *virtual.Config) { v.HTTP = true; also(v, change) }
}

func also(v *virtual.Config, change func(c *configs.Config)) {
	before := v.Configure
	v.Configure = func(c *configs.Config) { before(c); change(c) }
}

// mail is the biz_type of a second business type, which withMail adds.
const mail = "mail"

func withMail(c *configs.Config) {
	b := c.BizTypes[0]
	b.ID, b.Name = 2, mail
	c.BizTypes = append(c.BizTypes, b)
}

func submit(t *testing.T, n *virtual.Node, bizID uint64, delay time.Duration) client.Task {
	t.Helper()
	return put(t, n, client.Submit{BizID: bizID, Delay: delay, Now: delay == 0})
}

// put submits a task, of order_close unless it says another business type.
func put(t *testing.T, n *virtual.Node, s client.Submit) client.Task {
	t.Helper()
	if s.BizType == "" {
		s.BizType = "order_close"
	}
	got, err := n.App.Tasks().Submit(t.Context(), s)
	require.NoError(t, err)
	return got.Task
}

// get reads a task.
func get(t *testing.T, n *virtual.Node, one client.Task) client.Task {
	t.Helper()
	got, err := n.App.Tasks().Get(t.Context(), uint64(one.JobID))
	require.NoError(t, err)
	return got
}

// why says where a task waits, and what holds it.
func why(t *testing.T, n *virtual.Node, one client.Task) (where, because string) {
	t.Helper()
	got, err := n.App.Tasks().Why(t.Context(), uint64(one.JobID))
	require.NoError(t, err)
	return got.Where, strings.Join(got.Because, "\n")
}

// typeNow is a node's word about order_close.
func typeNow(n *virtual.Node) client.BizType { return n.App.BizTypes()[0] }

// count counts the tasks with a status by SQL.
func count(t *testing.T, w *virtual.World, status task.Status) (n int) {
	t.Helper()
	eachDatabase(t, w, func(d migrations.Database) {
		for _, table := range tables(t, d) {
			if strings.HasPrefix(table, "timeout_task_") {
				var some int
				require.NoError(t, d.DB.QueryRow("SELECT COUNT(*) FROM "+table+" WHERE status = ?", int(status)).Scan(&some))
				n += some
			}
		}
	})
	return n
}

func eachDatabase(t *testing.T, w *virtual.World, f func(d migrations.Database)) {
	t.Helper()
	list, err := app.Databases(w.Config("any"), false)
	require.NoError(t, err)
	defer func() { require.NoError(t, app.CloseDatabases(list)) }()
	for _, d := range list {
		f(d)
	}
}

func tables(t *testing.T, d migrations.Database) (names []string) {
	t.Helper()
	rows, err := d.DB.Query("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	return names
}

// inRedis counts the tasks that wait for their time in Redis, and the claims of those that run.
func inRedis(t *testing.T, w *virtual.World) (waiting, claims int) {
	t.Helper()
	for _, key := range w.Redis().Keys() {
		if w.Redis().Type(key) != "zset" {
			continue
		}
		members, err := w.Redis().ZMembers(key)
		require.NoError(t, err)
		if strings.HasPrefix(key, "prepare_") {
			claims += len(members)
		} else {
			waiting += len(members)
		}
	}
	return waiting, claims
}

// web is a client of the nodes.
func web(w *virtual.World) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: w.Net().Dial, DisableKeepAlives: true}, Timeout: 20 * time.Second}
}

// api is the HTTP API of a node.
func api(w *virtual.World, n *virtual.Node) *client.Client {
	return client.New("http://"+n.Name+":8080", client.WithHTTPClient(web(w)))
}

// page is a node's answer at a path.
func page(t *testing.T, w *virtual.World, n *virtual.Node, path string) (status int, text string) {
	t.Helper()
	answer, err := web(w).Get("http://" + n.Name + ":8080" + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// troubles is the list of /readyz.
func troubles(t *testing.T, w *virtual.World, n *virtual.Node) string {
	t.Helper()
	_, text := page(t, w, n, "/readyz")
	var body struct{ Degraded []string }
	require.NoError(t, json.Unmarshal([]byte(text), &body), text)
	return strings.Join(body.Degraded, "; ")
}

// metrics are a node's series.
func metrics(t *testing.T, w *virtual.World, n *virtual.Node) string {
	t.Helper()
	status, text := page(t, w, n, "/metrics")
	require.Equal(t, http.StatusOK, status, text)
	return text
}
