package migrations_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

// TestEightDatabases makes a cluster's databases with few tables. The test of the
// store's full layout makes 1024 in each: that takes long enough to do it once.
func TestEightDatabases(t *testing.T) {
	layout := sharding.Layout{Databases: 8, TablesPerDatabase: 16, Partitions: 64}
	cfg := mysqlPlace(t).config(t, layout)
	last := 0
	cfg.Progress = func(done, _ int) { last = done }

	began := time.Now()
	require.NoError(t, migrations.Up(t.Context(), cfg))
	t.Logf("8x16 tables created in %s", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 128, last)

	began = time.Now()
	require.NoError(t, migrations.Up(t.Context(), cfg))
	t.Logf("repeated in %s", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	for _, d := range cfg.Databases {
		require.NoError(t, migrations.Verify(t.Context(), cfg.Dialect, layout, d))
	}
	t.Logf("8 databases verified in %s", time.Since(began).Round(time.Millisecond))

	for _, biz := range []uint64{0, 127, 1<<64 - 1} {
		shard := layout.Shard(biz)
		job, err := sharding.JobID(time.Now(), shard, sharding.HandWorker)
		require.NoError(t, err)
		exec(t, cfg.Databases[layout.Database(shard)].DB,
			"INSERT IGNORE INTO "+sharding.TableName(layout.Table(shard))+" (job_id, biz_id, biz_type, action_time) VALUES (?, ?, 1, UTC_TIMESTAMP(3))", job, biz)
	}
}

func TestWaitsForTheLockAndGivesUpWithTheContext(t *testing.T) {
	p := mysqlPlace(t)
	cfg := p.config(t, small)
	cfg.Databases = cfg.Databases[:1]
	other, err := cfg.Databases[0].DB.Conn(t.Context())
	require.NoError(t, err)
	defer other.Close()
	_, err = other.ExecContext(t.Context(), "DO GET_LOCK(CONCAT('toc_migrate:', DATABASE()), 10)")
	require.NoError(t, err)

	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	cfg.Logger = onLog("waiting for another migration to end", giveUp)
	require.ErrorIs(t, migrations.Up(ctx, cfg), context.Canceled)
	require.Empty(t, contents(t, p.dialect, cfg.Databases[0].DB))

	cfg.Logger = onLog("waiting for another migration to end", func() {
		_, err := other.ExecContext(t.Context(), "DO RELEASE_LOCK(CONCAT('toc_migrate:', DATABASE()))")
		require.NoError(t, err)
	})
	require.NoError(t, migrations.Up(t.Context(), cfg))

	var free bool
	require.NoError(t, other.QueryRowContext(t.Context(), "SELECT IS_FREE_LOCK(CONCAT('toc_migrate:', DATABASE()))").Scan(&free))
	require.True(t, free, "the lock is given back")
}

// TestStoppedBeforeTheFirstRow: goose's own table is there, but empty.
func TestStoppedBeforeTheFirstRow(t *testing.T) {
	cfg := mysqlPlace(t).config(t, small)
	exec(t, cfg.Databases[0].DB, `CREATE TABLE toc_schema_version (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
		version_id bigint NOT NULL, is_applied boolean NOT NULL, tstamp datetime NULL DEFAULT CURRENT_TIMESTAMP)`)
	require.NoError(t, migrations.Up(t.Context(), cfg))
	require.NoError(t, migrations.Verify(t.Context(), cfg.Dialect, small, cfg.Databases[0]))
}

func TestOneConnectionIsNotEnough(t *testing.T) {
	cfg := mysqlPlace(t).config(t, small)
	cfg.Databases[3].DB.SetMaxOpenConns(1)
	require.EqualError(t, migrations.Up(t.Context(), cfg), "toc_3: a migration needs two connections, its handle allows one")
}

func TestTwoConnectionsAreEnough(t *testing.T) {
	cfg := mysqlPlace(t).config(t, small)
	for _, d := range cfg.Databases {
		d.DB.SetMaxOpenConns(2)
	}
	require.NoError(t, migrations.Up(t.Context(), cfg))
}

func TestCreateDatabase(t *testing.T) {
	srv := testrig.MySQL(t)
	root := srv.DB(t)
	dsn := func(name string) *mysql.Config { return parse(t, "root@tcp("+srv.Addr()+")/"+name) }

	name := srv.Prefix() + "a-b"
	require.NoError(t, migrations.CreateDatabase(t.Context(), dsn(name)))
	require.NoError(t, migrations.CreateDatabase(t.Context(), dsn(name)), "once more is fine")
	require.Equal(t, []string{"utf8mb4"}, texts(t, root,
		"SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = '"+name+"'"))

	for _, bad := range []string{"", "a`b", "a b", "a;b", "toc_%25d", strings.Repeat("x", 65)} {
		require.ErrorContains(t, migrations.CreateDatabase(t.Context(), dsn(bad)), "database name", bad)
	}
}

func TestCreateDatabaseByAUserWithoutTheRight(t *testing.T) {
	srv := testrig.MySQL(t)
	root := srv.DB(t)
	name, user := srv.Prefix()+"0", strings.TrimSuffix(srv.Prefix(), "_")
	exec(t, root, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'")
	t.Cleanup(func() {
		_, err := root.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+user+"@'%'")
		require.NoError(t, err)
	})
	dsn := parse(t, fmt.Sprintf("%s:secret@tcp(%s)/%s", user, srv.Addr(), name))
	require.ErrorContains(t, migrations.CreateDatabase(t.Context(), dsn), "create database "+name)

	exec(t, root, "CREATE DATABASE "+name)
	exec(t, root, "GRANT ALL ON "+name+".* TO "+user+"@'%'")
	require.NoError(t, migrations.CreateDatabase(t.Context(), dsn), "somebody else made it")
}
