package app_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// BenchmarkNeighbours measures how late tasks are while something beside them is silent: a Redis master, a database, a
// table, a row. 200 tasks a second, half on each engine, due in one to two seconds; the silence begins after 5 s and lasts
// 15 s. What is silent keeps its own tasks; the others' lateness is the result.
func BenchmarkNeighbours(b *testing.B) {
	b.Run("nothing", func(b *testing.B) { newNeighbours(b).measure(b, func() func() { return func() {} }, nobody) })
	b.Run("master", func(b *testing.B) {
		n := newNeighbours(b)
		n.measure(b, func() func() { n.redis.Freeze(1); return func() { n.redis.Thaw(1) } }, func(t *task.Task) bool {
			key := fmt.Sprintf("timed_%d", n.layout.Partition(n.layout.Shard(t.BizID)))
			return t.BizType == 2 && n.redis.NodeOf(n.redis.SlotOf(key)) == 1
		})
	})
	b.Run("database", func(b *testing.B) {
		n := newNeighbours(b)
		n.measure(b, func() func() { n.line.Stall(); return n.line.Mend }, func(t *task.Task) bool { return n.layout.Database(n.layout.Shard(t.BizID)) == 3 })
	})
	b.Run("table", func(b *testing.B) {
		n := newNeighbours(b)
		n.measure(b, func() func() { return n.hand(b, "LOCK TABLES timeout_task_0001 WRITE") }, func(t *task.Task) bool {
			shard := n.layout.Shard(t.BizID)
			return n.layout.Database(shard) == 3 && n.layout.Table(shard) == 1
		})
	})
	b.Run("row", func(b *testing.B) {
		n := newNeighbours(b)
		n.measure(b, func() func() {
			// Lock the next task of a table, like an admin who forgets to commit.
			return n.hand(b, "START TRANSACTION; SELECT job_id FROM timeout_task_0001 WHERE status = 0 ORDER BY action_time LIMIT 1 FOR UPDATE")
		}, nobody)
	})
}

func nobody(*task.Task) bool { return false }

// neighbours is a center on MariaDB and a Redis Cluster; database 3 is reached by a line of its own.
type neighbours struct {
	center *center
	layout sharding.Layout
	redis  *testrig.RedisCluster
	line   *testrig.Proxy
	dsns   []string
	fired  *ledger
}

func newNeighbours(b *testing.B) *neighbours {
	b.Helper()
	cfg := embedded(b)
	db := testrig.MySQL(b)
	n := &neighbours{redis: testrig.StartRedisCluster(b), line: testrig.StartProxy(b, db.Addr()), fired: newLedger()}
	for i := range cfg.Store.Databases {
		n.dsns = append(n.dsns, fmt.Sprintf(db.DSN(), i))
	}
	cfg.Store.Driver, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = configs.DriverMySQL, 32, 256
	cfg.Store.MySQL.DSNs = slices.Clone(n.dsns)
	cfg.Store.MySQL.DSNs[3] = strings.Replace(n.dsns[3], db.Addr(), n.line.Addr(), 1)
	cfg.Redis.Addrs, cfg.Redis.Mode = n.redis.Addrs(), configs.RedisCluster
	timed := cfg.BizTypes[0]
	timed.ID, timed.Name, timed.Mode = 2, "timed", configs.ModeRedis
	cfg.BizTypes = append(cfg.BizTypes, timed)
	require.NoError(b, app.Migrate(b.Context(), cfg, nil, nil))
	n.layout = app.Layout(cfg.WithDefaults())
	n.center = run(b, cfg, app.WithProcessor("ledger", n.fired))
	return n
}

// hand runs a statement on a connection of its own and keeps it open until letGo.
func (n *neighbours) hand(b *testing.B, statement string) (letGo func()) {
	b.Helper()
	db, err := sql.Open("mysql", n.dsns[3]+"?multiStatements=true")
	require.NoError(b, err)
	conn, err := db.Conn(b.Context())
	require.NoError(b, err)
	_, err = conn.ExecContext(b.Context(), statement)
	require.NoError(b, err)
	return func() {
		_ = conn.Close()
		_ = db.Close() // the server rolls back, and unlocks
	}
}

// measure submits tasks, begins and ends the silence, and reports the lateness of the tasks that are not part
// of it.
func (n *neighbours) measure(b *testing.B, silence func() (end func()), concerned func(*task.Task) bool) {
	const rate, before, during, after = 200, 5 * time.Second, 15 * time.Second, 10 * time.Second
	var mu sync.Mutex
	var tasks []task.Task
	refused := 0
	var submits sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.Context(), before+during+after)
	defer cancel()
	began := time.Now()
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / rate)))
			submits.Go(func() {
				s, err := n.center.Desk().Submit(context.Background(), intake.Submit{
					BizType: []string{"order_close", "timed"}[i%2], BizID: uint64(i / 2),
					When: intake.In(time.Second + time.Duration(i*7919%1000)*time.Millisecond),
				})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused++
					return
				}
				tasks = append(tasks, s.Task)
			})
		}
	}()
	<-time.After(before)
	end := silence()
	from := time.Now()
	<-time.After(during)
	end()
	till := time.Now()
	<-ctx.Done()
	submits.Wait()
	n.fired.awaitTasks(b, tasks, time.Minute)

	var late []time.Duration
	twice := 0
	for i := range tasks {
		runs := n.fired.runs(tasks[i].JobID)
		if len(runs) > 1 {
			twice++
		}
		if !concerned(&tasks[i]) && tasks[i].ActionTime.After(from) && tasks[i].ActionTime.Before(till) {
			late = append(late, runs[0].Sub(tasks[i].ActionTime))
		}
	}
	slices.Sort(late)
	b.Logf("the others: %s; %d tasks in all, %d submits refused, %d ran twice", percentiles(late), len(tasks), refused, twice)
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "max-ms")
	b.ReportMetric(float64(refused), "refused")
	b.ReportMetric(float64(twice), "twice")
	b.ReportMetric(0, "ns/op")
}

// awaitTasks waits until each of the tasks has fired.
func (l *ledger) awaitTasks(b *testing.B, tasks []task.Task, patience time.Duration) {
	b.Helper()
	deadline := time.After(patience)
	for i := range tasks {
		for len(l.runs(tasks[i].JobID)) == 0 {
			select {
			case <-l.arrived:
			case <-time.After(100 * time.Millisecond):
			case <-deadline:
				require.Failf(b, "tasks did not fire", "task %d, due %s", tasks[i].JobID, tasks[i].ActionTime)
			}
		}
	}
}
