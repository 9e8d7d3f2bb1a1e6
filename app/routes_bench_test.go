package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
)

// BenchmarkRoutes times the routes that operators read, over HTTP, on 8 × 1024 tables of MariaDB with a million tasks parked
// over a day, 100,000 dead and 1,000 business types, beside the scans of the node itself. Use -benchtime=1x.
func BenchmarkRoutes(b *testing.B) {
	const parked, dead, types, times = 1_000_000, 100_000, 1000, 20
	cfg := embedded(b)
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 1024, 256
	cfg.Scan = configs.Default().Scan
	cfg.BizTypes = nil
	for i := range types {
		t := configs.DefaultBizType()
		t.ID, t.Name, t.Processor, t.Workers = uint64(i+1), "type_"+strconv.Itoa(i+1), "ledger", 4
		cfg.BizTypes = append(cfg.BizTypes, t)
	}
	cfg = onMySQL(b, cfg)
	cfg.Store.MySQL.MaxOpenConns = configs.Default().Store.MySQL.MaxOpenConns
	fillForRoutes(b, cfg, parked, dead, types)
	c := run(b, cfg, app.WithProcessor("ledger", newLedger()))
	pending, err := c.Tasks().ListAll(b.Context(), client.ListAll{Limit: 1})
	require.NoError(b, err)
	require.Len(b, pending.Tasks, 1)
	for range 30 {
		_, err := c.Pause(b.Context(), "type_1", client.Pause{})
		require.NoError(b, err)
	}
	_, err = c.Tasks().DiscardDead(b.Context(), client.DiscardDead{BizType: "type_7", Rate: 1})
	require.NoError(b, err)
	time.Sleep(12 * time.Second) // real time: the first scans are over
	server := pidOfMySQL(b)
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, route := range []struct{ name, path string }{
		{"walk", "/v1/tasks?limit=100"},
		{"walk-of-a-type", "/v1/tasks?biz_type=type_500&limit=100"},
		{"walk-of-an-hour", "/v1/tasks?limit=100&from=" + at(time.Hour) + "&to=" + at(2*time.Hour)},
		{"walk-of-the-dead", "/v1/tasks?status=dead&biz_type=type_900&limit=1000"},
		{"forecast", "/v1/forecast"},
		{"forecast-of-a-day", "/v1/forecast?span=24h"},
		{"forecast-of-a-type", "/v1/forecast?biz_type=type_3&span=24h"},
		{"dead", "/v1/dead?limit=100"},
		{"dead-of-a-type", "/v1/dead?biz_type=type_900&limit=1000"},
		{"dead-of-no-error", "/v1/dead?error=nobody&limit=100"},
		{"groups", "/v1/dead/groups"},
		{"groups-of-a-type", "/v1/dead/groups?biz_type=type_900"},
		{"biz-types", "/v1/biz-types"},
		{"why", "/v1/tasks/" + pending.Tasks[0].JobID.String() + "/why"},
		{"operations", "/v1/operations"},
		{"audit", "/v1/audit"},
		{"audit-of-nobody", "/v1/audit?actor=nobody"},
	} {
		var took []time.Duration
		before := processorTime(b, server)
		for range times {
			began := time.Now()
			answer, err := http.Get("http://" + c.Addr() + route.path)
			require.NoError(b, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(b, err)
			require.NoError(b, answer.Body.Close())
			require.Equal(b, http.StatusOK, answer.StatusCode, "%s: %s", route.name, body)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.Logf("%-20s median %4.0f ms, slowest of %d %4.0f ms; processor time of MariaDB, toc and the scans %4.0f ms", route.name, took[times/2].Seconds()*1000, times,
			took[times-1].Seconds()*1000, (processorTime(b, server)-before).Seconds()*1000/times)
		b.ReportMetric(took[times-1].Seconds()*1000, route.name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// fillForRoutes inserts tasks by plain SQL, into all tables alike.
func fillForRoutes(b *testing.B, cfg configs.Config, parked, dead, types int) {
	list, err := app.Databases(cfg, false)
	require.NoError(b, err)
	defer func() { require.NoError(b, app.CloseDatabases(list)) }()
	tables, databases := cfg.Store.TablesPerDatabase, cfg.Store.Databases
	born := time.Since(sharding.Epoch).Milliseconds() - 10_000_000
	g, ctx := errgroup.WithContext(context.Background())
	for d, one := range list {
		g.Go(func() error {
			tx, err := one.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			insert := func(table, n, first int, columns, values string) error {
				shard := d*tables + table
				_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (job_id,biz_id,biz_type,gmt_modified,%s) SELECT ((%d+seq)<<23)|(%d<<10)|%d, (seq*%d+%d)*%d+%d, 1+(seq*8191+%d)%%%d, UTC_TIMESTAMP(3), %s FROM seq_%d_to_%d",
					sharding.TableName(table), columns, born, shard, sharding.HandWorker, tables, table, databases, d, shard, types, values, first, first+n-1))
				return err
			}
			for table := range tables {
				pending := parked / (tables * databases)
				if err := insert(table, pending, 1, "action_time", "UTC_TIMESTAMP(3) + INTERVAL 60+FLOOR(RAND()*86000) SECOND"); err != nil {
					return err
				}
				if err := insert(table, dead/(tables*databases), pending+1, "status,attempts,last_error,action_time",
					"4, 5, CONCAT('POST shop-', seq%20, ': order ', seq*977, ' is gone'), UTC_TIMESTAMP(3) - INTERVAL seq SECOND"); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO toc_audit (at,actor,action,target) SELECT UTC_TIMESTAMP(3) - INTERVAL seq MINUTE, 'api', 'redrive', 'type_1' FROM seq_1_to_20000"); err != nil {
				return err
			}
			return tx.Commit()
		})
	}
	require.NoError(b, g.Wait())
}

func pidOfMySQL(b *testing.B) int {
	var file string
	require.NoError(b, testrig.MySQL(b).DB(b).QueryRow("SELECT @@pid_file").Scan(&file))
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(b, err)
	return pid
}

// processorTime is the time that a process and this one have used.
func processorTime(b *testing.B, pid int) (sum time.Duration) {
	for _, p := range []int{pid, os.Getpid()} {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		require.NoError(b, err)
		for _, field := range strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[11:13] { // user and system time
			ticks, err := strconv.Atoi(field)
			require.NoError(b, err)
			sum += time.Duration(ticks) * 10 * time.Millisecond // USER_HZ
		}
	}
	return sum
}
