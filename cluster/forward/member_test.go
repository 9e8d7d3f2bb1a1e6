package forward_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/task"
)

// The clock of another node is known within the time of its answer.
func TestAhead(t *testing.T) {
	node, now := "n2", func() string { return api.Time(time.Now().Add(-time.Minute)).String() }
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"node":%q,"partitions":4,"nodes":[],"now":%q}`, node, now())
	})
	f, _ := one(t, s.URL)
	ahead := func() (least, most time.Duration, err error) {
		return f.Ahead(t.Context(), cluster.Member{Name: "n2", Address: s.URL})
	}
	least, most, err := ahead()
	require.NoError(t, err)
	require.LessOrEqual(t, least, time.Minute)
	require.GreaterOrEqual(t, most, time.Minute)

	node = "n3"
	_, _, err = ahead()
	require.ErrorIs(t, err, task.ErrUnavailable, "another process has its address now")
	node, now = "n2", func() string { return "0001-01-01T00:00:00.000Z" }
	_, _, err = ahead()
	require.ErrorIs(t, err, task.ErrUnavailable, "its version does not tell")
	f.Close()
	_, _, err = ahead()
	require.ErrorContains(t, err, "stopping")
}
