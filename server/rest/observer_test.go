package rest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/server/rest"
)

type heard []string

func (h *heard) Answered(route string, status int, took time.Duration) {
	*h = append(*h, fmt.Sprint(route, " ", status, " ", took > 0))
}

// Every request is told of, those included that no route has seen; a route's name holds nothing of the request.
func TestRequestsAreToldOf(t *testing.T) {
	var all heard
	h := newFake(newFakeCenter(t), withTokens("secret"), func(c *rest.Config) { c.Observer = &all })
	for _, try := range [][2]string{{"GET", "/healthz"}, {"POST", "/v1/tasks"}, {"GET", "/v1/tasks/7"}, {"GET", "/v1/nope"}, {"DELETE", "/v1/tasks/7"}, {"GET", "//healthz"}} {
		call(h, try[0], try[1], "{}", "Authorization", "Bearer secret", "Content-Type", "application/json")
	}
	call(h, "GET", "/v1/tasks/7", "")
	call(h, "GET", "/v1/secrets/7", "")
	require.Equal(t, heard{
		"GET /healthz 200 true", "POST /v1/tasks 422 true", "GET /v1/tasks/{job_id} 200 true", "unknown 404 true", "unknown 405 true", "GET /healthz 404 true",
		"GET /v1/tasks/{job_id} 401 true", "unknown 401 true",
	}, all)
}
