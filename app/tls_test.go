package app_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// files are copies of a pair and its authority, to be replaced while a center runs.
type files struct{ configs.TLS }

func copied(t *testing.T, a *testrig.Authority, p testrig.Pair) files {
	dir := t.TempDir()
	f := files{configs.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}}
	putFile(t, f.CA, a.File)
	f.put(t, p)
	return f
}

func (f files) put(t *testing.T, p testrig.Pair) {
	putFile(t, f.Cert, p.Cert)
	putFile(t, f.Key, p.Key)
}

// putFile replaces a file by a rename, with the contents of others.
func putFile(t *testing.T, to string, from ...string) {
	t.Helper()
	var all []byte
	for _, path := range from {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all = append(all, text...)
	}
	require.NoError(t, os.WriteFile(to+".new", all, 0o600))
	require.NoError(t, os.Rename(to+".new", to))
}

// awaitDegraded waits until /readyz reports a trouble with this text, ready or not.
func awaitDegraded(t *testing.T, c *center, text string) {
	t.Helper()
	await.Success(t, func() error {
		if _, degraded := readiness(t, c); !strings.Contains(degraded, text) {
			return fmt.Errorf("degraded by %q", degraded)
		}
		return nil
	}, "degraded by %s", text)
}

// mistakes are settings of TLS for a server that takes TLS only and demands certificates, with the setting that
// the error names.
func mistakes(t *testing.T, right configs.TLS) map[string]struct {
	tls  configs.TLS
	says string
} {
	wrong := right
	wrong.CA = testrig.NewAuthority(t, "another authority").File
	misnamed := right
	misnamed.ServerName = "db.example"
	none := right
	none.Cert, none.Key = "", ""
	return map[string]struct {
		tls  configs.TLS
		says string
	}{
		"authority":      {wrong, ".tls.ca: "},
		"name":           {misnamed, ".tls.server_name: "},
		"no certificate": {none, ".tls.cert"},
		"plain text":     {configs.TLS{}, ".tls"},
	}
}

