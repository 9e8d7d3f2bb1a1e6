package app_test

import (
	"testing"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
)

// A thousand tasks, some of them beyond the next tick: each fires once, none before its time, by the scanner and by the Redis inside the process.
func TestEmbeddedFiresEachTaskOnceAndNoneEarly(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]configs.Config{"scan": fewTables(t), "redis": fewSlots(t, configs.RedisEmbedded)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Store.SQLite.Dir = t.TempDir()
			fired := newLedger()
			c := run(t, cfg, app.WithProcessor("ledger", fired))
			requireAllOnce(t, c, cfg, fired, submitSpread(t, c, 1000, 500*time.Millisecond, 3*time.Second))
		})
	}
}
