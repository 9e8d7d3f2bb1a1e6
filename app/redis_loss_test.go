package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// Redis loses all that it has, or its last second, while 2,000 tasks wait in it
// and fire: it is filled again from the store.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []testrig.Option
		forget  func(t *testing.T, r *testrig.PrivateRedis)
	}{
		"FLUSHALL": {forget: func(t *testing.T, r *testrig.PrivateRedis) {
			require.NoError(t, redisClient(t, r.Addr()).FlushAll(t.Context()).Err())
		}},
		"killed, and empty when it is back": {options: noFile, forget: killAndStart},
		"killed, and back with its file":    {forget: killAndStart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "killed, and empty when it is back" {
				testrig.OnlyInAll(t, "killed, and empty when it is back")
			}
			r := testrig.StartRedis(t, c.options...)
			cfg := fewSlots(t, r.Addr())
			fired := newLedger()
			center := run(t, cfg, app.WithProcessor("ledger", fired))
			due := submitSpread(t, center, 2000, 2*time.Second, 8*time.Second)
			for _, some := range []int{0, 500} {
				fired.await(t, some, await.Patience)
				c.forget(t, r)
			}
			requireAllOnce(t, center, cfg, fired, due, await.Patience)
		})
	}
}

func killAndStart(_ *testing.T, r *testrig.PrivateRedis) {
	r.Kill()
	r.Start()
}
