package app_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// pair is a primary and a replica, and the line by which a center reaches one of them. The center's user may write to a server
// that is read-only.
type pair struct {
	*testrig.ReplicatedMySQL
	line *testrig.Proxy
	cfg  configs.Config // by the line
}

func newPair(t *testing.T) *pair {
	inRealTime(t)
	servers := testrig.StartReplicatedMySQL(t, testrig.BufferPool("64M"))
	p := &pair{servers, testrig.StartProxy(t, servers.Addr()), fewTables(t)}
	p.cfg.Store.Driver = configs.DriverMySQL
	p.cfg.Store.MySQL.MaxOpenConns = 4
	p.cfg.Store.MySQL.DSN = strings.Replace(servers.DSN(), servers.Addr(), p.line.Addr(), 1)
	require.NoError(t, app.Migrate(t.Context(), p.cfg, nil, nil))
	return p
}

// setReadOnly changes the primary.
func (p *pair) setReadOnly(t *testing.T, on int) {
	t.Helper()
	_, err := p.DB(t).ExecContext(t.Context(), fmt.Sprintf("SET GLOBAL read_only=%d", on))
	require.NoError(t, err)
}

// submit submits tasks of both databases, all of which must be stored, and returns their ids.
func (p *pair) submit(t *testing.T, c *center, n int, delay time.Duration) (ids []uint64) {
	t.Helper()
	list := make([]api.Submit, n)
	for i := range list {
		list[i] = api.Submit{BizType: "order_close", BizID: uint64(i), Delay: delay, Now: true}
	}
	results, err := c.Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	for _, r := range results {
		require.Nil(t, r.Err)
		ids = append(ids, uint64(r.JobID))
	}
	return ids
}

// makeDue makes all pending tasks due, by hand and on the primary, whether it is read-only or not.
func (p *pair) makeDue(t *testing.T) {
	t.Helper()
	for d := range p.cfg.Store.Databases {
		for table := range p.cfg.Store.TablesPerDatabase {
			_, err := p.DB(t).ExecContext(t.Context(), fmt.Sprintf("UPDATE %s%d.timeout_task_%04d SET action_time=UTC_TIMESTAMP(3) WHERE status=0", p.Prefix(), d, table))
			require.NoError(t, err)
		}
	}
}

// isFound reports what the center answers about a task.
func isFound(t *testing.T, c *center, of uint64) bool {
	_, err := c.Tasks().Get(t.Context(), of)
	if err != nil && !errors.Is(err, task.ErrUnavailable) { // of a connection that ends
		require.ErrorIs(t, err, task.ErrNotFound)
	}
	return err == nil
}

// A planned fail-over to a replica that has every commit: the center writes to no server that is read-only, though its user may,
// fires nothing meanwhile, and then fires all.
func TestFailOverToAReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	fired := newLedger()
	c := run(t, p.cfg, app.WithProcessor("ledger", fired))
	const n = 20
	far := p.submit(t, c, n, time.Hour)
	p.CatchUp()
	p.Lag()
	far = append(far, p.submit(t, c, 1, time.Hour)...)
	last := far[n]

	// The old primary.
	p.setReadOnly(t, 1)
	p.awaitReadOnly(t, c)
	p.makeDue(t)
	p.isLeftAlone(t, c, p.PrivateMySQL)
	require.True(t, isFound(t, c, last))

	// A replica that lags answers look-ups as it is.
	p.line.Turn(p.Replica.Addr())
	await.That(t, func() bool { return !isFound(t, c, last) }, "the center reads the replica")
	p.isLeftAlone(t, c, p.Replica)
	p.Follow()
	p.CatchUp()
	await.That(t, func() bool { return isFound(t, c, last) }, "the replica has it")
	require.Zero(t, fired.count())

	old := p.Commits(p.PrivateMySQL)
	p.Promote()
	awaitNoTrouble(t, c, "read-only")
	fired.await(t, len(far))
	more := p.submit(t, c, n, 0)
	fired.await(t, len(far)+n)
	require.NoError(t, c.stop())
	for _, one := range slices.Concat(far, more) {
		require.Len(t, fired.runs(one), 1)
	}
	require.Equal(t, len(far)+n, countStatus(t, p.cfg, task.Processed))
	require.Equal(t, old, p.Commits(p.PrivateMySQL))
}

