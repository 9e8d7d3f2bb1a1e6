package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// deafServer is `toc serve` whose log is read up to the line that says where it listens, and no further.
type deafServer struct {
	*child
	log *os.File // the reading end of its stderr
}

func serveDeaf(t *testing.T, config string) *deafServer {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	c := &child{Cmd: exec.Command("toc", "serve", "--config", config, "--log-format", "json", "--log-level", "debug"), ended: make(chan error, 1)}
	c.Stderr = w
	require.NoError(t, c.Start())
	require.NoError(t, w.Close())
	go func() { c.ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill() // if it has not ended
		<-c.ended
		_ = r.Close()
	})
	for lines := bufio.NewScanner(r); c.url == "" && lines.Scan(); {
		var line struct{ Msg, Addr string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if line.Msg == "listening" {
			c.url = "http://" + line.Addr
		}
	}
	require.NotEmpty(t, c.url, "it listens")
	return &deafServer{c, r}
}

// series reads a series of /metrics.
func (s *deafServer) series(t *testing.T, name string) float64 {
	t.Helper()
	answer, err := http.Get(s.url + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n"+name+" ")
	require.True(t, ok, name)
	value, err := strconv.ParseFloat(strings.SplitN(rest, "\n", 2)[0], 64)
	require.NoError(t, err)
	return value
}

// chatter makes the server log n lines: as many requests.
func (s *deafServer) chatter(t *testing.T, n int) {
	t.Helper()
	for range n {
		answer, err := http.Get(s.url + "/healthz")
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		require.NoError(t, answer.Body.Close())
	}
}

func deafConfig(t *testing.T) (config string, calls *atomic.Int64) {
	calls = &atomic.Int64{}
	shop := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(shop.Close)
	return small(t, fmt.Sprintf(`
biz_types:
  - {id: 1, name: order_close, webhook: {url: %q}}
  - {id: 2, name: failing, mode: redis, webhook: {url: "http://127.0.0.1:1/"}, max_retries: 0}
  - {id: 3, name: chatty, processor: log}`, shop.URL)), calls
}

// The reader of the log stands still. Before, the types that log stood still as well, and then all; SIGTERM did not end the
// process.
func TestALogThatNobodyReadsHoldsUpNothing(t *testing.T) {
	config, calls := deafConfig(t)
	s := serveDeaf(t, config)
	const batch = 1000
	var tasks strings.Builder
	for i := range batch {
		fmt.Fprintf(&tasks, `%s{"biz_type":"chatty","biz_id":"%d","delay":"0s"}`, map[bool]string{true: `{"tasks":[`, false: ","}[i == 0], i)
	}
	tasks.WriteString("]}")
	await.That(t, func() bool {
		answer, err := http.Post(s.url+"/v1/tasks/batch", "application/json", strings.NewReader(tasks.String()))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Less(t, answer.StatusCode, 300)
		return s.series(t, "toc_log_dropped_total") > batch
	}, "lines are dropped")

	for id := range 5 {
		for _, bizType := range []string{"order_close", "failing"} {
			ok(t, "submit", "--server", s.url, "--biz-type", bizType, "--biz-id", fmt.Sprint(id), "--in", "0s")
		}
	}
	await.That(t, func() bool { return calls.Load() == 5 }, "tasks are fired")
	await.That(t, func() bool { return s.series(t, `toc_runs_total{biz_type="failing",mode="redis",outcome="dead"}`) == 5 }, "failing runs are recorded")
	t.Logf("%v lines dropped", s.series(t, "toc_log_dropped_total"))
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Zero(t, s.end(t))

	whole := 0 // of the lines that were in the pipe
	for lines := bufio.NewScanner(s.log); lines.Scan(); whole++ {
		require.True(t, json.Valid(lines.Bytes()), lines.Text())
	}
	require.Positive(t, whole)
}

// When the log is read again, a line says how many are missing.
func TestALogThatIsReadAgainSaysWhatIsMissing(t *testing.T) {
	config, _ := deafConfig(t)
	s := serveDeaf(t, config)
	await.That(t, func() bool {
		s.chatter(t, 500)
		return s.series(t, "toc_log_dropped_total") > 0
	}, "lines are dropped")
	// What still fires may drop more, which another line reports.
	lines, reported := bufio.NewScanner(s.log), 0.0
	for {
		require.True(t, lines.Scan())
		var line struct {
			Msg, Since string
			Dropped    float64
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if strings.HasPrefix(line.Msg, "log lines were dropped") {
			require.NotEmpty(t, line.Since)
			if reported += line.Dropped; reported == s.series(t, "toc_log_dropped_total") {
				break
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, s.log) }()
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Zero(t, s.end(t))
}

// The reader of the log goes away. Before, the next line ended the process by SIGPIPE.
func TestALogWhoseReaderIsGoneEndsNothing(t *testing.T) {
	config, calls := deafConfig(t)
	s := serveDeaf(t, config)
	require.NoError(t, s.log.Close())
	s.chatter(t, 10)
	await.That(t, func() bool { return s.series(t, "toc_log_dropped_total") >= 10 }, "its lines are counted")
	ok(t, "submit", "--server", s.url, "--biz-type", "order_close", "--biz-id", "1", "--in", "0s")
	await.That(t, func() bool { return calls.Load() == 1 }, "the task is fired")
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	require.Zero(t, s.end(t))
}

// A server that waits for its database ends at once and cleanly.
func TestSIGTERMEndsAServerThatWaits(t *testing.T) {
	center := serve(t, file(t, "toc.yaml", `
http: {listen: "127.0.0.1:0"}
store: {driver: mysql, databases: 2, tables_per_database: 2, mysql: {dsn: "root@tcp(127.0.0.1:1)/toc_%d"}}
cluster: {partitions: 4}`))
	answer, err := http.Get(center.url + "/readyz")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Contains(t, string(text), "waiting for database 1, since ")
	r := toc("submit", "--server", center.url, "--biz-type", "order_close", "--biz-id", "1", "--in", "1h")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "it waits for database 0, database 1")
	require.NoError(t, center.Process.Signal(syscall.SIGTERM))
	require.Zero(t, center.end(t))
}
