package forward

import (
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// inNetwork makes a Forwarder and another node in a bubble. Calls between nodes are HTTP/1.1.
func inNetwork(t *testing.T, f func(t *testing.T, network *memnet.Net, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Net)
		_, stop := network.Serve(t, "node-2:80", "http/1.1", owner("old"))
		defer stop()
		from := New(Config{Node: "n1", Logger: slog.New(slog.DiscardHandler), Proof: peerproof.New("n1", func() []string { return nil })})
		defer from.Close()
		network.Enter(from.transport.Template)
		n, err := from.node(cluster.Member{Name: "n2", Address: "node-2:80"})
		require.NoError(t, err)
		f(t, network, n)
	})
}

// owner is a node on which tasks run that has this name.
func owner(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Millisecond)
		_, _ = io.WriteString(w, `{"job_id":"1","running":{"node":"`+name+`","since":"2000-01-01T00:00:00Z"}}`)
	})
}

// All connections fall silent, while new ones work: only the calls fail that begin before one of them got no answer in time.
func TestSilentConnectionsToANodeAreLeft(t *testing.T) {
	inNetwork(t, func(t *testing.T, network *memnet.Net, n *node) {
		var warmUp, calls sync.WaitGroup
		for range 20 {
			warmUp.Go(func() { _, _ = n.Get(t.Context(), 1) })
		}
		warmUp.Wait()
		network.Silence()
		var mu sync.Mutex
		failed := 0
		for range 100 {
			calls.Go(func() {
				if got, err := n.Get(t.Context(), 1); err != nil || got.Running == nil {
					mu.Lock()
					defer mu.Unlock()
					failed++
				}
			})
			time.Sleep(200 * time.Millisecond)
		}
		calls.Wait()
		t.Logf("failed calls %d", failed)
		require.LessOrEqual(t, failed, 11, "those of 2 s")
	})
}

func TestANodeWithANewAddressIsFollowed(t *testing.T) {
	inNetwork(t, func(t *testing.T, network *memnet.Net, n *node) {
		name := func() string {
			got, err := n.Get(t.Context(), 1)
			require.NoError(t, err)
			return got.Running.Node
		}
		require.Equal(t, "old", name())
		_, stop := network.Serve(t, "node-2:80", "http/1.1", owner("new"))
		defer stop()
		for moved := time.Now(); name() == "old"; time.Sleep(time.Second) {
			require.LessOrEqual(t, time.Since(moved), httppool.MaxAge+time.Second)
		}
	})
}
