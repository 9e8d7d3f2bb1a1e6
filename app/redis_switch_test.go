package app_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// A business type is switched between the engines again and again under load:
// nothing is lost, nothing runs twice. TOC_TEST_SWITCHES sets how often, 10 if
// it is not there.
func TestSwitchesOfTheEngineUnderLoad(t *testing.T) {
	t.Parallel()
	switches := 10
	if s := os.Getenv("TOC_TEST_SWITCHES"); s != "" {
		var err error
		switches, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	cfg := fewSlots(t, testrig.StartRedis(t).Addr())
	file := filepath.Join(t.TempDir(), "toc.yaml")
	write := func(mode string) {
		t.Helper()
		changed := cfg
		changed.BizTypes = append([]configs.BizType(nil), cfg.BizTypes...)
		changed.BizTypes[0].Mode = mode
		require.NoError(t, os.WriteFile(file+".new", []byte(changed.String()), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(configs.ModeRedis)
	cfg, err := configs.Load(file, nil)
	require.NoError(t, err)
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired), app.WithConfigFile(file, nil))

	end := submitSteadily(t, c, 500, 3*time.Second)
	start := time.Now()
	for i := range switches {
		mode := []string{configs.ModeScan, configs.ModeRedis}[i%2]
		write(mode)
		c.Reload()
		await.That(t, func() bool { b, _ := c.Desk().Types().ByID(1); return b.Mode == task.Mode(mode) }, "switch %d to %s", i, mode)
	}
	t.Logf("%d switches in %s", switches, time.Since(start).Round(time.Millisecond))
	requireAllOnce(t, c, cfg, fired, end(), await.Patience)
}
