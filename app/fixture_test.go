package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis, as cmd/toc does
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	testrig.SideBySide(8)
	testrig.Main(m, testrig.IgnoreServers())
}

// ledger is a processor that writes down when each task fired.
type ledger struct {
	mu      sync.Mutex
	fired   map[uint64][]time.Time // by job_id
	arrived chan struct{}          // rung at each run
	answer  func(task.Task) error  // nil: all processed
}

func newLedger() *ledger {
	return &ledger{fired: map[uint64][]time.Time{}, arrived: make(chan struct{}, 1)}
}

func (l *ledger) Process(_ context.Context, t task.Task) error {
	now := time.Now()
	l.mu.Lock()
	l.fired[t.JobID] = append(l.fired[t.JobID], now)
	l.mu.Unlock()
	select {
	case l.arrived <- struct{}{}:
	default:
	}
	if l.answer != nil {
		return l.answer(t)
	}
	return nil
}

// await waits until n different tasks have fired.
func (l *ledger) await(t testing.TB, n int, _ ...time.Duration) {
	t.Helper()
	l.awaitThat(t, n, l.count)
}

// awaitAll waits until each of the given tasks has fired.
func (l *ledger) awaitAll(t testing.TB, due map[uint64]time.Time, _ ...time.Duration) {
	t.Helper()
	l.awaitThat(t, len(due), func() (have int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id := range due {
			if len(l.fired[id]) > 0 {
				have++
			}
		}
		return have
	})
}

// awaitThat fails when no task has fired for long: how long all of them take is the machine's affair.
func (l *ledger) awaitThat(t testing.TB, n int, count func() int) {
	t.Helper()
	for have := count(); have < n; have = count() {
		await.Receive(t, l.arrived, "%d tasks fired, only %d", n, have)
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.fired)
}

func (l *ledger) runs(jobID uint64) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.fired[jobID])
}

var _ processor.Processor = (*ledger)(nil)

// embedded is a small configuration on SQLite in a directory of the test's. Its tables are few; fewTables has fewer yet.
func embedded(t testing.TB) configs.Config {
	cfg := configs.Default()
	cfg.Node.Name = strings.ReplaceAll(t.Name(), "/", "-")
	cfg.HTTP.Listen = "127.0.0.1:0"
	cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 4, 0
	cfg.Shutdown.Drain = 2 * await.Patience // only a test that is about it meets its end
	cfg.Scan.Schedule = "@every 1s"
	cfg.Scan.Lookahead = time.Second
	b := configs.DefaultBizType()
	b.ID, b.Name, b.Processor = 1, "order_close", "ledger"
	cfg.BizTypes = []configs.BizType{b}
	return cfg
}

// onMySQL moves a configuration to the test run's MariaDB, migrated.
func onMySQL(t testing.TB, cfg configs.Config) configs.Config {
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.MySQL.DSN = testrig.MySQL(t).DSN()
	cfg.Store.MySQL.MaxOpenConns = 4
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	return cfg
}

// onBoth runs a test on SQLite and on MariaDB, side by side: for what each of them does in its own way.
func onBoth(t *testing.T, test func(t *testing.T, cfg configs.Config)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, fewTables(t)) })
	t.Run("mysql", func(t *testing.T) { t.Parallel(); test(t, onMySQL(t, fewTables(t))) })
}

// center is a running App.
type center struct {
	*app.App
	stop func() error // drains; gives Run's error
}

// inRealTime leaves a test out of the short form: a whole center works in real time.
func inRealTime(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: a whole center works in real time")
	}
}

// run starts a center and stops it at the end of the test.
func run(t testing.TB, cfg configs.Config, opts ...app.Option) *center {
	t.Helper()
	inRealTime(t)
	ready := make(chan string, 1)
	opts = append([]app.Option{app.WithLogger(testLogger(t)), app.WithReady(func(addr string) { ready <- addr })}, opts...)
	a, err := app.New(cfg, opts...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	c := &center{App: a}
	var once sync.Once
	var result error
	c.stop = func() error {
		once.Do(func() { cancel(); result = <-ended })
		return result
	}
	t.Cleanup(func() { require.NoError(t, c.stop()) })
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		require.NoError(t, err, "the center did not start")
	}
	return c
}

// testLogger shows warnings of the center in the test's output.
func testLogger(t testing.TB) *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("TOC_TEST_VERBOSE") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

// lateness sorts how late the first runs were, and fails for any early one.
func (l *ledger) lateness(t *testing.T, due map[uint64]time.Time) (sorted []time.Duration, twice int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range due {
		runs := l.fired[id]
		require.NotEmpty(t, runs, "task %d was lost", id)
		late := runs[0].Sub(at)
		require.GreaterOrEqual(t, late, time.Duration(0), "task %d ran early", id)
		sorted = append(sorted, late)
		if len(runs) > 1 {
			twice++
		}
	}
	slices.Sort(sorted)
	return sorted, twice
}

// percentiles renders a sorted list.
func percentiles(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "n=0"
	}
	at := func(p float64) time.Duration { return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))] }
	return fmt.Sprintf("n=%d p50=%s p99=%s p99.9=%s max=%s", len(sorted), at(.5), at(.99), at(.999), sorted[len(sorted)-1])
}

// logbook is a log that a test reads.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// metric gives a series of a scrape, and whether it is there.
func metric(t testing.TB, c *center, series string) (value float64, there bool) {
	t.Helper()
	for line := range strings.Lines(scrape(t, c)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			require.NoError(t, err)
			return value, true
		}
	}
	return 0, false
}

func scrape(t testing.TB, c *center) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	answer, err := client.Get("http://" + c.Addr() + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

// bizTypeNow is what a node says about a business type.
func bizTypeNow(t *testing.T, c *center, name string) client.BizType {
	t.Helper()
	for _, b := range c.BizTypes() {
		if b.Name == name {
			return b
		}
	}
	require.Failf(t, "no such type", "%s", name)
	return client.BizType{}
}

// onEngines runs a test with each engine on SQLite, and in `make test-all` on MariaDB, too.
func onEngines(t *testing.T, f func(t *testing.T, cfg configs.Config)) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		t.Run("scan", func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.BizTypes = slices.Clone(cfg.BizTypes) // the tests change them
			f(t, cfg)
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			r := testrig.Redis(t)
			cfg := cfg
			cfg.BizTypes = slices.Clone(cfg.BizTypes)
			cfg = onRedis(cfg, r.Addr())
			cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 4 // as fewSlots has it
			cfg.BizTypes[0].Topic = r.Prefix() + "order_close"
			if cfg.Store.Driver == configs.DriverSQLite {
				cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
			} else {
				cfg = onMySQL(t, cfg)
			}
			f(t, cfg)
		})
	})
}

type processorFunc func(context.Context, task.Task) error

func (f processorFunc) Process(ctx context.Context, t task.Task) error { return f(ctx, t) }
