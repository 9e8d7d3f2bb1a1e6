package app_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// BenchmarkIdleDay is a virtual day of a center that has nothing to do.
func BenchmarkIdleDay(b *testing.B) {
	for _, mode := range []string{"scan", "redis"} {
		b.Run(mode, func(b *testing.B) {
			for b.Loop() {
				// synctest.Test wants a *testing.T.
				ok := testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "idle", F: func(t *testing.T) {
					dir := b.TempDir()
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
						cfg := configs.Default()
						cfg.Store.SQLite.Dir, cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = dir, 1, 1, 1
						cfg.Redis.Addrs = []string{configs.RedisEmbedded}
						nothing := processor.Func(func(context.Context, task.Task) error { return nil })
						c, err := app.New(cfg, app.WithoutHTTP(), app.WithBizType(configs.BizType{ID: 1, Name: "order_close", Mode: mode}, nothing))
						require.NoError(t, err)
						var pace virtual.Pace
						require.NoError(t, c.Start(wait.WithPace(t.Context(), &pace)))
						time.Sleep(10 * time.Second)
						pace.Slow(5 * time.Minute)
						time.Sleep(24 * time.Hour)
						pace.Rouse()
						require.NoError(t, c.Stop(context.Background()))
					})
				}}})
				require.True(b, ok)
			}
		})
	}
}
