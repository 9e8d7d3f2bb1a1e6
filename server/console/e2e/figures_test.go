package e2e

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/child"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
	"github.com/timeoutcenter/toc/sharding"
)

// The size of the center of BenchmarkFigures.
const (
	manyTypes  = 1000
	databases  = 8
	tables     = 1024
	parkedEach = 123 // in each table: 1,007,616
	deadEach   = 13  // 106,496
)

// BenchmarkFigures measures the pages of a center with 1,000 business types and 8 × 1024 tables on MariaDB, a million tasks
// parked and 100,000 dead. Of each page: the time until a browser with an empty cache has it and all that it shows, and
// how many bytes that were. Then what ten viewers cost more than one.
func BenchmarkFigures(b *testing.B) {
	n := serveMany(b)
	for _, p := range n.pages(b) {
		b.Run("page/"+p.name, func(b *testing.B) { n.measure(b, p) })
	}
	b.Run("viewers", n.viewers)
}

// many is a node, a process of its own, of a large center.
type many struct {
	url string
	pid int
}

func serveMany(b *testing.B) *many {
	server := testrig.StartMySQL(b, testrig.BufferPool("2G"), "--max-connections=500", "--table-open-cache=20000", "--open-files-limit=65535")
	dir := b.TempDir()
	file := filepath.Join(dir, "toc.yaml")
	require.NoError(b, os.WriteFile(file, []byte(manyConfig(freeAddr(b), server.DSN())), 0o600))
	cfg, err := configs.Load(file, nil)
	require.NoError(b, err)
	require.NoError(b, app.Migrate(b.Context(), cfg, nil, nil))
	seed(b, server.DB(b), server.Prefix())

	binary := filepath.Join(dir, "toc")
	build := exec.CommandContext(b.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/toc")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(b, err)
	defer log.Close()
	serve := exec.CommandContext(context.WithoutCancel(b.Context()), binary, "serve", "--config", file, "--log-level", "warn")
	serve.Stdout, serve.Stderr, serve.Dir = log, log, dir
	process, err := child.Start(serve, syscall.SIGKILL)
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = process.Signal(syscall.SIGTERM)
		<-process.Done()
	})
	n := &many{pid: process.Pid()}
	n.url = "http://" + cfg.HTTP.Listen
	await.That(b, func() bool {
		resp, err := http.Get(n.url + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "the node is ready: %s", log.Name())
	time.Sleep(30 * time.Second) // real time: a benchmark begins after the first scans and counts
	return n
}

// freeAddr is an address of this machine at which nobody listens.
func freeAddr(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	return l.Addr().String()
}

func manyConfig(listen, dsn string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `node: {name: node-1}
http: {listen: "%s", tokens: [%s]}
store: {driver: mysql, databases: %d, tables_per_database: %d, mysql: {dsn: "%s", max_open_conns: 16}}
biz_types:
`, listen, token, databases, tables, dsn)
	for i := range manyTypes {
		fmt.Fprintf(&text, "  - {id: %d, name: type_%03d, processor: log}\n", i+1, i)
	}
	return text.String()
}

// seed fills the tables. Parked tasks are due within the week, from two hours on; the dead died of 40 errors, in the last
// days.
func seed(b *testing.B, db *sql.DB, prefix string) {
	began := time.Now()
	ctx := b.Context()
	numbers := prefix + "0.e2e_numbers"
	exec := func(statement string, args ...any) {
		_, err := db.ExecContext(ctx, statement, args...)
		require.NoError(b, err)
	}
	exec("CREATE TABLE " + numbers + " (n int PRIMARY KEY)")
	for n := range parkedEach + deadEach {
		exec("INSERT INTO "+numbers+" VALUES (?)", n)
	}
	exec("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for shard := range databases * tables {
		g.Go(func() error {
			database, table := shard/tables, shard%tables
			statement := fmt.Sprintf(`INSERT INTO %s%d.%s (job_id, biz_id, biz_type, status, action_time, attribute, attempts, last_error, gmt_modified)
				SELECT ((? + n) << 23) | (? << 10) | %d, ? + %d * (? + %d * (n + 1)), 1 + (n * 7919 + ?) %% %d, IF(n < %d, 0, 4),
					UTC_TIMESTAMP(3) + INTERVAL IF(n < %d, 7200 + (n * 4801 + ? * 677) %% 597600, -3600 - n * 1000) SECOND,
					CONCAT('{"order":"', n, '"}'), IF(n < %d, 0, 17), IF(n < %d, '', CONCAT('service ', CHAR(97 + n %% 13), CHAR(97 + ? %% 3), ' answered 503 to call ', n * ?)),
					UTC_TIMESTAMP(3) - INTERVAL n * 1000 SECOND
				FROM %s`, prefix, database, sharding.TableName(table), sharding.HandWorker, databases, tables, manyTypes,
				parkedEach, parkedEach, parkedEach, parkedEach, numbers)
			_, err := db.ExecContext(ctx, statement, time.Since(sharding.Epoch).Milliseconds()-1000, shard, database, table, shard, shard, shard, shard)
			return err
		})
	}
	require.NoError(b, g.Wait())
	_, err := db.ExecContext(b.Context(), "DROP TABLE "+numbers)
	require.NoError(b, err)
	b.Logf("%d parked and %d dead tasks stored in %s", databases*tables*parkedEach, databases*tables*deadEach, time.Since(began).Round(time.Second))
}

