package client

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// inNetwork makes a client of a server in a bubble, for each protocol.
func inNetwork(t *testing.T, f func(t *testing.T, network *memnet.Net, c *Client, protocol string)) {
	for _, protocol := range memnet.Protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := new(memnet.Net)
				base, stop := network.Serve(t, "example.com:443", protocol, answers("old"))
				defer stop()
				c := New(base)
				defer c.CloseIdleConnections()
				network.Enter(c.http.Transport.(*httppool.Pool).Template)
				f(t, network, c, protocol)
			})
		})
	}
}

// answers is a server whose tasks have this attribute.
func answers(attribute string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Millisecond)
		_, _ = io.WriteString(w, `{"job_id":"1","attribute":"`+attribute+`"}`)
	})
}

func look(t *testing.T, c *Client) (Task, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return c.Get(ctx, 1)
}

// All connections fall silent, while new ones work: only the calls fail that begin before one of them got no answer in time.
func TestSilentConnectionsAreLeft(t *testing.T) {
	inNetwork(t, func(t *testing.T, network *memnet.Net, c *Client, _ string) {
		var warmUp, calls sync.WaitGroup
		for range 20 {
			warmUp.Go(func() { _, _ = look(t, c) })
		}
		warmUp.Wait()
		network.Silence()
		var mu sync.Mutex
		failed := 0
		for range 100 {
			calls.Go(func() {
				if _, err := look(t, c); err != nil {
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

func TestAServerWithANewAddressIsFollowed(t *testing.T) {
	inNetwork(t, func(t *testing.T, network *memnet.Net, c *Client, protocol string) {
		attribute := func() string {
			got, err := look(t, c)
			require.NoError(t, err)
			return got.Attribute
		}
		require.Equal(t, "old", attribute())
		_, stop := network.Serve(t, "example.com:443", protocol, answers("new"))
		defer stop()
		for moved := time.Now(); attribute() == "old"; time.Sleep(time.Second) {
			require.LessOrEqual(t, time.Since(moved), httppool.MaxAge+time.Second)
		}
	})
}
