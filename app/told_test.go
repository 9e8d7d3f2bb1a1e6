package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/sharding"
)

// told is what users hear of something that breaks, as docs/operating.md's table has it.
type told struct {
	reason string // of toc_degraded
	readyz string // part of what /readyz lists
	series string // a metric, and what it shows
	value  float64
	warns  string // part of a line of the log
	better string // the line when it is over; it comes no sooner
}

// breakage breaks something real beneath a center and mends it.
type breakage struct {
	name         string
	want         told
	breaks, mend func(t *testing.T, r *ruin)
}

// ruin is what a center stands on. What is to break is its own.
type ruin struct {
	mysql  *testrig.PrivateMySQL // of database 1
	redis  *testrig.PrivateRedis
	client *redis.Client
	leader *testrig.ConsulServer // that the center's agent asks
	taken  []func()
}

// Each fault that only the server itself can answer is reported by /readyz, a metric and the log, and no report says that it is better
// before it is.
func TestWhatBreaksIsTold(t *testing.T) {
	t.Parallel()
	down := told{reason: "database_down", readyz: "database 1 is out of reach: ", series: `toc_database_up{database="1"}`,
		warns: "database is out of reach, its partitions wait", better: "database answers again"}
	consulAway := told{reason: "consul", readyz: "consul does not answer", series: "toc_consul_up", warns: "lost consul", better: "consul is back"}
	for _, b := range []breakage{
		{"database/down", down, func(_ *testing.T, r *ruin) { r.mysql.Kill() }, func(_ *testing.T, r *ruin) { r.mysql.Start() }},
		{"database/read-only", told{reason: "database_read_only", readyz: "database 1 is read-only", series: `toc_database_up{database="1"}`,
			warns: "database refuses writes", better: "database takes writes again"},
			func(t *testing.T, r *ruin) { r.exec(t, "SET GLOBAL read_only=1") }, func(t *testing.T, r *ruin) { r.exec(t, "SET GLOBAL read_only=0") }},
		{"database/too many connections", down, func(t *testing.T, r *ruin) { r.takeConnections(t) }, func(_ *testing.T, r *ruin) { r.giveBack() }},
		{"database/full", told{reason: "database_refuses_writes", readyz: "database 1 refuses writes: ", series: `toc_database_up{database="1"}`,
			warns: "database refuses writes", better: "database takes writes again"},
			func(t *testing.T, r *ruin) { r.fill(t) }, func(_ *testing.T, r *ruin) { r.mysql.NoLargerFiles(0) }},
		{"database/not durable", told{reason: "durability", readyz: "database 1 is not durable: ", series: `toc_durable{database="1"}`,
			warns: "database is not durable", better: "database is durable again"},
			func(t *testing.T, r *ruin) { r.exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit=2") },
			func(t *testing.T, r *ruin) { r.exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit=1") }},
		{"redis/read-only", told{reason: "redis", readyz: "redis refuses writes: ", series: "toc_redis_up", warns: "Redis refuses writes", better: "Redis takes writes again"}, func(t *testing.T, r *ruin) {
			require.NoError(t, r.client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		},
			func(t *testing.T, r *ruin) { require.NoError(t, r.client.ReplicaOf(t.Context(), "NO", "ONE").Err()) }},
		{"redis/full", told{reason: "redis_full", readyz: "redis refuses writes: ", series: "toc_redis_up", warns: "Redis is full", better: "Redis has room again"},
			func(t *testing.T, r *ruin) { r.setRedis(t, "maxmemory", "100kb") }, func(t *testing.T, r *ruin) { r.setRedis(t, "maxmemory", "0") }},
		{"redis/evicting", told{reason: "redis_evicts", readyz: "redis may evict slots: its maxmemory-policy is allkeys-lru", series: "toc_redis_up", value: 1,
			warns: "Redis may evict slots", better: "Redis does not evict slots any more"},
			func(t *testing.T, r *ruin) { r.setRedis(t, "maxmemory-policy", "allkeys-lru") }, func(t *testing.T, r *ruin) { r.setRedis(t, "maxmemory-policy", "noeviction") }},
		{"consul/its server down", consulAway, func(_ *testing.T, r *ruin) { r.leader.Kill() }, func(_ *testing.T, r *ruin) { r.leader.Start() }},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains([]string{"database/down", "redis/full"}, b.name) {
				testrig.OnlyInAll(t, "two of them, and TestFaults of package virtual")
			}
			part, _, _ := strings.Cut(b.name, "/")
			r, cfg := newRuin(t, part)
			log := &logbook{}
			c := run(t, cfg, app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			ctx, end := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			attribute := strings.Repeat("x", 2000) // fills a page soon
			defer callers.Wait()
			defer end()
			for biz := range uint64(8) { // of both databases
				callers.Go(func() {
					for ctx.Err() == nil {
						_, _ = c.Tasks().Submit(ctx, api.Submit{BizType: "order_close", BizID: biz, Now: true, Attribute: attribute})
						_, _ = c.Tasks().Submit(ctx, api.Submit{BizType: "timed", BizID: biz, Delay: time.Minute})
						time.Sleep(100 * time.Millisecond) // real time: the pace of the load
					}
				})
			}
			awaitNoTrouble(t, c, b.want.readyz)

			before := len(log.String()) // a machine that is busy may have reported more
			since := func() string { return log.String()[before:] }
			began := time.Now()
			b.breaks(t, r)
			isTold := func() bool {
				_, list := readiness(t, c)
				metrics := scrape(t, c)
				return strings.Contains(list, b.want.readyz) && strings.Contains(since(), b.want.warns) && strings.Contains(metrics, `reason="`+b.want.reason+`"} `) &&
					strings.Contains(metrics, fmt.Sprintf("%s %v\n", b.want.series, b.want.value))
			}
			defer func() {
				if t.Failed() {
					t.Log(log)
				}
			}()
			await.That(t, isTold, "%+v", b.want)
			t.Logf("told after %s", time.Since(began).Round(100*time.Millisecond))
			time.Sleep(2 * time.Second) // real time: no report comes that it is better
			require.NotContains(t, since(), b.want.better)

			b.mend(t, r)
			await.That(t, func() bool {
				_, list := readiness(t, c)
				return !strings.Contains(list, b.want.readyz) && strings.Contains(since(), b.want.better)
			}, b.want.better) // Consul's agent looks for its server each half minute
		})
	}
}

// smallDisk is a MySQL server's, as far as its tables are concerned.
var smallDisk = []testrig.Option{testrig.BufferPool("64M"), "--innodb-log-file-size=8M"}

// newRuin starts the servers: one of its own for the part that is to break. With Consul the center is a node of a cluster.
func newRuin(t *testing.T, part string) (*ruin, configs.Config) {
	r := new(ruin)
	cfg := embedded(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 2, 4
	shared := testrig.MySQL(t)
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.MySQL.MaxOpenConns = 4
	cfg.Store.MySQL.DSNs = []string{fmt.Sprintf(shared.DSN(), 0), fmt.Sprintf(shared.DSN(), 1)}
	if part == "database" {
		r.mysql = testrig.StartMySQL(t, smallDisk...)
		cfg.Store.MySQL.DSNs[1] = fmt.Sprintf("root@tcp(%s)/%s1", r.mysql.Addr(), r.mysql.Prefix())
	}
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	if part == "database" {
		r.exec(t, "CREATE USER app@'%' IDENTIFIED BY 'secret'") // may not write to a server that is read-only
		r.exec(t, "GRANT ALL ON `"+strings.ReplaceAll(r.mysql.Prefix(), "_", `\_`)+"%`.* TO app@'%'")
		cfg.Store.MySQL.DSNs[1] = fmt.Sprintf("app:secret@tcp(%s)/%s1", r.mysql.Addr(), r.mysql.Prefix())
	}
	cfg.BizTypes[0].Processor = "log"
	timed := configs.DefaultBizType()
	timed.ID, timed.Name, timed.Mode, timed.Processor = 2, "timed", configs.ModeRedis, "log"
	if part == "redis" {
		r.redis = testrig.StartRedis(t, noFile...)
		r.client = redisClient(t, r.redis.Addr())
		cfg.Redis.Addrs = []string{r.redis.Addr()}
	} else {
		shared := testrig.Redis(t)
		cfg.Redis.Addrs, timed.Topic = []string{shared.Addr()}, shared.Prefix()+"timed"
	}
	cfg.BizTypes = append(cfg.BizTypes, timed)
	if part == "consul" {
		r.leader = testrig.StartConsul(t)
		cfg.Cluster.Provider = configs.ProviderConsul
		cfg.Cluster.Consul.Address = r.leader.Agent(t).Addr()
	}
	return r, cfg
}

// exec does something by hand on the server of database 1.
func (r *ruin) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := r.mysql.DB(t).ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// takeConnections takes all that the server gives, and cuts off those of the center.
func (r *ruin) takeConnections(t *testing.T) {
	db := r.mysql.DB(t)
	own, err := db.Conn(t.Context())
	require.NoError(t, err)
	r.taken = append(r.taken, func() { _ = own.Close() })
	_, err = own.ExecContext(t.Context(), "SET GLOBAL max_connections=10")
	require.NoError(t, err)
	await.That(t, func() bool { // the center has none: it may have been faster
		rows, err := own.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE user = 'app'")
		require.NoError(t, err)
		var ids []int
		for rows.Next() {
			var id int
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(t, rows.Err())
		for _, id := range ids {
			_, _ = own.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id)) // it may be gone
		}
		for { // until the server has no more, not even for root
			conn, err := db.Conn(t.Context())
			if err != nil {
				break
			}
			r.taken = append(r.taken, func() { _ = conn.Close() })
		}
		var name string
		var connected int // those that were killed count until they are free
		require.NoError(t, own.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'Threads_connected'").Scan(&name, &connected))
		return len(ids) == 0 && connected > 10
	}, "the server has no connection left, and the center has none")
	r.taken = append(r.taken, func() { _ = db.Close() })
}

func (r *ruin) giveBack() {
	for _, give := range r.taken {
		give()
	}
}

// fill stores what there is room for on the server of database 1.
func (r *ruin) fill(t *testing.T) {
	const room = 16 << 20 // a file; as large as those that do not grow
	r.mysql.NoLargerFiles(room)
	layout := sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 4}
	ids, err := sharding.NewIDs(layout, sharding.MaxWorker, time.Now) // the center's own begin with worker 0
	require.NoError(t, err)
	tx, err := r.mysql.DB(t).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for table := range 2 {
		insert := fmt.Sprintf("INSERT INTO %s1.timeout_task_%04d (job_id, biz_id, biz_type, action_time, status, attribute) VALUES (?, ?, 1, NOW(), 3, REPEAT('x', ?))", r.mysql.Prefix(), table)
		shard, biz := 2+table, uint64(0)
		for layout.Shard(biz) != shard {
			biz++
		}
		for size := 2000; size > 0; {
			if _, err := tx.ExecContext(t.Context(), insert, ids.Next(shard), biz, size); err != nil {
				require.ErrorContains(t, err, "is full")
				size /= 2
			}
		}
	}
	require.NoError(t, tx.Commit())
}

func (r *ruin) setRedis(t *testing.T, name, value string) {
	t.Helper()
	require.NoError(t, r.client.ConfigSet(t.Context(), name, value).Err())
}
