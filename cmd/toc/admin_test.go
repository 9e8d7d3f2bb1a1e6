package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

func TestMigrateTwice(t *testing.T) {
	path := small(t, "")
	for range 2 {
		r := toc("migrate", "--config", path)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `^ready: 2 databases × 2 tables \(.*s\)\n$`, r.out)
		require.Empty(t, r.err, "the bar is for people")
	}
	require.Equal(t, "n\n0\n", ok(t, "sql", "--csv", "--config", path, "SELECT COUNT(*) AS n FROM timeout_task"))
}

func TestMigrateToAPlaceThatIsNone(t *testing.T) {
	occupied := file(t, "file", "")
	path := file(t, "toc.yaml", fmt.Sprintf("store: {sqlite: {dir: %q}}", occupied+"/data"))
	r := toc("migrate", "--config", path)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "not a directory")
}

func TestConfigCheck(t *testing.T) {
	path := small(t, "biz_types: [{id: 7, name: coupon}]")
	out := ok(t, "config", "check", "--config", path)
	require.Contains(t, out, "ok\n\n")
	require.Contains(t, out, "coupon")
	require.Contains(t, ok(t, "config", "check"), "order_close", "no file is the embedded center")

	path = file(t, "toc.yaml", `
kafka: {clusters: {main: {brokers: ["127.0.0.1:9092"]}}}
biz_types: [{id: 7, name: coupon, processor: mine}, {id: 8, name: mail, kafka: {cluster: main, topic: mails}}, {id: 9, name: order, webhook: {url: "http://a"}}]`)
	r := toc("config", "check", "--config", path)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, `coupon has the processor "mine"`)
	require.NotContains(t, r.err, "mail")

	bad := file(t, "toc.yaml", "http: {listen: nowhere}\nstor: {}\nscan: {batch: 0}\n")
	r = toc("config", "check", "--config", bad)
	require.Equal(t, 2, r.code)
	require.Empty(t, r.out)
	for _, key := range []string{"http.listen", "stor", "scan.batch"} {
		require.Contains(t, r.err, key, "every mistake is told at once")
	}

	r = toc("config", "check", "--config", bad+".nosuch")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, bad+".nosuch")
}

// Before, it failed until the first toc migrate: Unknown database 'toc_0'.
func TestConfigCheckBeforeTheFirstMigrate(t *testing.T) {
	text := "{driver: mysql, databases: 2, tables_per_database: 2, mysql: {dsn: %q}}, cluster: {partitions: 4}}"
	path := file(t, "toc.yaml", fmt.Sprintf("{store: "+text, testrig.MySQL(t).DSN()))
	const warning = "warning: the tables are not there yet: run `toc migrate` with the same --config\n"
	r := toc("config", "check", "--connect", "--config", path)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, warning)
	require.Contains(t, r.out, "ok\n\n")

	ok(t, "migrate", "--config", path)
	r = toc("config", "check", "--connect", "--config", path)
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.err, "toc migrate")

	path = file(t, "none.yaml", fmt.Sprintf("{store: "+text, "root@tcp(127.0.0.1:1)/toc_%d"))
	r = toc("config", "check", "--connect", "--config", path)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "connection refused")
}

// Each server that a configuration names is asked.
func TestConfigCheckAsksTheOthers(t *testing.T) {
	for text, answer := range map[string]string{
		`redis: {addrs: ["127.0.0.1:1"]}`: "redis 127.0.0.1:1 does not answer: ",
		`tracing: {otlp: "127.0.0.1:1"}`:  "tracing.otlp: 127.0.0.1:1: ",
	} {
		path := file(t, "toc.yaml", text)
		r := toc("config", "check", "--connect", "--config", path)
		require.Equal(t, 1, r.code, text+r.err)
		require.Contains(t, r.err, answer)
		require.Contains(t, r.err, "connection refused")
		require.NotContains(t, r.out, "ok")
	}
}

func TestConfigCheckAsksKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a broker that is silent has four seconds")
	}
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "timeouts", "timers"))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	path := file(t, "toc.yaml", fmt.Sprintf(`
kafka: {clusters: {main: {brokers: [%q, %q]}, unused: {brokers: ["127.0.0.1:1"]}}}
biz_types:
  - {id: 1, name: there, processor: kafka, kafka: {cluster: main, topic: timeouts}}
  - {id: 2, name: missing, processor: kafka, kafka: {cluster: main, topic: timeout}}
intake:
  - {name: orders, cluster: main, topic: timers, failure_topic: refused}
`, silent.Addr(), brokers.ListenAddrs()[0]))
	r := toc("config", "check", "--connect", "--config", path)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "warning: kafka cluster main has no topic refused: create it\n"+
		"warning: kafka cluster main has no topic timeout: create it\n", r.err)

	brokers.Close()
	_ = silent.Close()
	r = toc("config", "check", "--connect", "--config", path)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "kafka cluster main: no broker could be asked: ")
	require.Contains(t, r.err, "connection refused")
}

