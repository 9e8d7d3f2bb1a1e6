package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/worker"
)

// The token of Consul, or the path of its file, may change in the configuration file; what the file has is read each time.
func TestTheTokenOfConsulIsReadLive(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := configs.Default()
	cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
	a, err := New(cfg, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	defer func() { require.NoError(t, a.store.Close()) }()
	cfg = a.cfg
	cfg.Cluster.Consul.Token = "hush-1"
	a.cfg, a.opts.configPath = cfg, "toc.yaml"
	a.secrets.consul.Store(&cfg.Cluster.Consul)
	token := func() string {
		token, err := a.secrets.consulToken()
		require.NoError(t, err)
		return token
	}
	reload := func() {
		a.laneChanges = make(chan []*worker.Lane, 1)
		a.reload(t.Context(), cfg, nil)
	}
	require.Equal(t, "hush-1", token())
	cfg.Cluster.Consul.Token = "hush-2"
	reload()
	require.Equal(t, "hush-2", token())

	cfg.Cluster.Consul.Token, cfg.Cluster.Consul.TokenFile = "", filepath.Join(t.TempDir(), "token")
	for _, text := range []string{"hush-3", "hush-4"} {
		require.NoError(t, os.WriteFile(cfg.Cluster.Consul.TokenFile, []byte(text+"\n"), 0o600))
		reload()
		require.Equal(t, text, token())
	}
	require.NoError(t, os.Remove(cfg.Cluster.Consul.TokenFile))
	_, err = a.secrets.consulToken()
	require.ErrorContains(t, err, "cluster.consul.token_file: cannot be read: stat ")
	a.log.Flush(time.Minute)
	require.NotContains(t, log.String(), "hush")
	require.NotContains(t, log.String(), "need a restart")
}
