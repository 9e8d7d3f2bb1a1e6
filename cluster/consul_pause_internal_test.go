package cluster

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// The monotonic clock of a paused machine may have stood still. The wall clock ends the lease before the next
// heartbeat.
func TestANodeThatWasPausedOwnsNothingUntilItHasAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Net)
		defer fakeconsul.New().Listen(network.Listen("consul:8500"))()
		c := NewConsul(ConsulConfig{
			Node: "a", Layout: eight, TTL: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Consul: &api.Config{Address: "consul:8500", Transport: &http.Transport{DialContext: network.Dial}},
			Host:   idleHost{},
		})
		var paused atomic.Int64
		c.clock = func() instant {
			i := now()
			return instant{i.mono, i.wall + paused.Load()}
		}
		c.owned.clock = c.clock
		require.NoError(t, c.Acquire(t.Context()))
		defer c.Release()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Run(ctx)
		}()
		defer func() {
			stop()
			<-ended
		}()
		ownsAll := func() bool { return len(c.Ownership().Owned()) == 256 }
		await.That(t, ownsAll, "it owns all partitions")
		session := func() string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.session
		}
		before := session()
		paused.Store(int64(time.Hour))
		require.Empty(t, c.Ownership().Owned())
		await.That(t, ownsAll, "it owns all partitions")
		require.NotEqual(t, before, session(), "the old one may have been about to end")
	})
}
