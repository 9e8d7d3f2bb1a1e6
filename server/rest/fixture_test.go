package rest_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var layout = fakecenter.Layout

func bizTypes() []task.BizType {
	return []task.BizType{{ID: 1, Name: "order_close", Mode: task.ModeScan}, {ID: 2, Name: "coupon", Mode: task.ModeScan}}
}

// center is the API over a real store.
type center struct {
	http.Handler
	*fakecenter.Stored
	log *bytes.Buffer
}

func newCenter(t testing.TB) *center { return centerOf(t, bizTypes()...) }

func centerOf(t testing.TB, types ...task.BizType) *center {
	c := &center{Stored: fakecenter.OnStore(t, types), log: &bytes.Buffer{}}
	c.Handler = rest.New(rest.Config{
		Center: c.Service, Status: calm{}, Logger: slog.New(slog.NewTextHandler(c.log, nil)), MaxBody: 1 << 20,
	})
	return c
}

// calm is the status of a center in order.
type calm struct{}

func (calm) Cluster(context.Context) (api.Cluster, error) {
	return api.Cluster{Node: "n1", Partitions: 4, Nodes: []api.Node{
		{Name: "n1", Address: "127.0.0.1:8080", Partitions: []int{0, 1, 2, 3}}, {Name: "n2", Address: "127.0.0.1:8081", Partitions: []int{}},
	}}, nil
}

func (calm) BizTypes(context.Context) ([]api.BizType, error) {
	return []api.BizType{{ID: 1<<64 - 1, Name: "order_close", Mode: "scan", Processor: "log", QueueDepth: 3, Running: 2, Overdue: 1}}, nil
}

func (calm) Pulse(context.Context) api.Pulse {
	return api.Pulse{Node: "n1", Ready: true, Degraded: []string{}, Minutes: []api.PulseMinute{}, BizTypes: []api.PulseType{}, Databases: []api.PulseServer{}, Clocks: []api.PulseClock{}}
}

func (calm) Waiting() string { return "" }
func (calm) Ready(context.Context) api.Readiness {
	return api.Readiness{Ready: true, Degraded: []string{}}
}

// answer is what came back.
type answer struct {
	*httptest.ResponseRecorder
}

// call sends a request; a body is sent as JSON.
func call(h http.Handler, method, target, body string, headers ...string) answer {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return record(h, r)
}

func record(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w}
}

// read gives the answer's JSON.
func (a answer) read(t testing.TB, status int) (v map[string]any) {
	t.Helper()
	require.Equal(t, status, a.Code, a.Body)
	require.NoError(t, json.Unmarshal(a.Body.Bytes(), &v), a.Body)
	return v
}

// problem checks that the answer is a problem, and gives it.
func (a answer) problem(t testing.TB, status int) problem {
	t.Helper()
	require.Equal(t, status, a.Code, a.Body)
	require.Equal(t, "application/problem+json", a.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", a.Header().Get("X-Content-Type-Options"))
	var p problem
	require.NoError(t, json.Unmarshal(a.Body.Bytes(), &p), a.Body)
	require.Equal(t, status, p.Status)
	require.Equal(t, http.StatusText(status), p.Title)
	require.NotEmpty(t, p.Detail)
	return p
}

type problem struct {
	Status  int
	Title   string
	Detail  string
	Outcome string
	Task    json.RawMessage
	Errors  []struct{ Location, Message string }
}

// locations are the places that a problem names.
func (p problem) locations() (list []string) {
	for _, e := range p.Errors {
		list = append(list, e.Location)
	}
	return list
}

// submitted stores a task that is due in an hour, and gives its job_id.
func (c *center) submitted(t testing.TB, bizID uint64) string {
	v := call(c, "POST", "/v1/tasks", fmt.Sprintf(`{"biz_type":"order_close","biz_id":%d,"delay":"1h"}`, bizID)).read(t, 201)
	return v["job_id"].(string)
}

// moved changes a task's status in the store, as an engine would.
func (c *center) moved(t testing.TB, jobID string, to task.Status) {
	var id uint64
	_, err := fmt.Sscan(jobID, &id)
	require.NoError(t, err)
	attempts := 17
	ok, err := c.Store.Move(t.Context(), store.Move{JobID: id, From: task.Pending, To: to, Set: store.Set{Attempts: &attempts}})
	require.NoError(t, err)
	require.True(t, ok)
}

// byHand runs a statement on each task table, whose name stands for %s.
func (c *center) byHand(t testing.TB, statement string) {
	for d := range layout.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(c.Dir, d, false))
		require.NoError(t, err)
		for table := range layout.TablesPerDatabase {
			_, err := db.Exec(fmt.Sprintf(statement, sharding.TableName(table)))
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
	}
}

// rows counts all tasks that the store holds.
func (c *center) rows(t testing.TB) (n int) {
	for d := range layout.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(c.Dir, d, true))
		require.NoError(t, err)
		for table := range layout.TablesPerDatabase {
			var here int
			require.NoError(t, db.QueryRow("SELECT count(*) FROM "+sharding.TableName(table)).Scan(&here))
			n += here
		}
		require.NoError(t, db.Close())
	}
	return n
}

func jsonOf(t testing.TB, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func keyOf(bizID, dedupKey string) api.Key {
	return api.Key{BizType: "order_close", BizKey: bizID, DedupKey: dedupKey}
}