// All pools work with a server that takes TLS only, and a user who must show a certificate. Certificates are
// exchanged under load.
func TestMySQLByTLS(t *testing.T) {
	t.Parallel()
	inRealTime(t)
	a, next := testrig.NewAuthority(t, "old authority"), testrig.NewAuthority(t, "new authority")
	onServer := copied(t, a, a.Issue())
	ours := copied(t, a, a.Issue())
	both := filepath.Join(t.TempDir(), "both.pem")
	putFile(t, both, a.File, next.File)
	putFile(t, onServer.CA, both)
	server := testrig.StartMySQL(t, testrig.OnlyTLS(&testrig.Authority{File: onServer.CA}, testrig.Pair{Cert: onServer.Cert, Key: onServer.Key}, true))
	root := server.DB(t)
	exec := func(statement string) {
		t.Helper()
		_, err := root.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("CREATE USER toc@'%' IDENTIFIED BY 'secret' REQUIRE X509")
	exec("GRANT ALL ON *.* TO toc@'%'")
	cfg := fewTables(t)
	cfg.Store.Driver, cfg.Store.MySQL.MaxOpenConns = configs.DriverMySQL, 4
	cfg.Store.MySQL.DSN = strings.Replace(server.DSN(), "root@", "toc:secret@", 1)
	cfg.Store.MySQL.TLS = ours.TLS
	require.NoError(t, app.PrintMigration(t.Context(), cfg, io.Discard))
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	advice, err := app.TablesAdvice(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, advice)
	for name, m := range mistakes(t, ours.TLS) {
		other := cfg
		other.Store.MySQL.TLS = m.tls
		_, err := app.ServerAdvice(t.Context(), other)
		require.ErrorContains(t, err, "store.mysql"+m.says, name)
		_, err = app.TablesAdvice(t.Context(), other)
		require.ErrorContains(t, err, "store.mysql"+m.says, name)
		require.ErrorContains(t, app.Migrate(t.Context(), other, nil, nil), "store.mysql"+m.says, name)
		require.ErrorContains(t, app.PrintMigration(t.Context(), other, io.Discard), "store.mysql"+m.says, name)
	}

	anybody := cfg
	anybody.Store.MySQL.DSN, anybody.Store.MySQL.TLS = server.DSN(), configs.TLS{}
	_, err = app.ServerAdvice(t.Context(), anybody)
	if isMariaDB(t, root) { // it does not say why
		require.ErrorContains(t, err, "anybody at a server with require_secure_transport, is denied like this unless store.mysql.tls is set")
	} else {
		require.ErrorContains(t, err, "store.mysql.tls.ca: "+server.Addr()+" takes TLS only; write system, or the path of a PEM file")
	}

	fired, log := newLedger(), &logbook{}
	c := run(t, cfg, app.WithProcessor("ledger", fired), app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	end := submitSteadily(t, c, 50, 2*time.Second)
	fired.await(t, 20)
	reload := "FLUSH SSL"
	if !isMariaDB(t, root) {
		reload = "ALTER INSTANCE RELOAD TLS"
	}
	putFile(t, ours.CA, both) // as in a rotation without a gap: first who is trusted, then who one is
	onServer.put(t, next.Issue())
	exec(reload)
	ours.put(t, next.Issue())
	old := connections(t, root)
	await.That(t, func() bool { return hasOthers(connections(t, root), old) }, "connections by the new certificates are made")
	before := fired.count()
	fired.await(t, before+50)
	due := end()
	fired.awaitAll(t, due)

	// The server has a certificate of an authority that the file lacks; then the file has it.
	putFile(t, ours.CA, a.File)
	for id := range connections(t, root) {
		_, _ = root.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id)) // it may have ended
	}
	awaitDegraded(t, c, `store.mysql.tls.ca: "`+ours.CA+`" lacks the authority of the certificate of `+server.Addr()+`, issued by "new authority"`)
	await.That(t, func() bool {
		return strings.Contains(log.String(), "database is out of reach") && strings.Contains(log.String(), "lacks the authority of the certificate of")
	}, "the log has it")
	require.NoError(t, os.WriteFile(ours.CA, []byte("garbage"), 0o600))
	awaitDegraded(t, c, `certificates cannot be used, those read before stay in force: store.mysql.tls.ca: "`+ours.CA+`" has no certificate in PEM form`)
	putFile(t, ours.CA, next.File)
	awaitNoTrouble(t, c, "database")
	awaitNoTrouble(t, c, "certificates")
	require.Regexp(t, `level=WARN msg="certificates cannot be re-read; the old ones stay in force" component=tls error="store.mysql.tls.ca: .*has no certificate in PEM form`, log.String())
	last := submitSpread(t, c, 20, 0, time.Second)
	requireAllOnce(t, c, cfg, fired, merged(due, last))
}

func isMariaDB(t *testing.T, db *sql.DB) bool {
	var version string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	return strings.Contains(version, "MariaDB")
}

// connections are the numbers of the connections of the user toc.
func connections(t *testing.T, db *sql.DB) map[int64]bool {
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM information_schema.PROCESSLIST WHERE user='toc'")
	require.NoError(t, err)
	defer rows.Close()
	ids := make(map[int64]bool)
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids[id] = true
	}
	require.NoError(t, rows.Err())
	return ids
}

func hasOthers(now, before map[int64]bool) bool {
	for id := range now {
		if !before[id] {
			return true
		}
	}
	return false
}

