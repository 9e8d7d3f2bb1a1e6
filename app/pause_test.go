package app_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// bizTypeNow is what a node says about a business type.
func bizTypeNow(t *testing.T, c *center, name string) client.BizType {
	t.Helper()
	for _, b := range c.BizTypes() {
		if b.Name == name {
			return b
		}
	}
	require.Failf(t, "no such type", "%s", name)
	return client.BizType{}
}

// What is due of a paused type stays where it is, in memory it is not, and it is not lost.
func TestPause(t *testing.T) {
	onEngines(t, pauseAndResume)
}

// onEngines runs a test with each engine on SQLite, and in `make test-all` on MariaDB, too.
func onEngines(t *testing.T, f func(t *testing.T, cfg configs.Config)) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		t.Run("scan", func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.BizTypes = slices.Clone(cfg.BizTypes) // the tests change them
			f(t, cfg)
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			r := testrig.Redis(t)
			cfg := cfg
			cfg.BizTypes = slices.Clone(cfg.BizTypes)
			cfg = onRedis(cfg, r.Addr())
			cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 4 // as fewSlots has it
			cfg.BizTypes[0].Topic = r.Prefix() + "order_close"
			if cfg.Store.Driver == configs.DriverSQLite {
				cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
			} else {
				cfg = onMySQL(t, cfg)
			}
			f(t, cfg)
		})
	})
}

func pauseAndResume(t *testing.T, cfg configs.Config) {
	other := cfg.BizTypes[0]
	other.ID, other.Name, other.Topic = 2, "mail", other.Topic+"mail"
	cfg.BizTypes = append(cfg.BizTypes, other)
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	submit := func(bizType string, bizID uint64, in time.Duration) uint64 {
		got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: bizType, BizID: bizID, ActionTime: time.Now().Add(in)})
		require.NoError(t, err)
		return uint64(got.Task.JobID)
	}
	var ids []uint64
	var list []client.Submit
	for i := range uint64(80) { // half of them are in memory at the pause
		list = append(list, client.Submit{BizType: "order_close", BizID: i, ActionTime: time.Now().Add(1200*time.Millisecond + time.Duration(i%2)*time.Second)})
	}
	stored, err := c.Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	for _, s := range stored {
		require.Nil(t, s.Err)
		ids = append(ids, uint64(s.JobID))
	}
	early := submit("mail", 2, 500*time.Millisecond)
	fired.awaitAll(t, map[uint64]time.Time{early: {}}, await.Patience) // a tick has read some of the others into memory

	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	got, err := c.Pause(t.Context(), "order_close", client.Pause{Reason: "the shop is down", Until: until})
	require.NoError(t, err)
	ran := func() (n int) {
		for _, id := range ids {
			n += min(1, len(fired.runs(id)))
		}
		return n
	}
	before := ran() // on a busy machine
	require.Equal(t, "the shop is down", got.Paused.Reason)
	require.Equal(t, "embedder", got.Paused.By)
	require.Equal(t, until, got.Paused.Until.Time())
	ids = append(ids, submit("order_close", 41, 0), submit("order_close", 42, time.Second))
	cancelled, moved := submit("order_close", 43, time.Second), submit("order_close", 44, time.Second)
	mail := submit("mail", 1, time.Second)
	fired.awaitAll(t, map[uint64]time.Time{mail: {}}, await.Patience)
	require.NoError(t, c.Tasks().Cancel(t.Context(), cancelled))
	_, err = c.Tasks().Reschedule(t.Context(), moved, client.Change{ActionTime: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	ticksPass(t, c, "mail", fired)
	require.Equal(t, before, ran(), "only the other type's")
	now := bizTypeNow(t, c, "order_close")
	require.Zero(t, now.QueueDepth+now.Running, "nothing of it is in memory")
	await.That(t, func() bool {
		now = bizTypeNow(t, c, "order_close")
		return now.Overdue >= 82-before && now.OldestOverdue > 2
	}, "what it holds up is shown")
	why, err := c.Tasks().Why(t.Context(), ids[len(ids)-1])
	require.NoError(t, err)
	require.Contains(t, strings.Join(why.Because, "\n"), "order_close is paused by embedder since ")
	require.Equal(t, until, why.Next.Time())

	// A restart changes nothing.
	require.NoError(t, c.stop())
	c = run(t, cfg, app.WithProcessor("ledger", fired))
	ticksPass(t, c, "mail", fired)
	require.Equal(t, before, ran())

	resumed, err := c.Resume(t.Context(), "order_close")
	require.NoError(t, err)
	require.Nil(t, resumed.Paused)
	audit, err := c.Tasks().Audit(t.Context(), client.Audit{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, "resume", audit.Entries[0].Action)
	require.Equal(t, "order_close", audit.Entries[1].Target)
	require.Contains(t, audit.Entries[1].Detail, "the shop is down")
	await.That(t, func() bool { return ran() == len(ids) }, "all have fired")
	ticksPass(t, c, "order_close", fired)
	require.Empty(t, fired.runs(cancelled))
	require.Empty(t, fired.runs(moved))
	for _, id := range ids {
		require.Len(t, fired.runs(id), 1)
	}
}

func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	fired := newLedger()
	c := run(t, fewTables(t), app.WithProcessor("ledger", fired))
	until := time.Now().Add(3 * time.Second)
	_, err := c.Pause(t.Context(), "order_close", client.Pause{Until: until})
	require.NoError(t, err)
	got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 1, ActionTime: time.Now()})
	require.NoError(t, err)
	fired.await(t, 1, await.Patience)
	require.False(t, fired.runs(uint64(got.Task.JobID))[0].Before(until))
}