func (n *many) pages(b *testing.B) []page {
	api := client.New(n.url, client.WithToken(token))
	found, err := api.ListAll(b.Context(), client.ListAll{Limit: 1})
	require.NoError(b, err)
	require.Len(b, found.Tasks, 1)
	dead, err := api.ListDead(b.Context(), client.ListDead{Limit: 1})
	require.NoError(b, err)
	require.Len(b, dead.Tasks, 1)
	return []page{
		{"overview", "/console/"},
		{"forecast", "/console/forecast"},
		{"types", "/console/types"},
		{"type", "/console/types/type_007"},
		{"tasks", "/console/tasks"},
		{"tasks-of-a-type", "/console/tasks?biz_type=type_007&status=pending"},
		{"task", "/console/tasks/" + found.Tasks[0].JobID.String()},
		{"task-dead", "/console/tasks/" + dead.Tasks[0].JobID.String()},
		{"dead", "/console/dead"},
		{"dead-of-a-type", "/console/dead?biz_type=type_007"},
		{"operations", "/console/operations"},
		{"cluster", "/console/cluster"},
		{"audit", "/console/audit"},
	}
}

// load is one load of a page, as the browser saw it.
type load struct {
	MS    float64 // until the page and all that it shows were there
	Doc   float64 // until the document was
	Bytes int     // of the document, styles, scripts and pictures, with their headers
}

const loads = 7

func (n *many) measure(b *testing.B, p page) {
	tab := browser.Open(b, n.url, browser.View{})
	login(tab, token)
	tab.Until("the tab is logged in", func() bool { return tab.Path() == "/console/" })
	var all []load
	for b.Loop() {
		all = all[:0]
		for range loads {
			tab.ForgetCache()
			require.Equal(b, http.StatusOK, tab.Go(p.path))
			all = append(all, browser.Eval[load](tab, `(() => {
				const page = performance.getEntriesByType("navigation")[0], rest = performance.getEntriesByType("resource");
				return {MS: page.loadEventEnd, Doc: page.responseEnd, Bytes: [page, ...rest].reduce((sum, e) => sum + e.transferSize, 0)};
			})()`))
		}
	}
	most := slices.MaxFunc(all, func(x, y load) int { return cmp.Compare(x.Bytes, y.Bytes) })
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(most.Bytes)/1000, "kB")
	for unit, of := range map[string]func(load) float64{"ms": func(l load) float64 { return l.MS }, "ms-doc": func(l load) float64 { return l.Doc }} {
		slices.SortFunc(all, func(x, y load) int { return cmp.Compare(of(x), of(y)) })
		b.ReportMetric(of(all[loads/2]), unit+"-half")
		b.ReportMetric(of(all[loads-1]), unit+"-worst")
	}
}

const (
	watched = 30 * time.Second // a multiple of what the node does by itself: scans each 10 s
	rounds  = 3
)

// viewers compares the node's CPU time while one browser looks at the overview with that while ten do, in turns.
func (n *many) viewers(b *testing.B) {
	var tabs []*browser.Tab
	look := func(count int) {
		for len(tabs) < count {
			tab := browser.Open(b, n.url, browser.View{})
			login(tab, token)
			tab.Until("the tab is logged in", func() bool { return tab.Path() == "/console/" })
			tabs = append(tabs, tab)
		}
		time.Sleep(2 * time.Second) // real time: a benchmark begins after the first pictures
	}
	var one, ten []float64
	for b.Loop() {
		look(1)
		for range rounds {
			one = append(one, n.use(b))
		}
		look(10)
		for range rounds {
			ten = append(ten, n.use(b))
		}
	}
	slices.Sort(one)
	slices.Sort(ten)
	b.Logf("in %% of a core: one viewer %.2f, ten %.2f", one, ten)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(one[len(one)/2], "%core-one")
	b.ReportMetric(ten[len(ten)/2], "%core-ten")
	b.ReportMetric(ten[len(ten)/2]-one[len(one)/2], "%core-nine-more")
}

// use is the share of a core that the node uses for a while, in percent.
func (n *many) use(b *testing.B) float64 {
	before := n.cpu(b)
	time.Sleep(watched) // real time: a benchmark measures a while
	return 100 * (n.cpu(b) - before).Seconds() / watched.Seconds()
}

// cpu is the CPU time that the node has used, as Linux counts it: in hundredths of a second.
func (n *many) cpu(b *testing.B) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.pid))
	require.NoError(b, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
