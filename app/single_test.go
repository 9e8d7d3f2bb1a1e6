package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/task"
)

// A second center on the same store is refused, with the holder's name. On SQLite a file is locked, on MariaDB a lease is taken.
func TestSecondCenterIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, cfg configs.Config) {
		first := run(t, cfg, app.WithProcessor("ledger", newLedger()))
		second, err := app.New(cfg, app.WithProcessor("ledger", newLedger()))
		require.NoError(t, err)
		err = second.Run(t.Context())
		require.ErrorContains(t, err, "the store is in use")
		require.ErrorContains(t, err, first.Node())
		require.NoError(t, first.stop())
	})
}

// All connections of a single node are cut again and again, while a second process is
// started on its store whenever it has been refused. Before, 7 of 400 tasks were fired
// by both.
func TestASingleNodeWhoseConnectionsAreCutStaysTheOnlyOne(t *testing.T) {
	t.Parallel()
	server := testrig.MySQL(t)
	cfg := onMySQL(t, fewTables(t))
	fired := newLedger()
	a := run(t, cfg, app.WithProcessor("ledger", fired))

	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	refused := 0
	others.Go(func() {
		for ctx.Err() == nil {
			b, err := app.New(cfg, app.WithLogger(testLogger(t)), app.WithoutHTTP(), app.WithProcessor("ledger", fired),
				app.WithReady(func(string) { t.Error("a second process works on the store") }))
			if err != nil {
				t.Error(err)
				return
			}
			if b.Run(ctx) != nil {
				refused++
			}
		}
	})
	db := server.DB(t)
	due := map[uint64]time.Time{}
	for range 30 {
		for range 4 {
			s, err := a.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: rand.Uint64(),
				Delay: time.Duration(rand.Int64N(int64(2 * time.Second)))})
			if err == nil { // else its connection was cut, and it may be stored or not
				due[uint64(s.Task.JobID)] = s.Task.ActionTime.Time()
			}
		}
		rows, err := db.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db LIKE ?", server.Prefix()+"%")
		require.NoError(t, err)
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			_, _ = db.ExecContext(t.Context(), fmt.Sprintf("KILL CONNECTION %d", id)) // it may be gone already
		}
		require.NoError(t, rows.Close())
		<-time.After(50 * time.Millisecond) // real time: the pace of the cuts
	}
	require.NotEmpty(t, due)
	fired.awaitAll(t, due, await.Patience)
	stop()
	others.Wait()
	fired.mu.Lock()
	defer fired.mu.Unlock()
	for id, runs := range fired.fired {
		require.Len(t, runs, 1, "task %d", id)
	}
	t.Logf("%d tasks once each, the second process refused %d times", len(fired.fired), refused)
	require.NotZero(t, refused)
}

// A process that is paused is replaced after its lease. When it continues, it starts none of its old tasks.
// Before, no process could take over while it was silent.
func TestASingleNodeThatStandsStillIsReplaced(t *testing.T) {
	t.Parallel()
	cfg := onMySQL(t, fewTables(t))
	sink := newWebhookSink(t)
	cfg.BizTypes[0].Processor = configs.ProcessorWebhook
	cfg.BizTypes[0].Webhook.URL, cfg.BizTypes[0].Workers = sink.URL, 4
	cfg.Scan.Lookahead = time.Minute // all of it is in the first one's memory
	file := filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))
	const n = 200
	submitBefore(t, cfg, n, 6*time.Second)
	first := startChild(t, file)
	defer func() { _ = first.Process.Kill(); _ = first.Wait() }()
	await.That(t, func() bool { sink.mu.Lock(); defer sink.mu.Unlock(); return len(sink.calls) > 0 }, "the first call")
	require.NoError(t, first.Process.Signal(syscall.SIGSTOP))
	second := newWebhookSink(t)
	cfg.BizTypes[0].Webhook.URL = second.URL
	began := time.Now()
	run(t, cfg) // waits until it works
	took := time.Since(began)
	await.That(t, func() bool { return second.called() > n/3 }, "calls of the second process")
	sink.mu.Lock()
	sent := len(sink.calls) // what was on the wire has arrived long since
	sink.mu.Unlock()
	require.NoError(t, first.Process.Signal(syscall.SIGCONT))
	awaitRows(t, cfg, task.Processed, n)
	sink.mu.Lock()
	defer sink.mu.Unlock()
	require.LessOrEqual(t, len(sink.calls), sent+cfg.BizTypes[0].Workers, "the first process starts nothing: its workers end what they had begun")
	t.Logf("replaced after %s", took)
}

