package app_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// A business type that the program brings stays when the file's types are read again, takes the place of one of the
// file with its name, and has the defaults where it says nothing.
func TestWithBizType(t *testing.T) {
	t.Parallel()
	ran := make(chan task.Task, 1)
	ours := app.WithBizType(configs.BizType{ID: 9, Name: "ours", Workers: 2}, processor.Func(func(_ context.Context, row task.Task) error {
		ran <- row
		return nil
	}))
	cfg := fewTables(t)
	cfg.BizTypes[0].Name, cfg.BizTypes[0].Processor = "ours", "log"
	file := filepath.Join(cfg.Store.SQLite.Dir, "toc.yaml")
	put := func(types string) { require.NoError(t, os.WriteFile(file, []byte(types), 0o600)) }
	put("biz_types: [{id: 1, name: ours, processor: log}]")
	log := &logbook{}
	c := run(t, cfg, ours, app.WithConfigFile(file, nil), app.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	fires := func() {
		t.Helper()
		_, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "ours", BizID: 1, Now: true})
		require.NoError(t, err)
		require.EqualValues(t, 9, await.Receive(t, ran, "the task runs: %s", log).BizType)
	}
	fires()
	put("biz_types: [{id: 1, name: theirs, processor: log}]")
	c.Reload()
	await.That(t, func() bool {
		_, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "theirs", BizID: 1, Delay: time.Hour})
		return err == nil
	}, "the new file is in force")
	fires()

	_, err := app.New(cfg, ours, ours)
	require.ErrorContains(t, err, `biz_types[1].id`)
	_, err = app.New(cfg, app.WithBizType(configs.BizType{ID: 9, Name: "ours", Processor: "other"}, nil))
	require.ErrorContains(t, err, "leave Processor empty")
}

// Zero means zero in a type that was made by DefaultBizType, and the default in a literal. The types of configs.Default give way.
func TestWithBizTypeOfTheDefaults(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Store.SQLite.Dir, cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = t.TempDir(), 1, 1, 0
	var runs [2]atomic.Int64
	fails := func(i int) processor.Processor {
		return processor.Func(func(context.Context, task.Task) error { runs[i].Add(1); return errors.New("no") })
	}
	once := configs.DefaultBizType()
	once.ID, once.Name, once.MaxRetries = 1, "once", 0
	c := run(t, cfg, app.WithoutHTTP(), app.WithBizType(once, fails(0)),
		app.WithBizType(configs.BizType{ID: 2, Name: "often", Backoff: configs.Backoff{Min: time.Millisecond, Max: time.Millisecond}}, fails(1)))
	for _, bizType := range []string{"once", "often"} {
		s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: bizType, BizID: 1, Now: true})
		require.NoError(t, err)
		await.That(t, func() bool {
			row, err := c.Tasks().Get(t.Context(), uint64(s.Task.JobID))
			return err == nil && row.Status == "dead"
		}, "it is dead")
	}
	require.EqualValues(t, 1, runs[0].Load())
	require.EqualValues(t, 17, runs[1].Load())
	require.Len(t, c.BizTypes(), 2)
}

// Start returns once tasks are taken, or with the reason why they are not. Stop drains, and says so if ctx does not give
// it the time.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	running, end := make(chan struct{}), make(chan struct{})
	slow := processor.Func(func(context.Context, task.Task) error {
		close(running)
		<-end
		return nil
	})
	c, err := app.New(cfg, app.WithProcessor("ledger", slow), app.WithLogger(testLogger(t)))
	require.NoError(t, err)
	require.ErrorContains(t, c.Stop(t.Context()), "was not started")
	require.NoError(t, c.Start(t.Context()))
	second, err := app.New(cfg, app.WithProcessor("ledger", slow), app.WithLogger(testLogger(t)))
	require.NoError(t, err)
	require.ErrorContains(t, second.Start(t.Context()), "in use")

	row, err := c.Tasks().Submit(t.Context(), api.Submit{BizType: "order_close", BizID: 1, Now: true})
	require.NoError(t, err)
	<-running
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Stop(hasty), context.DeadlineExceeded)
	close(end)
	require.NoError(t, c.Stop(t.Context()))

	again, err := app.New(cfg, app.WithProcessor("ledger", slow), app.WithLogger(testLogger(t)))
	require.NoError(t, err)
	require.NoError(t, again.Start(t.Context()))
	got, err := again.Tasks().Get(t.Context(), uint64(row.Task.JobID))
	require.NoError(t, err)
	require.Equal(t, task.Processed.String(), got.Status)
	require.NoError(t, again.Stop(t.Context()))
}

func TestMistakesOfAProgramAreRefused(t *testing.T) {
	t.Parallel()
	none := processor.Func(func(context.Context, task.Task) error { return nil })
	cfg := fewTables(t)
	cfg.BizTypes = nil
	_, err := app.New(cfg, app.WithBizType(configs.BizType{ID: 9, Name: "nine"}, nil))
	require.ErrorContains(t, err, "business type nine: its processor is nil")
	_, err = app.New(cfg, app.WithMiddleware(nil))
	require.ErrorContains(t, err, "a middleware is nil")

	center, err := app.New(cfg, app.WithoutHTTP(), app.WithBizType(configs.BizType{ID: 9, Name: "nine"}, none))
	require.NoError(t, err)
	require.NoError(t, center.Start(t.Context()))
	require.ErrorContains(t, center.Start(t.Context()), "was started already")
	require.NoError(t, center.Stop(t.Context()))
}
