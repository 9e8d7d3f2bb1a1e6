package client_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// center is a real API over a real desk and store, on a real server. It has no
// engine: tasks stay as they are.
type center struct {
	*client.Client
	url string
}

func newCenter(t *testing.T, tokens ...string) *center {
	stored := fakecenter.OnStore(t, []task.BizType{{ID: 1, Name: "order_close"}, {ID: 2, Name: "coupon"}})
	server := httptest.NewServer(rest.New(rest.Config{Center: stored.Service, Status: calm{}, Tokens: func() []string { return tokens }}))
	t.Cleanup(server.Close)
	c := &center{Client: client.New(server.URL + "/"), url: server.URL}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (c *center) submitted(t *testing.T, bizID uint64) client.ID {
	s, err := c.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: bizID, Delay: time.Hour})
	require.NoError(t, err)
	return s.Task.JobID
}

type calm struct{}

func (calm) Cluster(context.Context) (api.Cluster, error) {
	return api.Cluster{Node: "n1", Partitions: 4, Nodes: []api.Node{{Name: "n1", Address: "127.0.0.1:8080", Partitions: []int{0, 1, 2, 3}}}}, nil
}

func (calm) BizTypes(context.Context) ([]api.BizType, error) {
	return []api.BizType{{ID: 1<<64 - 1, Name: "order_close", Mode: "scan", Processor: "log", QueueDepth: 3, Running: 2, Overdue: 1}}, nil
}

func (calm) Pulse(context.Context) api.Pulse { return api.Pulse{} }

func (calm) Waiting() string                     { return "" }
func (calm) Ready(context.Context) api.Readiness { return api.Readiness{Ready: true} }