// The files of an embedded store are deleted under it. Before, submits went on to be
// answered 201, and after a restart there was an empty store.
func TestTheFilesOfAStoreAreGone(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	opts := []app.Option{app.WithProcessor("ledger", newLedger())}
	c := run(t, cfg, opts...)
	submit := func() error {
		_, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: rand.Uint64(), Delay: time.Hour})
		return err
	}
	require.NoError(t, submit())
	id := c.StoreID()
	require.Regexp(t, "^[0-9a-f]{16}$", id)
	files, err := filepath.Glob(cfg.Store.SQLite.Dir + "/*.db*")
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Remove(f))
	}
	for range 20 {
		require.ErrorIs(t, submit(), task.ErrUnavailable)
	}
	await.That(t, func() bool {
		code, degraded := readiness(t, c)
		return code == http.StatusServiceUnavailable && strings.Contains(degraded, "database 0")
	}, "the lost database is reported")
	require.NoError(t, c.stop())
	files, err = filepath.Glob(cfg.Store.SQLite.Dir + "/*.db")
	require.NoError(t, err)
	require.Empty(t, files, "nothing is made anew")

	again, err := app.New(cfg, append(opts, app.WithLogger(testLogger(t)))...)
	require.NoError(t, err)
	var empty *migrations.EmptyError
	require.ErrorAs(t, again.Run(t.Context()), &empty)
	require.ErrorAs(t, app.Migrate(t.Context(), cfg, nil, nil), &empty)
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil, app.MakeLostAnew()))
	c = run(t, cfg, opts...)
	require.Equal(t, id, c.StoreID())
	require.NoError(t, submit())
}

// A store that has lost one of its databases, or whose partitions are counted in
// another way, is refused.
func TestAStoreThatIsNotWholeIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, cfg configs.Config) {
		opts := []app.Option{app.WithProcessor("ledger", newLedger())}
		c := run(t, cfg, opts...)
		id := c.StoreID()
		require.NoError(t, c.stop())
		start := func(cfg configs.Config) error {
			a, err := app.New(cfg, append(opts, app.WithLogger(testLogger(t)))...)
			require.NoError(t, err)
			return a.Run(t.Context())
		}
		changed := cfg
		changed.Cluster.Partitions = 2
		err := start(changed)
		var layout *migrations.LayoutError
		require.ErrorAs(t, err, &layout)
		require.ErrorContains(t, err, "cluster.partitions is 2")
		require.NoError(t, app.Migrate(t.Context(), changed, nil, nil, app.Repartition()))
		c = run(t, changed, opts...)
		require.Equal(t, id, c.StoreID())
		require.Error(t, app.Migrate(t.Context(), cfg, nil, nil, app.Repartition()), "somebody works on it")
		require.NoError(t, c.stop())
		cfg = changed

		if cfg.Store.Driver == configs.DriverSQLite {
			require.NoError(t, os.Remove(filepath.Join(cfg.Store.SQLite.Dir, "toc_1.db")))
		} else {
			list, err := app.Databases(cfg, false)
			require.NoError(t, err)
			_, err = list[1].DB.ExecContext(t.Context(), "DROP DATABASE `"+list[1].Name+"`")
			require.NoError(t, err)
			require.NoError(t, app.CloseDatabases(list))
		}
		for _, err := range []error{start(cfg), app.Migrate(t.Context(), cfg, nil, nil)} {
			var empty *migrations.EmptyError
			require.ErrorAs(t, err, &empty)
			require.ErrorContains(t, err, "toc migrate --new")
			require.Equal(t, id, empty.StoreID)
		}
		require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil, app.MakeLostAnew()))
		require.Equal(t, id, run(t, cfg, opts...).StoreID())
	})
}

// A first start that is killed at any moment can go on: it is not taken for a store
// that has lost something.
func TestAFirstStartThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.BizTypes[0].Processor = configs.ProcessorLog
	cfg.Store.Databases, cfg.Store.TablesPerDatabase = 2, 2
	dir := cfg.Store.SQLite.Dir
	for i := range 3 {
		cfg.Store.SQLite.Dir = filepath.Join(dir, fmt.Sprint(i))
		file := filepath.Join(t.TempDir(), "toc.yaml")
		require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))
		cmd := childCommand(file)
		require.NoError(t, cmd.Start())
		<-time.After(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))) // real time: the moment of the kill
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		c := run(t, cfg)
		require.NotEmpty(t, c.StoreID())
		require.NoError(t, c.stop())
	}
}