// awaitReadOnly waits until the center shows that it uses no database.
func (p *pair) awaitReadOnly(t *testing.T, c *center) {
	t.Helper()
	await.That(t, func() bool {
		_, degraded := readiness(t, c)
		return strings.Contains(degraded, "database 0 is read-only") && strings.Contains(degraded, "database 1 is read-only")
	}, "/readyz shows read-only databases")
}

// isLeftAlone checks that the center, which has found the server to be read-only, changes nothing on it.
func (p *pair) isLeftAlone(t *testing.T, c *center, server *testrig.PrivateMySQL) {
	t.Helper()
	before := p.Commits(server)
	for biz := range uint64(2) {
		_, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: biz, Now: true})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.ErrorContains(t, err, "read-only")
	}
	time.Sleep(2 * time.Second) // real time: two ticks of the scanner and of the keeper of the databases
	require.Equal(t, before, p.Commits(server))
	p.awaitReadOnly(t, c)
}

// A primary that dies. What its replica lacks is lost: acknowledged tasks, and outcomes, whose tasks run again.
func TestFailOverAfterACrash(t *testing.T) {
	t.Parallel()
	t.Run("asynchronous", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		fired := newLedger()
		start, goOn := make(chan struct{}), make(chan struct{})
		fired.answer = func(task.Task) error { close(start); <-goOn; fired.answer = nil; return nil }
		c := run(t, p.cfg, app.WithProcessor("ledger", fired))
		copied := p.submit(t, c, 10, time.Hour)
		ran := p.submit(t, c, 1, 0)[0]
		await.Receive(t, start, "the task runs")
		p.CatchUp()
		p.Lag()
		close(goOn)
		awaitRows(t, p.cfg, task.Processed, 1)
		lost := p.submit(t, c, 10, time.Hour)

		p.failOver(t, c)
		for _, one := range lost {
			require.False(t, isFound(t, c, one))
		}
		for _, one := range copied {
			require.True(t, isFound(t, c, one))
		}
		await.That(t, func() bool { return len(fired.runs(ran)) == 2 }, "the task without an outcome runs again")
		p.submit(t, c, 10, 0)
		fired.await(t, 11)
	})
	t.Run("semi-synchronous", func(t *testing.T) {
		t.Parallel()
		testrig.OnlyInAll(t, "the server's own promise; TestFailOverAfterACrash/asynchronous has the rest")
		p := newPair(t)
		p.SemiSync(time.Hour)
		c := run(t, p.cfg, app.WithProcessor("ledger", newLedger()))
		acknowledged := p.submit(t, c, 200, time.Hour)
		p.failOver(t, c)
		for _, one := range acknowledged {
			require.True(t, isFound(t, c, one))
		}
	})
	t.Run("semi-synchronous and not in force", func(t *testing.T) {
		t.Parallel()
		testrig.OnlyInAll(t, "TestReport of package mysqlsession, with what the servers say")
		p := newPair(t)
		p.SemiSync(time.Millisecond)
		p.Lag()
		_, err := p.DB(t).ExecContext(t.Context(), "CREATE DATABASE other")
		require.NoError(t, err) // it has waited in vain
		c := run(t, p.cfg, app.WithProcessor("ledger", newLedger()))
		awaitTrouble(t, c, "semi-synchronous replication is enabled and not in force")
	})
}

// failOver kills the primary and makes the replica the new one.
func (p *pair) failOver(t *testing.T, c *center) {
	t.Helper()
	p.Kill()
	p.line.Turn(p.Replica.Addr())
	p.Promote()
	await.That(t, func() bool {
		_, degraded := readiness(t, c)
		return !strings.Contains(degraded, "database")
	}, "the center uses the new primary")
}