// Redis and Consul are asked, too. The files of TLS are read without --connect.
func TestConfigCheckAsksRedisAndConsul(t *testing.T) {
	a := testrig.NewAuthority(t, "authority")
	text := `
store: {driver: mysql, databases: 1, tables_per_database: 1, mysql: {dsn: "` + testrig.MySQL(t).DSN() + `"}}
cluster: {provider: consul, partitions: 1, consul: {address: "` + testrig.Consul(t).Addr() + `", tls: {ca: ` + a.File + `}}}
redis: {addrs: ["` + testrig.Redis(t).Addr() + `"], tls: {ca: ` + a.File + `}}
biz_types: [{id: 1, name: a, mode: redis}]
`
	path := file(t, "toc.yaml", text)
	r := toc("config", "check", "--connect", "--config", path)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "cluster.consul.tls.ca: "+testrig.Consul(t).Addr()+" does not speak TLS")
	require.Contains(t, r.err, "redis.tls")

	plain := file(t, "plain.yaml", strings.ReplaceAll(text, "tls: {ca: "+a.File+"}", "tls: {ca: \"\"}"))
	r = toc("config", "check", "--connect", "--config", plain)
	require.Zero(t, r.code, r.err)

	require.NoError(t, os.WriteFile(a.File, []byte("garbage"), 0o600))
	for _, command := range [][]string{{"config", "check"}, {"serve"}, {"migrate"}, {"sql", "SELECT 1"}} {
		r = toc(append(command, "--config", path)...)
		require.Equal(t, 2, r.code, command)
		require.Contains(t, r.err, `redis.tls.ca: "`+a.File+`" has no certificate in PEM form`)
		require.Contains(t, r.err, `cluster.consul.tls.ca: "`+a.File+`" has no certificate in PEM form`)
	}
}

func TestCommandsRefuseABadConfiguration(t *testing.T) {
	bad := file(t, "toc.yaml", "scan: {batch: 0}")
	for _, args := range [][]string{{"serve"}, {"migrate"}, {"sql", "SELECT 1 FROM timeout_task"}, {"job-id", "--biz-id", "1"}, {"bench"}} {
		r := toc(append(args, "--config", bad)...)
		require.Equal(t, 2, r.code, args)
		require.Contains(t, r.err, "scan.batch", args)
	}
}

func TestConfigurationFromTheEnvironment(t *testing.T) {
	t.Setenv("TOC_SCAN_BATCH", "77")
	require.Contains(t, ok(t, "config", "check"), "batch: 77")
	t.Setenv("TOC_SCAN_BATCH", "many")
	r := toc("config", "check")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "TOC_SCAN_BATCH")
}

// placeOf is where job-id says that a row belongs.
func placeOf(t *testing.T, config string, bizID uint64) (p place) {
	t.Helper()
	out := ok(t, "job-id", "--config", config, "--biz-id", strconv.FormatUint(bizID, 10), "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	return p
}

func TestJobID(t *testing.T) {
	path := small(t, "")
	r := toc("job-id", "--config", path, "--biz-id", "42") // 42 mod 2 = 0, 21 mod 2 = 1
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `^\d+\n$`, r.out)
	require.Equal(t, "database 0, table timeout_task_0001\n", r.err)

	p := placeOf(t, path, 1<<64-1)
	require.Equal(t, 1, p.Database)
	require.Equal(t, "timeout_task_0001", p.Table)
	id := uint64(p.JobID)
	layout := sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 4}
	shard, ok := layout.ShardOf(id)
	require.True(t, ok)
	require.Equal(t, layout.Shard(1<<64-1), shard)
	require.EqualValues(t, sharding.HandWorker, id&1023)
}

// A biz_id that is a text has a number for SQL, which job-id prints beside the job_id.
func TestJobIDOfAText(t *testing.T) {
	path := small(t, "")
	const uuid = "6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d"
	number := task.HashBizKey(uuid)
	r := toc("job-id", "--config", path, "--biz-id", uuid)
	require.Zero(t, r.code, r.err)
	require.Regexp(t, fmt.Sprintf(`^\d+\n%d\n$`, number), r.out)
	require.Contains(t, r.err, "biz_key is "+uuid)

	var p place
	require.NoError(t, json.Unmarshal([]byte(ok(t, "job-id", "--config", path, "--biz-id", uuid, "--json")), &p))
	shard, valid := sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 4}.ShardOf(uint64(p.JobID))
	require.True(t, valid)
	require.EqualValues(t, 2*(number%2)+number/2%2, shard)
	require.EqualValues(t, number, *p.BizID)
	require.Equal(t, uuid, p.BizKey)
}
