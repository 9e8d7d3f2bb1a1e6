package forward_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// The last answer of another node is known, and since when it does not answer.
func TestExchange(t *testing.T) {
	kind, status, body := "application/json", 200, `{"node":"n2","now":"2026-01-02T15:04:05.000Z","grants":[{"biz_type":"a","permits":2}],"unanswered":["7"]}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	})
	f, l := one(t, s.URL)
	exchange := func() (api.ExchangeAnswer, error) {
		return f.Exchange(t.Context(), cluster.Member{Name: "n2", Address: s.URL}, api.ExchangeRequest{From: "n1 X", Seq: 1})
	}
	before := time.Now()
	answer, err := exchange()
	require.NoError(t, err)
	require.Equal(t, []limits.Grant{{BizType: "a", Permits: 2}}, answer.Grants)
	v := f.View("n2")
	require.Equal(t, answer, v.Answer)
	require.Nil(t, v.Silent)
	require.False(t, v.Sent.Before(before))
	require.False(t, v.Received.Before(v.Sent))
	require.Zero(t, v.Detailed)

	body = `{"node":"n3","grants":[]}`
	_, err = exchange()
	require.ErrorIs(t, err, task.ErrUnavailable, "another process has its address now")
	silent := f.View("n2")
	require.Equal(t, v.Answer, silent.Answer)
	require.False(t, silent.Silent.Since.Before(v.Received))
	require.ErrorContains(t, silent.Silent.Err, `node "n2"`)
	_, err = exchange()
	require.Error(t, err)
	require.Equal(t, silent.Silent.Since, f.View("n2").Silent.Since)
	require.Equal(t, 1, strings.Count(l.String(), "node does not answer"))

	kind, status, body = "application/problem+json", 422, `{"status":422,"errors":[{"location":"body.detail","message":"is not known"}]}`
	answer, err = exchange()
	require.NoError(t, err)
	require.Empty(t, answer, "the version before takes asks for limits alone")
	require.Nil(t, f.View("n2").Silent)
	require.Equal(t, 1, strings.Count(l.String(), "node answers again"))

	f.Close()
	_, err = exchange()
	require.ErrorContains(t, err, "stopping")
	require.Nil(t, f.View("n2").Silent)
}

// What was asked for once stays known: the load of a node that is silent.
func TestDetail(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"node":"n2","grants":[],"biz_types":[{"name":"a","overdue":3}],"pulse":{"node":"n2","ready":true}}`)
	})
	f, _ := one(t, s.URL)
	f.Detail(t.Context())
	v := f.View("n2")
	require.Equal(t, 3, v.Answer.BizTypes[0].Overdue)
	require.True(t, v.Answer.Pulse.Ready)
	require.Equal(t, v.Received, v.Detailed)
	f.Detail(t.Context())
	require.EqualValues(t, 1, s.asked.Load(), "it was asked just now")
}

// A node that has answered a later request is not silent because of one that it does not answer: a change that waits for a lock, a wait for a
// task whose connection was cut.
func TestALaterAnswerIsNoSilence(t *testing.T) {
	asked := make(chan bool)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/limits") {
			asked <- true
			<-asked
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"node":"n2","grants":[]}`)
	})
	f, l := one(t, s.URL)
	ended := make(chan error)
	for _, later := range []bool{true, false} {
		go func() {
			_, err := f.Peers()[0].Lease(t.Context(), "a", api.AskLease{Wait: time.Minute})
			ended <- err
		}()
		<-asked
		if later {
			_, err := f.Exchange(t.Context(), cluster.Member{Name: "n2", Address: s.URL}, api.ExchangeRequest{From: "n1 X", Seq: 1})
			require.NoError(t, err)
		}
		asked <- true
		require.ErrorIs(t, <-ended, task.ErrUnavailable)
		require.Equal(t, later, f.View("n2").Silent == nil)
	}
	require.Equal(t, 1, strings.Count(l.String(), "node does not answer"))
	require.Zero(t, strings.Count(l.String(), "node answers again"))
}
