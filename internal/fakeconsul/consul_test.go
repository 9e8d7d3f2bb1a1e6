package fakeconsul_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// bench is a Consul in a bubble, with a client.
type bench struct {
	*fakeconsul.Consul
	t *testing.T
	*api.Client
}

func inBubble(t *testing.T, f func(t *testing.T, b bench)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, network := fakeconsul.New(), new(memnet.Net)
		t.Cleanup(fake.Listen(network.Listen("consul:8500")))
		transport := &http.Transport{DialContext: network.Dial}
		t.Cleanup(transport.CloseIdleConnections)
		client, err := api.NewClient(&api.Config{Address: "consul:8500", Transport: transport})
		require.NoError(t, err)
		f(t, bench{fake, t, client})
	})
}

// at sleeps until so long after a time.
func at(from time.Time, d time.Duration) {
	time.Sleep(time.Until(from.Add(d)))
	synctest.Wait()
}

func (b bench) session(e api.SessionEntry) string {
	b.t.Helper()
	create := b.Session().Create
	if len(e.ServiceChecks) == 0 {
		create = b.Session().CreateNoChecks
	}
	id, _, err := create(&e, nil)
	require.NoError(b.t, err)
	return id
}

func (b bench) lives(session string) bool {
	b.t.Helper()
	s, _, err := b.Session().Info(session, nil)
	require.NoError(b.t, err)
	return s != nil
}

func (b bench) acquires(key, session string) bool {
	b.t.Helper()
	ok, _, err := b.KV().Acquire(&api.KVPair{Key: key, Session: session}, nil)
	require.NoError(b.t, err)
	return ok
}

// register registers a service whose check passes for 3 s.
func (b bench) register(token string) {
	b.t.Helper()
	require.NoError(b.t, b.Agent().ServiceRegisterOpts(&api.AgentServiceRegistration{
		ID: "a", Name: "svc", Check: &api.AgentServiceCheck{CheckID: "a", TTL: "3s", Status: api.HealthPassing, DeregisterCriticalServiceAfter: "1m"},
	}, api.ServiceRegisterOpts{Token: token}))
}

// status is that of the check, by the servers; "": there is none.
func (b bench) status(token string) string {
	b.t.Helper()
	list, _, err := b.Health().Service("svc", "", false, &api.QueryOptions{Token: token})
	require.NoError(b.t, err)
	if len(list) == 0 {
		return ""
	}
	return list[0].Checks[1].Status
}

func TestASessionEndsSomeTTLsAfterItsRenewal(t *testing.T) {
	for name, ttls := range map[string]float64{"as late as Consul": 2, "as early as Consul may": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b bench) {
				b.SessionTTLs = ttls
				began, lasts := time.Now(), time.Duration(ttls*10)*time.Second
				id := b.session(api.SessionEntry{TTL: "10s"})
				at(began, lasts-1)
				require.True(t, b.lives(id))
				_, _, err := b.Session().Renew(id, nil)
				require.NoError(t, err)
				at(began, 2*lasts-2)
				require.True(t, b.lives(id))
				at(began, 2*lasts-1)
				require.False(t, b.lives(id))
			})
		})
	}
}

func TestALockDelayLasts(t *testing.T) {
	inBubble(t, func(t *testing.T, b bench) {
		one, two := b.session(api.SessionEntry{LockDelay: time.Second, Name: "one"}), b.session(api.SessionEntry{})
		require.True(t, b.acquires("k", one))
		require.False(t, b.acquires("k", two))
		began := time.Now()
		require.Equal(t, 1, b.EndSession("k"), "by what it holds")
		require.Zero(t, b.EndSession("one"), "by its name; it has ended")
		at(began, time.Second-1)
		require.False(t, b.acquires("k", two))
		at(began, time.Second)
		require.True(t, b.acquires("k", two))
		require.Equal(t, 1, b.EndSession(two))
	})
}

func TestAQueryIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b bench) {
		_, meta, err := b.KV().List("a/", nil)
		require.NoError(t, err)
		began := time.Now()
		ask := func() uint64 {
			_, meta, err := b.KV().List("a/", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 16 * time.Second})
			require.NoError(t, err)
			return meta.LastIndex
		}
		require.Equal(t, meta.LastIndex, ask())
		require.Equal(t, 17*time.Second, time.Since(began), "a sixteenth longer than asked")
		began = time.Now()
		time.AfterFunc(time.Second, func() { _, _ = b.KV().Put(&api.KVPair{Key: "a/1"}, nil) })
		require.Greater(t, ask(), meta.LastIndex)
		require.Equal(t, time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = b.KV().List("b/", (&api.QueryOptions{WaitIndex: 1000}).WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A TTL that passes makes the check critical and ends what depends on it. The service goes when the agent looks for such,
// each 30 s, after it was so for a minute.
func TestATTLPasses(t *testing.T) {
	inBubble(t, func(t *testing.T, b bench) {
		began := time.Now()
		b.register("")
		id := b.session(api.SessionEntry{ServiceChecks: []api.ServiceCheck{{ID: "a"}}})
		at(began, 2*time.Second)
		require.NoError(t, b.Agent().UpdateTTL("a", "", api.HealthPassing))
		at(began, 5*time.Second-1)
		require.Equal(t, api.HealthPassing, b.status(""))
		require.True(t, b.lives(id))
		at(began, 5*time.Second)
		require.Equal(t, api.HealthCritical, b.status(""))
		require.False(t, b.lives(id))
		at(began, 90*time.Second-1)
		require.Equal(t, api.HealthCritical, b.status(""))
		at(began, 90*time.Second)
		require.Empty(t, b.status(""))

		b.register("")
		require.Equal(t, api.HealthPassing, b.status(""))
		b.Forget("another")
		require.Equal(t, api.HealthPassing, b.status(""))
		b.Forget("svc")
		require.Empty(t, b.status(""))
	})
}

// While it is stopped, nothing is answered and nothing ends. Checks that nobody has told in time are critical afterwards.
func TestItStopsAndStarts(t *testing.T) {
	for name, absence := range map[string]time.Duration{"for a second": time.Second, "for an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b bench) {
				b.register("")
				require.NoError(t, b.Agent().UpdateTTL("a", "", api.HealthPassing))
				bound := b.session(api.SessionEntry{ServiceChecks: []api.ServiceCheck{{ID: "a"}}})
				free := b.session(api.SessionEntry{TTL: "10s"})
				asked := make(chan error, 1)
				go func() {
					_, _, err := b.KV().List("a/", &api.QueryOptions{WaitIndex: 1000})
					asked <- err
				}()
				synctest.Wait()
				b.Stop()
				b.Stop()
				require.Error(t, <-asked)
				_, err := b.KV().Put(&api.KVPair{Key: "a/1"}, nil)
				require.Error(t, err)
				time.Sleep(absence)
				b.Start()
				b.Start()
				began := time.Now()
				require.Equal(t, api.HealthPassing, b.status(""))
				require.True(t, b.lives(bound))
				at(began, time.Second)
				require.Equal(t, absence == time.Second, b.status("") == api.HealthPassing, "reported a second later")
				require.Equal(t, absence == time.Second, b.lives(bound))
				at(began, 20*time.Second-1)
				require.True(t, b.lives(free), "its time began anew")
				at(began, 20*time.Second)
				require.False(t, b.lives(free))
			})
		})
	}
}

// A check that was told after a start is not critical for what was before.
func TestARestartCostsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b bench) {
		b.register("")
		b.Restart()
		synctest.Wait() // the client learns that its connection has ended
		require.NoError(t, b.Agent().UpdateTTL("a", "", api.HealthPassing))
		began := time.Now()
		at(began, 3*time.Second-1)
		require.Equal(t, api.HealthPassing, b.status(""))
		at(began, 3*time.Second)
		require.Equal(t, api.HealthCritical, b.status(""))
	})
}

// The agent reports a check with the token of its registration. If that is gone, the check stays as it was.
func TestATokenIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, b bench) {
		b.AddToken("old")
		b.AddToken("new")
		b.register("old")
		b.DeleteToken("old")
		_, _, err := b.KV().Get("a", &api.QueryOptions{Token: "old"})
		require.ErrorContains(t, err, "ACL not found")
		_, _, err = b.KV().Get("a", nil)
		require.ErrorContains(t, err, "Permission denied")
		time.Sleep(10 * time.Second)
		require.Equal(t, api.HealthPassing, b.status("new"))
		b.register("new")
		require.Equal(t, api.HealthCritical, b.status("new"))
	})
}

func TestWhatIsNotThereSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, b bench) {
		_, err := b.Status().Leader()
		require.ErrorContains(t, err, "501 (fakeconsul has no such call)")
		b.register("")
		_, err = b.Agent().ServicesWithFilter(`Port > 1`)
		require.ErrorContains(t, err, "501 (fakeconsul has no such filter)")
		_, _, _, err = b.Txn().Txn(api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVGet, Key: "a"}}}, nil)
		require.ErrorContains(t, err, "fakeconsul has no verb get")
	})
}
