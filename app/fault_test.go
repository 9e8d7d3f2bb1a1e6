package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// One database is killed: the tasks of the others fire, its own fire when it is back.
func TestOneDatabaseDownLeavesTheOthersAtWork(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase = 4, 1
	shared, private := testrig.MySQL(t), testrig.StartMySQL(t, testrig.BufferPool("64M"))
	cfg.Store.Driver = configs.DriverMySQL
	cfg.Store.MySQL.MaxOpenConns = 4
	const down = 3
	for d := range cfg.Store.Databases {
		server := shared.DSN()
		if d == down {
			server = private.DSN()
		}
		cfg.Store.MySQL.DSNs = append(cfg.Store.MySQL.DSNs, strings.Replace(server, "%d", fmt.Sprint(d), 1))
	}
	require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil))
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))

	submit := func(bizID uint64, in time.Duration) (task.Task, error) {
		s, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: bizID, When: intake.In(in)})
		return s.Task, err
	}
	// Some tasks of the database that will go are in the store, and in memory.
	theirs := map[uint64]time.Time{}
	for i := range 20 {
		task, err := submit(uint64(i*cfg.Store.Databases+down), 1500*time.Millisecond)
		require.NoError(t, err)
		theirs[task.JobID] = task.ActionTime
	}
	private.Kill()
	killed := time.Now()

	others := map[uint64]time.Time{}
	for bizID := range uint64(100) {
		task, err := submit(bizID, time.Second+time.Duration(rand.Int64N(int64(2*time.Second))))
		if bizID%uint64(cfg.Store.Databases) == down {
			require.ErrorContains(t, err, "database 3")
			continue
		}
		require.NoError(t, err)
		others[task.JobID] = task.ActionTime
	}
	fired.awaitAll(t, others)
	for id := range theirs {
		await.That(t, func() bool {
			why, err := c.Tasks().Why(t.Context(), id)
			return err == nil && why.State == "unknown" && strings.Contains(strings.Join(why.Because, "\n"), "database 3 is out of reach or hangs for ")
		}, "its database is named")
		break
	}
	late, twice := fired.lateness(t, others)
	require.Zero(t, twice)
	t.Log("three of four databases: lateness", percentiles(late))

	private.Start()
	fired.awaitAll(t, theirs)
	for id, due := range theirs {
		if due.Before(killed) { // on a busy machine: it may have run, and its outcome is lost with the database
			delete(theirs, id)
		}
	}
	_, twice = fired.lateness(t, theirs)
	require.Zero(t, twice)
	require.NoError(t, c.stop())
}

// biz_types are re-read from the file under load: a changed lane loses nothing
// and doubles nothing, a new one works, a bad file changes nothing.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	file := filepath.Join(t.TempDir(), "toc.yaml")
	write := func(c configs.Config) {
		t.Helper()
		require.NoError(t, os.WriteFile(file+".new", []byte(c.String()), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(cfg)
	cfg, err := configs.Load(file, nil)
	require.NoError(t, err)
	fired := newLedger()
	places := make(chan struct{}, 1000) // of the tasks that have not fired
	fired.answer = func(t task.Task) error {
		if t.BizType == 1 {
			<-places
		}
		return nil
	}
	c := run(t, cfg, app.WithProcessor("ledger", fired), app.WithConfigFile(file, nil))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	due := map[uint64]time.Time{}
	submitted := make(chan map[uint64]time.Time, 1)
	go func() {
		mine := map[uint64]time.Time{}
		defer func() { submitted <- mine }()
		for ctx.Err() == nil {
			requests := make([]intake.Submit, 20)
			for i := range requests {
				select {
				case places <- struct{}{}: // one more for one that has fired
				case <-ctx.Done():
					return
				}
				requests[i] = intake.Submit{BizType: "order_close", BizID: rand.Uint64(), When: intake.In(time.Duration(rand.Int64N(int64(time.Second))))}
			}
			for _, s := range c.Desk().SubmitBatch(t.Context(), requests) {
				if s.Err == nil {
					mine[s.Task.JobID] = s.Task.ActionTime
				} else {
					<-places
				}
			}
		}
	}()
	for i := range 8 {
		changed := cfg
		changed.BizTypes = append([]configs.BizType(nil), cfg.BizTypes...)
		changed.BizTypes[0].Workers = 1 + i
		write(changed)
		c.Reload()
		fired.await(t, fired.count()+50) // in the middle of firing
	}
	added := cfg
	second := cfg.BizTypes[0]
	second.ID, second.Name, second.Topic = 2, "coupon_expire", "coupon_expire"
	added.BizTypes = append(append([]configs.BizType(nil), cfg.BizTypes...), second)
	write(added)
	c.Reload()
	await.That(t, func() bool {
		s, err := c.Desk().Submit(t.Context(), intake.Submit{BizType: "coupon_expire", BizID: 1, When: intake.In(0)})
		if err == nil {
			due[s.Task.JobID] = s.Task.ActionTime
		}
		return err == nil
	}, "the new biz_type is taken in")

	require.NoError(t, os.WriteFile(file, []byte("biz_types: [{id: 1, name: broken, mode: nonsense}]\n"), 0o600))
	c.Reload()
	fired.await(t, fired.count()+50)
	cancel()
	for id, at := range <-submitted {
		due[id] = at
	}
	fired.awaitAll(t, due)
	_, err = c.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 1, When: intake.In(time.Hour)})
	require.NoError(t, err, "a bad file must change nothing")
	require.NoError(t, c.stop())
	_, twice := fired.lateness(t, due)
	require.Zero(t, twice)
	t.Logf("%d tasks under 9 reloads, lost 0, twice 0", len(due))
}
