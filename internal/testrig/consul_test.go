package testrig_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestServicesAndKeysAreRemoved(t *testing.T) {
	t.Parallel()
	outer := testrig.Consul(t)
	consul := client(t, outer.Addr())
	kept := lock(t, consul, outer.Prefix())

	var gone held
	t.Run("inner", func(t *testing.T) { gone = lock(t, consul, testrig.Consul(t).Prefix()) })
	require.Empty(t, gone.holder(t, consul))
	require.NotContains(t, services(t, consul), gone.service)
	require.Equal(t, kept.session, kept.holder(t, consul), "other tests' keys are left alone")
	require.Contains(t, services(t, consul), kept.service, "other tests' services are left alone")
}

func TestPrivateConsulSurvivesWhatATestDoesToIt(t *testing.T) {
	t.Parallel()
	c := testrig.StartConsul(t, "-hcl=session_ttl_min = \"2s\"")
	addr, consul := c.Addr(), client(t, c.Addr())
	_, _, err := consul.Session().Create(&api.SessionEntry{TTL: "2s"}, nil)
	require.NoError(t, err, "options are the server's last word")
	l := lock(t, consul, "a")

	c.Kill()
	requireDown(t, addr)
	c.Kill() // down already
	c.Start()
	require.Equal(t, l.session, l.holder(t, consul))
	require.NoError(t, consul.Agent().UpdateTTL("service:"+l.service, "", api.HealthPassing))

	c.Stop()
	requireDown(t, addr)
	c.Start()
	require.Equal(t, l.session, l.holder(t, consul), "stopping is not leaving")
	require.Contains(t, services(t, consul), l.service)

	c.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err = consul.KV().Get(l.key, new(api.QueryOptions).WithContext(ctx))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	c.Thaw()
	require.Equal(t, l.session, l.holder(t, consul))
	require.Equal(t, addr, c.Addr())

	c.Freeze()
	c.Stop() // a frozen server is stopped all the same
}

// Sessions and locks are to be had from the first moment on, which takes a leader that knows its own node.
func TestAConsulThatStartedIsReady(t *testing.T) {
	t.Parallel()
	a, b := testrig.StartConsul(t), testrig.StartConsul(t)
	x := client(t, a.Addr())
	l := lock(t, x, "a")
	y := client(t, b.Addr())
	require.Empty(t, l.holder(t, y), "each is a cluster of its own")
	require.NotContains(t, services(t, y), l.service)
}

// held is a key, locked by a session that hangs on the health of a service.
type held struct{ key, service, session string }

func lock(t *testing.T, consul *api.Client, prefix string) held {
	t.Helper()
	l := held{key: prefix + "/lock", service: prefix + "node"}
	require.NoError(t, consul.Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: l.service, Name: prefix, Check: &api.AgentServiceCheck{TTL: "10m", Status: api.HealthPassing},
	}))
	// An agent remembers over a restart what it was told, not what a check began with.
	require.NoError(t, consul.Agent().UpdateTTL("service:"+l.service, "", api.HealthPassing))
	var err error
	l.session, _, err = consul.Session().Create(&api.SessionEntry{
		Name: prefix, ServiceChecks: []api.ServiceCheck{{ID: "service:" + l.service}}, LockDelay: time.Millisecond,
	}, nil)
	require.NoError(t, err)
	ok, _, err := consul.KV().Acquire(&api.KVPair{Key: l.key, Session: l.session}, nil)
	require.NoError(t, err)
	require.True(t, ok)
	return l
}

// holder is the session that has the lock: none when the key is free or gone.
func (l held) holder(t *testing.T, consul *api.Client) string {
	t.Helper()
	pair, _, err := consul.KV().Get(l.key, &api.QueryOptions{RequireConsistent: true})
	require.NoError(t, err)
	if pair == nil {
		return ""
	}
	return pair.Session
}

func services(t *testing.T, consul *api.Client) map[string]*api.AgentService {
	t.Helper()
	list, err := consul.Agent().Services()
	require.NoError(t, err)
	return list
}

func client(t *testing.T, addr string) *api.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true} // a kept connection would outlive its server
	c, err := api.NewClient(&api.Config{Address: addr, HttpClient: &http.Client{Transport: transport}})
	require.NoError(t, err)
	return c
}
