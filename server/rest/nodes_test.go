package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/server/rest"
)

func TestWake(t *testing.T) {
	d := newFakeCenter(t)
	h := rest.New(rest.Config{Center: d, Status: calm{}})
	a := call(h, "POST", "/v1/cluster/wake", `{"job_ids": ["18446744073709551615", 7 , "\u0038"]}`)
	require.Equal(t, 200, a.Code)
	require.JSONEq(t, `{"taken":3}`, a.Body.String())
	require.Equal(t, []uint64{1<<64 - 1, 7, 8}, d.Woken)

	a = call(h, "POST", "/v1/cluster/wake", `{"job_ids":[`+strings.Repeat(`"9",`, intake.MaxWake-1)+`9]}`)
	require.Equal(t, 200, a.Code)
	require.Len(t, d.Woken, intake.MaxWake)
}

// exchanged answers with what it was asked.
type exchanged struct {
	node  string
	asked api.ExchangeRequest
}

func (e *exchanged) Exchange(_ context.Context, node string, r api.ExchangeRequest) api.ExchangeAnswer {
	e.node, e.asked = node, r
	return api.ExchangeAnswer{Node: "n1", Unanswered: []api.ID{7}, Grants: []limits.Grant{{BizType: "a", Rate: 1.5, Permits: 2}}}
}

func TestNodesExchange(t *testing.T) {
	e := &exchanged{}
	h := rest.New(rest.Config{Center: newFakeCenter(t), Status: calm{}, Nodes: e})
	a := call(h, "POST", "/v1/cluster/limits", `{"from":"n2 X","seq":7,"asks":[{"biz_type":"order_close","rate":2.5,"held":1,"permits":3,"poor":true}]}`,
		"Toc-Forwarded", "n%202")
	require.Equal(t, 200, a.Code, a.Body)
	require.Equal(t, api.ExchangeRequest{From: "n2 X", Seq: 7, Asks: []limits.Ask{{BizType: "order_close", Rate: 2.5, Held: 1, Permits: 3, Poor: true}}}, e.asked)
	require.Equal(t, "n 2", e.node)
	require.JSONEq(t, `{"node":"n1","grants":[{"biz_type":"a","rate":1.5,"permits":2}],"unanswered":["7"]}`, a.Body.String())
	require.Equal(t, 200, call(h, "POST", "/v1/cluster/limits", `{"from":"n2 X","seq":8,"detail":true}`).Code)
	require.Equal(t, api.ExchangeRequest{From: "n2 X", Seq: 8, Detail: true}, e.asked)
	require.Equal(t, 422, call(h, "POST", "/v1/cluster/limits", `{"from":"n2 X","seq":8}`, "Toc-Forwarded", "%zz").Code)

	a = call(h, "GET", "/v1/cluster/unanswered", "", "Toc-Forwarded", "n%202")
	require.JSONEq(t, `{"questions":["7"]}`, a.Body.String(), "a node of the version before asks so")
	require.Equal(t, "n 2", e.node)
	require.Empty(t, e.asked)
	require.Equal(t, 422, call(h, "GET", "/v1/cluster/unanswered", "", "Toc-Forwarded", "%zz").Code)
}

// FuzzWake sends any body to POST /v1/cluster/wake: the desk is asked for exactly
// the ids that encoding/json reads, or for none.
func FuzzWake(f *testing.F) {
	f.Add([]byte(`{"job_ids":["413351953711104",5]}`))
	for _, r := range otherRefusals("1") {
		if r.target == "/v1/cluster/wake" && len(r.body) < 100 {
			f.Add([]byte(r.body))
		}
	}
	d := newFakeCenter(f)
	h := rest.New(rest.Config{Center: d, Status: calm{}})
	f.Fuzz(func(t *testing.T, body []byte) {
		d.Woken = nil
		a := call(h, "POST", "/v1/cluster/wake", string(body), "Content-Type", "application/json")
		if a.Code != 200 {
			require.Contains(t, []int{400, 422}, a.Code)
			require.NotEmpty(t, a.problem(t, a.Code).locations())
			require.Nil(t, d.Woken)
			return
		}
		var sent struct {
			JobIDs []json.RawMessage `json:"job_ids"`
		}
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&sent))
		require.Len(t, d.Woken, len(sent.JobIDs))
		for i, raw := range sent.JobIDs {
			digits := string(raw)
			if digits[0] == '"' {
				require.NoError(t, json.Unmarshal(raw, &digits))
			}
			want, err := strconv.ParseUint(digits, 10, 64)
			require.NoError(t, err)
			require.Equal(t, want, d.Woken[i])
		}
	})
}

// asked is a cluster in which another node owns everything, and counts how often
// somebody asks for it.
type asked struct{ times *atomic.Int64 }

func (asked) Term(int) uint64      { return 0 }
func (asked) Peers() []intake.Peer { return nil }

func (asked) Undelivered(string, uint64) func() bool { return nil }

func (a asked) Owner(int) (intake.Peer, error) {
	a.times.Add(1)
	return nil, intake.Unavailable("secret of the cluster")
}

// A request is handed on once: with the header, whatever its value, the owner is
// not asked for. Either way nothing is changed, and the caller may try again.
func TestAForwardedRequestIsNotHandedOn(t *testing.T) {
	for _, header := range [][]string{nil, {"Toc-Forwarded", "n2"}, {"toc-forwarded", ""}} {
		t.Run(fmt.Sprint(header), func(t *testing.T) {
			c := newCenter(t)
			id := c.submitted(t, 1)
			cluster := asked{&atomic.Int64{}}
			h := rest.New(rest.Config{Status: calm{}, Center: c.With(func(cfg *intake.Config) { cfg.Cluster = cluster })})
			changes := [][3]string{
				{"POST", "/v1/tasks/" + id + "/cancel", ""}, {"PATCH", "/v1/tasks/" + id, `{"delay":"2h"}`}, {"POST", "/v1/tasks/" + id + "/redrive", ""},
			}
			for _, r := range changes {
				a := call(h, r[0], r[1], r[2], header...)
				p := a.problem(t, 503)
				require.Equal(t, "1", a.Header().Get("Retry-After"))
				require.NotContains(t, p.Detail, "secret")
			}
			want := int64(len(changes))
			if header != nil {
				want = 0
			}
			require.Equal(t, want, cluster.times.Load())
			require.Equal(t, 200, call(h, "GET", "/v1/tasks/"+id, "", header...).Code, "any node reads")
			require.Equal(t, 404, call(h, "POST", "/v1/tasks/18446744073709551615/cancel", "", header...).Code, "no shard, no owner")

			row, err := c.Service.Get(t.Context(), parsed(t, id))
			require.NoError(t, err)
			require.Equal(t, "pending", row.Status)
		})
	}
}

func parsed(t *testing.T, id string) uint64 {
	n, err := strconv.ParseUint(id, 10, 64)
	require.NoError(t, err)
	return n
}