// Each kind of Redis works if its servers take TLS only and demand certificates.
func TestRedisByTLS(t *testing.T) {
	t.Parallel()
	inRealTime(t)
	a := testrig.NewAuthority(t, "authority")
	pair := a.Issue()
	only := testrig.OnlyTLS(a, pair, true)
	kinds := map[string]func(t *testing.T) (cfg configs.Config, during func(*center, configs.Config)){
		"single": func(t *testing.T) (configs.Config, func(*center, configs.Config)) {
			return fewSlots(t, testrig.StartRedis(t, only).Addr()), nil
		},
		"sentinel": func(t *testing.T) (configs.Config, func(*center, configs.Config)) {
			master, replica := testrig.StartRedis(t, only), testrig.StartRedis(t, only)
			replica.ReplicaOf(master)
			cfg := fewSlots(t, testrig.StartSentinel(t, master, only).Addr())
			cfg.Redis.Mode = configs.RedisSentinel
			return cfg, func(c *center, cfg configs.Config) {
				sentinel := sentinelOf(t, cfg)
				await.That(t, func() bool {
					list, err := sentinel.Replicas(t.Context(), cfg.Redis.Master).Result()
					return err == nil && len(list) > 0
				}, "the sentinel knows the replica")
				master.Kill()
				await.That(t, func() bool {
					addr, err := sentinel.GetMasterAddrByName(t.Context(), cfg.Redis.Master).Result()
					return err == nil && net.JoinHostPort(addr[0], addr[1]) == replica.Addr()
				}, "the replica is the master")
				awaitNoTrouble(t, c, "redis") // the nodes may have had none: they look once a second
			}
		},
		"cluster": func(t *testing.T) (configs.Config, func(*center, configs.Config)) {
			servers := testrig.StartRedisCluster(t, only)
			cfg := fewSlots(t, servers.Addrs()[0])
			cfg.Redis.Mode = configs.RedisCluster
			return cfg, func(*center, configs.Config) {
				slot := servers.SlotOf("order_close_0")
				from := servers.NodeOf(slot)
				servers.Migrate(t, slot, from, (from+1)%3)
			}
		},
	}
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, during := start(t)
			files := copied(t, a, pair)
			cfg.Redis.TLS = files.TLS
			await.Success(t, func() error { // on a busy machine a handshake may take longer than the time that it has
				_, err := app.RedisAdvice(t.Context(), cfg)
				return err
			}, "Redis answers")
			for what, m := range mistakes(t, files.TLS) {
				other := cfg
				other.Redis.TLS = m.tls
				await.That(t, func() bool {
					_, err := app.RedisAdvice(t.Context(), other)
					return err != nil && strings.Contains(err.Error(), "redis"+m.says)
				}, "the error of %s has redis%s", what, m.says)
			}

			if name == "single" { // the center starts, says what is wrong, and works once the file is right
				putFile(t, files.CA, testrig.NewAuthority(t, "another authority").File)
			}
			fired, log := newLedger(), &logbook{}
			c := run(t, cfg, app.WithProcessor("ledger", fired), app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			if name == "single" {
				submitSpread(t, c, 10, time.Hour, 2*time.Hour) // beyond the horizon
				awaitTrouble(t, c, `redis.tls.ca: "`+files.CA+`" lacks the authority of the certificate of `+cfg.Redis.Addrs[0])
				await.That(t, func() bool {
					return strings.Contains(log.String(), "Redis is out of reach") && strings.Contains(log.String(), "redis.tls.ca: ")
				}, "the log has it")
				putFile(t, files.CA, a.File)
			}
			awaitNoTrouble(t, c, "redis")
			parked := submitSpread(t, c, 100, 30*time.Minute, 40*time.Minute)
			direct := overTLS(t, cfg)
			awaitWaiting(t, cfg, direct, len(parked))
			due := submitSpread(t, c, 100, 0, time.Second)
			if during != nil {
				during(c, cfg)
			}
			more := submitSpread(t, c, 100, 0, time.Second)
			fired.awaitAll(t, merged(due, more))
			awaitNoTrouble(t, c, "redis")
		})
	}
}

