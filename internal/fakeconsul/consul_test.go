package fakeconsul_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// inBubble calls f in a bubble with a Consul and a client of it.
func inBubble(t *testing.T, f func(t *testing.T, fake *fakeconsul.Consul, consul *api.Client)) {
	synctest.Test(t, func(t *testing.T) {
		fake, network := fakeconsul.New(), new(memnet.Net)
		stop := fake.Listen(network.Listen("consul:8500"))
		transport := &http.Transport{DialContext: network.Dial}
		consul, err := api.NewClient(&api.Config{Address: "consul:8500", Transport: transport})
		require.NoError(t, err)
		f(t, fake, consul)
		transport.CloseIdleConnections()
		stop()
	})
}

func TestASessionEndsAfterTwiceItsTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *fakeconsul.Consul, consul *api.Client) {
		id, _, err := consul.Session().CreateNoChecks(&api.SessionEntry{TTL: "10s"}, nil)
		require.NoError(t, err)
		lives := func() bool {
			s, _, err := consul.Session().Info(id, nil)
			require.NoError(t, err)
			return s != nil
		}
		time.Sleep(20*time.Second - 1)
		require.True(t, lives())
		_, _, err = consul.Session().Renew(id, nil)
		require.NoError(t, err)
		time.Sleep(20*time.Second - 1)
		require.True(t, lives())
		time.Sleep(1)
		synctest.Wait()
		require.False(t, lives())
	})
}
