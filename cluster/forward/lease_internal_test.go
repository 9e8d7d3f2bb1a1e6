package forward

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/task"
)

// members is a cluster of these nodes, which own nothing.
type members struct{ list []cluster.Member }

func (*members) Term(int) uint64                  { return 0 }
func (*members) Owner(int) (cluster.Member, bool) { return cluster.Member{}, false }
func (m *members) Members() []cluster.Member      { return m.list }

// The node that gives leases to another one asks it, when they end, for the answers that it has not got.
func TestAQuestionWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Net)
		var silent atomic.Bool
		silent.Store(true)
		var said atomic.Value // of n2: its questions without an answer
		said.Store("")
		_, stop := network.Serve(t, "node-2:80", "http/1.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/v1/cluster/limits":
				_, _ = fmt.Fprintf(w, `{"unanswered":[%s]}`, said.Load())
			case silent.Load() && strings.HasSuffix(r.URL.Path, "/lease"):
				time.Sleep(time.Minute)
			default:
				_, _ = io.WriteString(w, `{"tasks":[],"error":"`+r.Header.Get(api.HeaderQuestion)+`"}`)
			}
		}))
		defer stop()
		n2 := cluster.Member{Name: "n2", Address: "node-2:80", Instance: 1}
		others := &members{[]cluster.Member{n2}}
		f := New(Config{Node: "n1", Logger: slog.New(slog.DiscardHandler), Cluster: others, Proof: peerproof.New("n1", func() []string { return nil })})
		defer f.Close()
		network.Enter(f.transport.Template)

		n, err := f.node(n2)
		require.NoError(t, err)
		require.Empty(t, f.Unanswered("n2"))
		_, err = n.Lease(t.Context(), "orders", api.AskLease{Max: 1})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.Equal(t, []uint64{1}, f.Unanswered("n2"))
		silent.Store(false)
		_, err = n.Lease(t.Context(), "orders", api.AskLease{Max: 1})
		require.NoError(t, err)
		require.Equal(t, []uint64{1}, f.Unanswered("n2"), "the second one has its answer")
		require.Empty(t, f.Unanswered("n3"))

		said.Store(`"7"`)
		first, second := f.Undelivered("n2", 7), f.Undelivered("n2", 8)
		require.True(t, first(), "its answer has not arrived")
		require.False(t, second())
		said.Store("")
		require.True(t, first(), "what it said holds for the shortest lease")
		time.Sleep(intake.MinTTR)
		require.False(t, first(), "its answer has arrived since")
		others.list[0].Instance = 2
		require.True(t, first(), "another process has its name")
		others.list = nil
		require.True(t, second(), "it has left")
	})
}

// A node remembers the newest questions that have no answer.
func TestTheOldestQuestionsAreForgotten(t *testing.T) {
	var u unanswered
	for range keptUnanswered + 2 {
		u.add()
	}
	u.remove(keptUnanswered)
	require.Len(t, u.open, keptUnanswered-1)
	require.False(t, u.open[1] || u.open[2] || u.open[keptUnanswered])
}
