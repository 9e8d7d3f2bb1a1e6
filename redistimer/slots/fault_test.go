package slots_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

func private(server *testrig.PrivateRedis) slotPlace {
	return func(testing.TB) ([]string, string) { return []string{server.Addr()}, server.Prefix() }
}

func TestAServerIsReplaced(t *testing.T) {
	t.Parallel()
	server := testrig.StartRedis(t)
	r := openSlots(t, private(server))
	a, b := &slots.Identity{Process: "a"}, &slots.Identity{Process: "b"}
	require.True(t, r.pulse(t, a).Lost, "it is asked for the first time")
	require.False(t, r.pulse(t, a).Lost)
	require.True(t, r.pulse(t, b).Lost)
	require.False(t, r.pulse(t, b).Lost)

	require.NoError(t, r.client.Save(t.Context()).Err()) // its keys survive
	server.Stop()
	server.Start()
	var got slots.Pulse
	require.Eventually(t, func() bool { // the client's pool may have to be refilled
		var err error
		got, err = r.Pulse(t.Context(), a, "ours", time.Hour)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.True(t, got.Lost, "the server is another one")
	require.False(t, r.pulse(t, a).Lost)
	require.True(t, r.pulse(t, b).Lost, "whoever else has asked it")
}

func TestServerIsAway(t *testing.T) {
	t.Parallel()
	server := testrig.StartRedis(t)
	r := openSlots(t, private(server))
	at := ago(time.Hour)
	r.arm(t, orders, member(1, at, 0))

	server.Stop()
	r.failsEverywhere(t, t.Context(), nil)
	server.Start()
	require.Eventually(t, func() bool { // the client's pool pauses after many failures
		c := r.Claim(t.Context(), []slots.ClaimRequest{{Slot: orders, Limit: 1, Visibility: time.Hour}})[0]
		return slices.Equal(c.Members, []slots.Member{member(1, at, 0)})
	}, time.Minute, 10*time.Millisecond)
}

// deafness makes connections lose the answers to a number of pipelines of scripts.
type deafness struct{ pipelines atomic.Int64 }

func (d *deafness) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &deafConn{Conn: conn, deafness: d}, err
}

type deafConn struct {
	net.Conn
	*deafness
	deaf atomic.Bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("evalsha")) && c.pipelines.Load() > 0 {
		c.pipelines.Add(-1)
		c.deaf.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.deaf.Load() {
		_ = c.Close() // the script has run, and its answer is lost
		return 0, io.EOF
	}
	return n, err
}

// A claim whose answer is lost may have been made, and a second one would claim more tasks. Other calls are
// repeated.
func TestAnswerIsLost(t *testing.T) {
	t.Parallel()
	server := testrig.StartRedis(t) // no other test may make it forget the scripts
	var deaf deafness
	client := dial(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, Dialer: deaf.dial})
	r := &slotRig{Slots: slots.New(client, ""), client: client}
	at := ago(time.Hour)
	members := []slots.Member{member(1, at, 0), member(2, at, 1), member(3, at, 2), member(4, at, 3)}
	r.arm(t, orders, members...)
	require.Empty(t, r.claim(t, slots.ClaimRequest{Slot: orders}).Members) // from here on the server knows the scripts
	require.Zero(t, r.giveBack(t, orders, member(9, at, 0)))

	deaf.pipelines.Store(1)
	c := r.Claim(t.Context(), []slots.ClaimRequest{{Slot: orders, Limit: 2, Visibility: time.Hour}})[0]
	require.Error(t, c.Err)
	require.Empty(t, c.Members)
	claims, err := r.Prepared(t.Context(), orders, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2}, idsOf(claims))

	deaf.pipelines.Store(1)
	require.Zero(t, r.giveBack(t, orders, members[:2]...), "the first try has given them back")
	require.Empty(t, r.state(t, orders).Prepare)
	deaf.pipelines.Store(1)
	r.settle(t, slots.SettleRequest{Slot: orders, Done: []uint64{3}})
	deaf.pipelines.Store(1)
	require.Equal(t, 1, r.arm(t, orders, member(5, at, 0)), "the first try is known to the second")
	require.Zero(t, deaf.pipelines.Load())
	require.ElementsMatch(t, []uint64{2, 4, 5, 1}, idsOf(r.claimAll(t, orders)))
}
