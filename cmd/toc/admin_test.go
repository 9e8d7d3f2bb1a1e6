package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// Before, it failed until the first toc migrate: Unknown database 'toc_0'.
func TestConfigCheckBeforeTheFirstMigrate(t *testing.T) {
	path := file(t, "toc.yaml", fmt.Sprintf("{store: {driver: mysql, databases: 2, tables_per_database: 2, mysql: {dsn: %q}}, cluster: {partitions: 4}}", testrig.MySQL(t).DSN()))
	const warning = "warning: the tables are not there yet: run `toc migrate` with the same --config\n"
	r := toc("config", "check", "--connect", "--config", path)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, warning)
	require.Contains(t, r.out, "ok\n\n")

	ok(t, "migrate", "--config", path)
	r = toc("config", "check", "--connect", "--config", path)
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.err, "toc migrate")
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

// Redis and Consul are asked, too.
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
}