// overTLS is a client of the test's own.
func overTLS(t *testing.T, cfg configs.Config) redis.UniversalClient {
	pair, err := tls.LoadX509KeyPair(cfg.Redis.TLS.Cert, cfg.Redis.TLS.Key)
	require.NoError(t, err)
	config, err := tlsclient.New("test", cfg.Redis.TLS.Files(), nil).Config("127.0.0.1")
	require.NoError(t, err)
	config.Certificates = []tls.Certificate{pair}
	opts := &redis.UniversalOptions{Addrs: cfg.Redis.Addrs, TLSConfig: config, IsClusterMode: cfg.Redis.Mode == configs.RedisCluster}
	if cfg.Redis.Mode == configs.RedisSentinel {
		opts.MasterName = cfg.Redis.Master
	}
	c := redis.NewUniversalClient(opts)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// sentinelOf is a connection to the sentinel itself.
func sentinelOf(t *testing.T, cfg configs.Config) *redis.SentinelClient {
	config, err := tlsclient.New("test", cfg.Redis.TLS.Files(), nil).Config("127.0.0.1")
	require.NoError(t, err)
	s := redis.NewSentinelClient(&redis.Options{Addr: cfg.Redis.Addrs[0], TLSConfig: config})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Nodes meet in a Consul whose agent takes HTTPS only and demands certificates. A new pair changes nothing for what runs.
func TestConsulByTLS(t *testing.T) {
	t.Parallel()
	inRealTime(t)
	a := testrig.NewAuthority(t, "authority")
	consul := testrig.StartConsul(t, testrig.OnlyTLS(a, a.Issue("server.dc1.consul"), true))
	cfg := inPatientCluster(t, consul.Addr(), "toc-tls")
	files := copied(t, a, a.Issue())
	cfg.Cluster.Consul.TLS = files.TLS
	_, err := app.ConsulAdvice(t.Context(), cfg)
	require.NoError(t, err)
	for what, m := range mistakes(t, files.TLS) {
		other := cfg
		other.Cluster.Consul.TLS = m.tls
		_, err := app.ConsulAdvice(t.Context(), other)
		require.ErrorContains(t, err, "cluster.consul"+m.says, what)
	}
	fired := newLedger()
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", fired))
	files.put(t, a.Issue())
	cfg.Node.Name = "node-2"
	nodes = append(nodes, run(t, cfg, app.WithProcessor("ledger", fired)))
	awaitShares(t, nodes)
	due := submitSpread(t, nodes[2], 60, 0, time.Second)
	fired.awaitAll(t, due)
	require.NoError(t, nodes[0].stop())
	awaitShares(t, nodes[1:]) // blocking queries answer at once
}

// Kafka has the same settings and the same errors.
func TestKafkaByTLS(t *testing.T) {
	t.Parallel()
	inRealTime(t)
	a := testrig.NewAuthority(t, "authority")
	pair := a.Issue()
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "timeouts"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	cfg := embedded(t)
	cfg.BizTypes[0].Processor = configs.ProcessorKafka
	cfg.BizTypes[0].Kafka = configs.KafkaOut{Cluster: "main", Topic: "timeouts", Key: configs.KeyBizID}
	check := func(tls configs.TLS) error {
		cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: brokers.ListenAddrs(), TLS: tls}}
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		_, err := app.KafkaAdvice(ctx, cfg)
		return err
	}
	require.NoError(t, check(configs.TLS{CA: a.File}))
	for what, m := range mistakes(t, configs.TLS{CA: a.File}) {
		if what != "no certificate" { // this broker does not ask
			require.ErrorContains(t, check(m.tls), "kafka.clusters.main"+m.says, what)
		}
	}
	cfg.Kafka.Clusters[0].TLS = configs.TLS{CA: a.File}
	c := run(t, cfg)
	submitSpread(t, c, 1, 0, time.Millisecond)
	await.Success(t, func() error {
		if n := countStatus(t, cfg, 2); n != 1 {
			return fmt.Errorf("%d processed", n)
		}
		return nil
	}, "the record is acknowledged")
}