func TestPauseIsRefused(t *testing.T) {
	t.Parallel()
	c := run(t, fewTables(t), app.WithProcessor("ledger", newLedger()))
	_, err := c.Pause(t.Context(), "nobody", client.Pause{})
	require.ErrorIs(t, err, task.ErrNotFound)
	var field *task.FieldError
	_, err = c.Pause(t.Context(), "order_close", client.Pause{Until: time.Now().Add(-time.Second)})
	require.ErrorAs(t, err, &field)
	require.Equal(t, "until", field.Field)
	_, err = c.Pause(t.Context(), "order_close", client.Pause{Reason: fmt.Sprintf("%256d", 0)})
	require.ErrorAs(t, err, &field)
	require.Equal(t, "reason", field.Field)
	require.Nil(t, bizTypeNow(t, c, "order_close").Paused)
}

// Over HTTP, and the body may be left out.
func TestPauseOverHTTP(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.HTTP.Tokens = []string{"let-me-in-0123456"}
	c := run(t, cfg, app.WithProcessor("ledger", newLedger()))
	api := askHTTP(c)
	got, err := api.Pause(t.Context(), "order_close", client.Pause{Reason: "why"})
	require.NoError(t, err)
	require.Equal(t, "api", got.Paused.By)
	got, err = api.Resume(t.Context(), "order_close")
	require.NoError(t, err)
	require.Nil(t, got.Paused)
	_, err = api.Pause(t.Context(), "nobody", client.Pause{})
	require.ErrorIs(t, err, task.ErrNotFound)
	_, err = api.Pause(t.Context(), "order_close", client.Pause{Until: time.Now().Add(-time.Hour)})
	var field *task.FieldError
	require.True(t, errors.As(err, &field), "%v", err)
	require.Equal(t, "until", field.Field)
}

// Three nodes: a pause at one is in force on all, one by SQL in one database too, and with Redis away none of it starts.
func TestPauseInACluster(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	r := testrig.StartRedis(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix())
	cfg.Redis.Addrs = []string{r.Addr()}
	cfg.Redis.OutageAfter = time.Second
	cfg.BizTypes[0].Mode = configs.ModeRedis
	mail := cfg.BizTypes[0]
	mail.ID, mail.Name, mail.Processor = 2, "mail", "mail"
	cfg.BizTypes = append(cfg.BizTypes, mail)
	fired, sent := newLedger(), newLedger()
	nodes := runNodes(t, cfg, 3, app.WithProcessor("ledger", fired), app.WithProcessor("mail", sent))
	submit := func() {
		for i := range uint64(60) {
			_, err := nodes[0].Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: i, ActionTime: time.Now().Add(500 * time.Millisecond)})
			require.NoError(t, err)
		}
	}
	paused := func(want bool) {
		t.Helper()
		await.That(t, func() bool {
			for _, n := range nodes {
				if (bizTypeNow(t, n, "order_close").Paused != nil) != want {
					return false
				}
			}
			return true
		}, "all nodes agree about the pause")
	}
	_, err := askHTTP(nodes[1]).Pause(t.Context(), "order_close", client.Pause{})
	require.NoError(t, err)
	paused(true)
	submit()
	ticksPass(t, nodes[0], "mail", sent)
	require.Zero(t, fired.count())
	for _, n := range nodes { // each of them tells of all
		await.That(t, func() bool {
			list, err := askHTTP(n).BizTypes(t.Context())
			return err == nil && list[0].Name == "order_close" && list[0].Overdue == 60 && list[0].OldestOverdue > 2 && bizTypeNow(t, n, "order_close").Overdue < 60
		}, "each node counts all that is overdue")
	}
	// The scan engine takes over, and leaves them alone too.
	r.Kill()
	ticksPass(t, nodes[0], "mail", sent)
	require.Zero(t, fired.count())

	db, err := sql.Open("mysql", fmt.Sprintf(cfg.Store.MySQL.DSN, cfg.Store.Databases-1))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "UPDATE toc_control SET paused=0")
	require.NoError(t, err)
	paused(false)
	fired.await(t, 60, await.Patience)
}

