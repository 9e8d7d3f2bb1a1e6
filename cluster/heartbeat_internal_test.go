package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

// The loss is logged once, when the lease ends, and the return once, however many heartbeats are missed.
func TestALossIsToldOnce(t *testing.T) {
	away := errors.New("connection refused")
	for name, c := range map[string]struct {
		keep bool
		err  error
		owns int
		says string
	}{
		"stop": {false, away, 0, "consul does not answer since 2s: partitions stopped: connection refused"},
		"keep": {true, away, 3, "consul does not answer since 2s: partitions kept: connection refused"},
		"keep, denied": {true, api.StatusError{Code: 403}, 0, "consul refuses this node's heartbeats since 2s: partitions stopped: Unexpected response code: 403 (); " +
			"give the token the rights of docs/operating.md, or put a new one into cluster.consul.token_file"},
		"keep, name taken": {true, &nameTakenError{"a", "toc", "s", 20 * time.Second}, 0,
			`another process has this node's name since 2s: partitions stopped: node.name "a" is in use: another process of the cluster "toc" has it; ` +
				`give each node a name of its own. The session of a process that has died ends within 20s of its last renewal, or at once by PUT /v1/session/destroy/s at Consul`},
		"keep, no leader": {true, api.StatusError{Code: 500, Body: "No cluster leader"}, 3, "consul answers with errors since 2s: partitions kept: Unexpected response code: 500 (No cluster leader)"},
	} {
		t.Run(name, func(t *testing.T) {
			n := watched()
			defer n.owned.expire(0)
			var log bytes.Buffer
			n.cfg.Logger, n.cfg.KeepOnLoss = slog.New(slog.NewTextHandler(&log, nil)), c.keep
			clock := &tower{instant{int64(time.Hour), int64(1e18)}}
			n.clock = func() instant { return clock.at }
			n.owned.clock = n.clock
			told := func(message string) int { return strings.Count(log.String(), message) }

			n.recordMissedBeat(t.Context(), c.err)
			require.Empty(t, n.Lost(), "it never had Consul")
			n.recordBeat(clock.at)
			n.owned.renew(0, clock.at.add(n.leaseTime()))
			clock.pass(n.leaseTime()-1, n.leaseTime()-1)
			n.recordMissedBeat(t.Context(), c.err)
			require.Empty(t, n.Lost(), "the lease still runs")
			clock.pass(1, 1)
			for range 5 {
				n.recordMissedBeat(t.Context(), c.err)
			}
			require.Equal(t, c.says, n.Lost())
			require.Len(t, n.owned.Owned(), c.owns)
			require.Equal(t, 1, told("lost consul"))
			require.Zero(t, told("consul is back"))

			// A keeper that was paused owns nothing before its first beat.
			clock.pass(time.Hour, time.Hour)
			require.Empty(t, n.owned.Owned())
			n.recordMissedBeat(t.Context(), c.err)
			require.Len(t, n.owned.Owned(), c.owns)
			n.recordBeat(clock.at)
			require.Empty(t, n.Lost())
			require.Equal(t, 1, told("consul is back"))
		})
	}
}
