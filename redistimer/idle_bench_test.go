package redistimer_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// BenchmarkIdle is a node with 1,000 business types × 1024 partitions that has nothing to do, on a Redis of its own. An op is a
// second. The metrics are what the timer keeps in memory, and the share of a core that the process and Redis take.
func BenchmarkIdle(b *testing.B) {
	const types = 1000
	wide := sharding.Layout{Databases: 1, TablesPerDatabase: 1024, Partitions: 1024}
	dir := testrig.MemoryDir(b)
	db, err := sql.Open("sqlite", store.SQLiteDSN(dir, 0, false))
	require.NoError(b, err)
	defer db.Close()
	require.NoError(b, migrations.Up(b.Context(), migrations.Config{Dialect: migrations.SQLite, Layout: wide, Databases: []migrations.Database{{DB: db}}}))
	ids, err := sharding.NewIDs(wide, 1, time.Now)
	require.NoError(b, err)
	rows, err := store.Open(store.Config{Driver: store.SQLite, Layout: wide, Dir: dir, IDs: ids})
	require.NoError(b, err)
	defer func() { require.NoError(b, rows.Close()) }()

	server := testrig.StartRedis(b)
	var partitions []int
	for p := range wide.Partitions {
		partitions = append(partitions, p)
	}
	owned := newOwnership(partitions)
	q := queue.New(queue.Config{Partitions: wide.Partitions, Ownership: owned})
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	n := redistimer.New(redistimer.Config{
		Client: redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}}), Store: rows, Queue: q, Ownership: owned, Layout: wide,
		Observer: &center{rearmed: map[string]int{}}, OutageAfter: time.Minute, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	var list []redistimer.BizType
	for i := range uint64(types) {
		name := fmt.Sprint("type", i)
		q.AddType(task.BizType{ID: 1 + i, Name: name})
		list = append(list, redistimer.BizType{BizType: task.BizType{ID: 1 + i, Name: name}, Topic: name, Horizon: 30 * time.Second, Visibility: time.Minute})
	}
	n.SetTypes(list)
	ctx, stop := context.WithCancel(b.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- n.Run(ctx) }()
	defer func() {
		stop()
		<-stopped
		require.NoError(b, n.Close())
	}()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()
	calls := func() (n int64) { // of scripts
		text, err := client.Info(b.Context(), "commandstats").Result()
		require.NoError(b, err)
		_, text, _ = strings.Cut(text, "cmdstat_evalsha:calls=")
		_, _ = fmt.Sscan(text[:max(0, strings.IndexByte(text, ','))], &n)
		return n
	}
	took := time.Now()
	for last := int64(-1); ; { // until all slots are asked
		for p := range wide.Partitions {
			n.NextDue(p, time.Time{}, true)
		}
		time.Sleep(2 * time.Second) // real time: a benchmark
		now := calls()
		if last > types && now-last < 10 {
			break
		}
		last = now
	}
	b.Logf("%d calls of scripts, %s until idle", calls(), time.Since(took))
	cpu := func(pid int) float64 { // in seconds
		if pid == 0 {
			var use syscall.Rusage
			require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
			return time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(b, err)
		var user, system float64
		f := strings.Fields(string(text))
		_, _ = fmt.Sscan(f[13]+" "+f[14], &user, &system)
		return (user + system) / 100
	}
	pid := 0
	info, err := client.Info(b.Context(), "server").Result()
	require.NoError(b, err)
	_, info, _ = strings.Cut(info, "process_id:")
	_, _ = fmt.Sscan(info, &pid)
	kept := heap() - before
	ours, its, asked := cpu(0), cpu(pid), calls()
	seconds := 0.0
	for b.Loop() {
		for p := range wide.Partitions {
			n.NextDue(p, time.Time{}, true) // as the scanner does
		}
		time.Sleep(time.Second) // real time: a benchmark
		seconds++
	}
	b.ReportMetric(kept/1e6, "MB")
	b.ReportMetric(100*(cpu(0)-ours)/seconds, "%core")
	b.ReportMetric(100*(cpu(pid)-its)/seconds, "%core-redis")
	b.ReportMetric(float64(calls()-asked)/cmp.Or(seconds, 1), "scripts/s")
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(q)
}