// With Redis, Consul or a database away a paused type stays paused, and another one goes on.
func TestAPauseHoldsWhileServersAreAway(t *testing.T) {
	t.Parallel()
	testrig.OnlyInAll(t, "TestPauseInACluster, with Redis away, and TestWhatBreaksIsTold for the faults")
	consul, redis, half := testrig.StartConsul(t), testrig.StartRedis(t), testrig.StartMySQL(t)
	cfg := fewTables(t)
	cfg.Store.Driver = configs.DriverMySQL
	shared := testrig.MySQL(t).DSN()
	for d := range cfg.Store.Databases { // the odd ones are on the server that goes away
		dsn := []string{shared, half.DSN()}[d%2]
		cfg.Store.MySQL.DSNs = append(cfg.Store.MySQL.DSNs, fmt.Sprintf(dsn, d))
	}
	cfg.Store.MySQL.MaxOpenConns = 4
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	cfg.Cluster.Provider, cfg.Cluster.OnConsulLoss = configs.ProviderConsul, configs.ConsulLossKeep
	cfg.Cluster.Consul.Address = consul.Addr()
	cfg.HTTP.Tokens = []string{"let-me-in-0123456"}
	cfg.Redis.Addrs, cfg.Redis.OutageAfter = []string{redis.Addr()}, time.Second
	cfg.BizTypes[0].Mode = configs.ModeRedis
	mail := cfg.BizTypes[0]
	mail.ID, mail.Name, mail.Processor = 2, "mail", "mail"
	cfg.BizTypes = append(cfg.BizTypes, mail)
	held, sent := newLedger(), newLedger()
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", held), app.WithProcessor("mail", sent))
	_, err := nodes[0].Pause(t.Context(), "order_close", client.Pause{})
	require.NoError(t, err)
	await.That(t, func() bool { return bizTypeNow(t, nodes[1], "order_close").Paused != nil }, "the other node knows of the pause")
	submit := func(bizType string, n, step int) {
		var list []client.Submit
		for i := range n {
			list = append(list, client.Submit{BizType: bizType, BizID: uint64(i * step), ActionTime: time.Now().Add(300 * time.Millisecond)})
		}
		stored, err := nodes[0].Tasks().SubmitBatch(t.Context(), list)
		require.NoError(t, err)
		for _, s := range stored {
			require.Nil(t, s.Err)
		}
	}
	submit("order_close", 40, 1)
	mails := 0
	for _, away := range []struct {
		server interface {
			Kill()
			Start()
		}
		reason string
	}{{redis, "redis"}, {consul, "consul"}, {half, "database 1"}} {
		away.server.Kill()
		for _, n := range nodes {
			awaitTrouble(t, n, away.reason)
		}
		submit("mail", 20, 2)
		mails += 20
		sent.await(t, mails, await.Patience)
		ticksPass(t, nodes[0], "mail", sent)
		mails++
		require.Zero(t, held.count(), away.reason)
		away.server.Start()
		for _, n := range nodes {
			awaitNoTrouble(t, n, away.reason)
		}
	}
	require.Zero(t, held.count())
	_, err = nodes[1].Resume(t.Context(), "order_close")
	require.NoError(t, err)
	held.await(t, 40, await.Patience)
}
