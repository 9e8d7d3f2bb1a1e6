package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/task"
)

// On a server that gives the worst to its sessions a center is migrated, serves, and is killed: what it has answered is
// in the database.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	inRealTime(t)
	server := testrig.StartMySQL(t, testrig.BufferPool("64M"))
	root := server.DB(t)
	exec := func(text string) {
		_, err := root.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	const password = "p$(w ${x {{y changeme %d @/:?#&="
	exec("CREATE USER toc@'%' IDENTIFIED BY '" + password + "'")
	exec("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON `" + strings.ReplaceAll(server.Prefix(), "_", `\_`) + "%`.* TO toc@'%'")
	exec("SET GLOBAL innodb_flush_log_at_trx_commit=2")
	testrig.MakeHostile(t, root, testrig.HostileVariables(t, root))

	cfg := embedded(t)
	cfg.Store.Driver, cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = configs.DriverMySQL, 1, 1, 1
	cfg.BizTypes[0].Processor = configs.ProcessorLog
	file, dsnFile := filepath.Join(t.TempDir(), "toc.yaml"), filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(dsnFile, []byte("toc:"+password+"@tcp("+server.Addr()+")/"+server.Prefix()+"%d\n"), 0o600))
	text := regexp.MustCompile(`(?m)^( +)dsn: .*$`).ReplaceAllString(cfg.String(), "${1}dsn_file: "+dsnFile)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cfg, err := configs.Load(file, nil)
	require.NoError(t, err)
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	advice, err := app.ServerAdvice(t.Context(), cfg)
	require.NoError(t, err)
	require.Contains(t, strings.Join(advice, "\n"), "innodb_flush_log_at_trx_commit is 2: an answered write may not be on disk; set innodb_flush_log_at_trx_commit=1")

	cmd, addr := startChildAt(t, file)
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	get := func(path string) string {
		answer, err := http.Get("http://" + addr + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(body)
	}
	await.That(t, func() bool {
		metrics := get("/metrics")
		return strings.Contains(get("/readyz"), "database 0 is not durable: innodb_flush_log_at_trx_commit is 2") &&
			strings.Contains(metrics, "toc_durable{database=\"0\"} 0\n") && strings.Contains(metrics, `toc_degraded{database="0",reason="durability"} 1`)
	}, "the server's durability is shown")

	// Callers of all kinds of requests; each of them notes the last answer about its task.
	api := client.New("http://" + addr)
	var mu sync.Mutex
	want := make(map[uint64]string) // by job_id: status and action_time
	row := func(status task.Status, at time.Time) string {
		return fmt.Sprintf("%d %s", status, at.UTC().Format("2006-01-02 15:04:05.000"))
	}
	var callers sync.WaitGroup
	long := strings.Repeat(`it's "a" \ ü 😀 || `, 100)
	for caller := range uint64(4) {
		callers.Go(func() {
			for i := range uint64(30) {
				one, err := api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: caller*1000 + i, Delay: time.Hour, Attribute: long, DedupKey: strconv.FormatUint(i, 10)})
				if err != nil {
					t.Errorf("submit: %v", err)
					return
				}
				id := uint64(one.Task.JobID)
				status, at := task.Pending, time.Time(one.Task.ActionTime)
				switch i % 4 {
				case 0:
					err, status = api.Cancel(t.Context(), id), task.Cancelled
				case 1:
					at = at.Add(123 * time.Millisecond)
					_, err = api.Reschedule(t.Context(), id, client.Change{ActionTime: at})
				case 2:
					again, failed := api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: caller*1000 + i, Delay: time.Minute, DedupKey: strconv.FormatUint(i, 10)})
					if err = failed; err == nil && again.Task.JobID != one.Task.JobID {
						t.Errorf("%d is stored twice", id)
					}
				}
				if err != nil {
					t.Errorf("change %d: %v", id, err)
				}
				mu.Lock()
				want[id] = row(status, at)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	batch := make([]client.Submit, 300)
	for i := range batch {
		batch[i] = client.Submit{BizType: "order_close", BizID: uint64(10_000 + i), Delay: time.Hour, Attribute: long}
	}
	results, err := api.SubmitBatch(t.Context(), batch)
	require.NoError(t, err)
	due, err := api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 5000, ActionTime: time.Now()})
	require.NoError(t, err)
	await.That(t, func() bool {
		one, err := api.Get(t.Context(), uint64(due.Task.JobID))
		return err == nil && one.Status == "processed"
	}, "a due task is processed")
	want[uint64(due.Task.JobID)] = row(task.Processed, time.Time(due.Task.ActionTime))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	dsn, err := mysqlsession.Parse("root@tcp("+server.Addr()+")/"+server.Prefix()+"%d", 0)
	require.NoError(t, err)
	reader, err := mysqlsession.Open(dsn, migrations.SessionLimits)
	require.NoError(t, err)
	defer reader.Close()
	rows, err := reader.QueryContext(t.Context(), "SELECT job_id, CONCAT_WS(' ', status, action_time) FROM timeout_task_0000")
	require.NoError(t, err)
	got := make(map[uint64]string)
	for rows.Next() {
		var id uint64
		var text string
		require.NoError(t, rows.Scan(&id, &text))
		got[id] = text
	}
	require.NoError(t, rows.Err())
	for _, r := range results {
		require.Nil(t, r.Err)
		require.Contains(t, got, uint64(r.JobID))
		delete(got, uint64(r.JobID))
	}
	require.Len(t, results, len(batch))
	require.Equal(t, want, got)
	var others int
	require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=DATABASE() AND engine<>'InnoDB'").Scan(&others))
	require.Zero(t, others, "tables without transactions")
}

// A server whose binary log makes writes fail is refused before anything is made.
func TestBinaryLogOfStatements(t *testing.T) {
	t.Parallel()
	server := testrig.StartMySQL(t, testrig.BufferPool("64M"), "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT", "--sync-binlog=0")
	root := server.DB(t)
	cfg := embedded(t)
	cfg.Store.Driver, cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = configs.DriverMySQL, 1, 1, 1
	cfg.Store.MySQL.DSN = server.DSN()
	const wrong = "binlog_format is STATEMENT: InnoDB refuses each write of a READ COMMITTED transaction; set binlog_format=ROW or MIXED"
	advice, err := app.ServerAdvice(t.Context(), cfg)
	require.EqualError(t, err, "server "+server.Addr()+": "+wrong)
	require.Contains(t, strings.Join(advice, "\n"), "sync_binlog is 0: ")
	require.EqualError(t, app.Migrate(t.Context(), cfg, nil, nil), err.Error())
	var made int
	require.NoError(t, root.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE ?", server.Prefix()+"%").Scan(&made))
	require.Zero(t, made)

	_, err = root.ExecContext(t.Context(), "SET GLOBAL binlog_format='MIXED'")
	require.NoError(t, err)
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
}
