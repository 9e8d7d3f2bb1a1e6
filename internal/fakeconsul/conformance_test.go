package fakeconsul_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/fakeconsul"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// A call is "METHOD PATH [BODY]". Before it may stand
//
//	name:           the ID in the answer is $name from now on
//	until "text":   it is repeated until the answer has the text
//	watch PATH:     a query of the path waits for a change, and is answered after the call
//
// "restart" restarts the server. Times that must not pass between two calls are long.
var calls = []string{
	`GET /v1/kv/a/missing`,
	`GET /v1/kv/a/?recurse`,
	`GET /v1/health/service/svc`,
	`PUT /v1/kv/a/1 x`,
	`PUT /v1/kv/a/1?flags=7 x`,
	`GET /v1/kv/a/1`,
	`PUT /v1/kv/a/1?flags=7 x`,
	`GET /v1/kv/a/1?consistent`,
	`PUT /v1/kv/a/empty`,
	`GET /v1/kv/a/?recurse`,
	`GET /v1/kv/none/?recurse`,
	`GET /v1/kv/none/one`,
	`PUT /v1/kv/a/1?cas=0 y`,
	`PUT /v1/kv/a/2?cas=0 y`,
	`PUT /v1/kv/a/2?cas=1 y`,
	`DELETE /v1/kv/a/2?cas=1`,
	`DELETE /v1/kv/a/none?cas=1`,
	`DELETE /v1/kv/a/none`,
	`GET /v1/kv/a/?recurse`,
	`watch /v1/kv/a/?recurse: DELETE /v1/kv/a/1`,
	`watch /v1/kv/a/?recurse: PUT /v1/kv/a/1 again`,
	`GET /v1/kv/a/?recurse&index=x`,
	`GET /v1/kv/a/?recurse&index=5&wait=x`,
	`GET /v1/kv/a/?recurse&index=100000&wait=1ms`,
	`PUT /v1/kv/`,

	// Sessions and locks.
	`PUT /v1/session/create {`,
	`PUT /v1/session/create {"TTL":"1ms"}`,
	`PUT /v1/session/create {"TTL":"x"}`,
	`PUT /v1/session/create {"NodeChecks":["serfHealth"],"ServiceChecks":[{"ID":"none"}]}`,
	`s1: PUT /v1/session/create {"Name":"one","Behavior":"release","TTL":"1m","LockDelay":"1ms","NodeChecks":[]}`,
	`s2: PUT /v1/session/create {"Name":"two","LockDelay":"1m"}`,
	`GET /v1/session/info/$s1`,
	`GET /v1/session/info/$s2`,
	`GET /v1/session/info/00000000-0000-4000-8000-000000000000`,
	`PUT /v1/session/renew/$s1`,
	`PUT /v1/session/renew/00000000-0000-4000-8000-000000000000`,
	`PUT /v1/kv/a/2?acquire=00000000-0000-4000-8000-000000000000 y`,
	`PUT /v1/kv/a/2?acquire=$s1&flags=3 y`,
	`GET /v1/kv/a/2`,
	`PUT /v1/kv/a/2?acquire=$s1&flags=3 y`,
	`GET /v1/kv/a/2`,
	`PUT /v1/kv/a/2?acquire=$s1&flags=4 z`,
	`GET /v1/kv/a/2`,
	`PUT /v1/kv/a/2?acquire=$s2 y`,
	`PUT /v1/kv/a/2 y`,
	`GET /v1/kv/a/2`,
	`PUT /v1/kv/a/2?release=$s2 y`,
	`PUT /v1/kv/a/2?release=$s1 yy`,
	`GET /v1/kv/a/2`,
	`PUT /v1/kv/a/none?release=$s1 yy`,
	`GET /v1/kv/a/?recurse`,

	// Transactions: all or nothing.
	`PUT /v1/txn [{"KV":{"Verb":"lock","Key":"a/2","Value":"eA==","Flags":9,"Session":"$s1"}},{"KV":{"Verb":"lock","Key":"a/3","Value":"eA==","Session":"$s1"}}]`,
	`PUT /v1/txn [{"KV":{"Verb":"lock","Key":"a/2","Value":"eA==","Flags":9,"Session":"$s1"}},{"KV":{"Verb":"lock","Key":"a/3","Value":"eA==","Session":"$s1"}}]`,
	`GET /v1/kv/a/?recurse`,
	`PUT /v1/txn [{"KV":{"Verb":"lock","Key":"a/2","Session":"$s2"}},{"KV":{"Verb":"unlock","Key":"a/3","Session":"$s2"}},{"KV":{"Verb":"unlock","Key":"a/none","Session":"$s2"}},
		{"KV":{"Verb":"check-session","Key":"a/none","Session":"$s2"}},{"KV":{"Verb":"check-session","Key":"a/3","Session":"$s2"}},
		{"KV":{"Verb":"lock","Key":"a/7","Session":"00000000-0000-4000-8000-000000000000"}},{"KV":{"Verb":"delete","Key":"a/2"}},{"KV":{"Verb":"lock","Key":"a/8","Session":"$s2"}}]`,
	`GET /v1/kv/a/?recurse`,
	`watch /v1/kv/a/?recurse: PUT /v1/txn [{"KV":{"Verb":"check-session","Key":"a/3","Session":"$s1"}},{"KV":{"Verb":"delete","Key":"a/3"}}]`,
	`PUT /v1/txn [{"KV":{"Verb":"unlock","Key":"a/2","Value":"dW5zZXR0bGVk","Session":"$s1"}}]`,
	`GET /v1/kv/a/?recurse`,
	`PUT /v1/txn [` + strings.Repeat(`{"KV":{"Verb":"delete","Key":"a/none"}},`, 64) + `{"KV":{"Verb":"delete","Key":"a/none"}}]`,

	// A session that ends releases its locks. For the lock-delay nobody gets them.
	`PUT /v1/kv/a/2?acquire=$s2 z`,
	`GET /v1/kv/a/?recurse`,
	`watch /v1/kv/a/?recurse: PUT /v1/session/destroy/$s2`,
	`PUT /v1/session/destroy/$s2`,
	`GET /v1/session/info/$s2`,
	`PUT /v1/kv/a/2?acquire=$s1 z`,
	`PUT /v1/txn [{"KV":{"Verb":"lock","Key":"a/2","Session":"$s1"}},{"KV":{"Verb":"lock","Key":"a/9","Session":"$s2"}}]`,
	`s3: PUT /v1/session/create {"TTL":"5s","LockDelay":"300ms","NodeChecks":[]}`,
	`PUT /v1/kv/b/1?acquire=$s3 z`,
	`GET /v1/kv/b/?recurse`,
	`until "[]": GET /v1/session/info/$s3`,
	`GET /v1/kv/b/?recurse`,
	`PUT /v1/session/renew/$s3`,
	`until "true": PUT /v1/kv/b/1?acquire=$s1 z`,
	`GET /v1/kv/b/1`,
	`s4: PUT /v1/session/create {"Behavior":"delete","LockDelay":"1ms"}`,
	`PUT /v1/kv/b/2?acquire=$s4 z`,
	`PUT /v1/session/destroy/$s4`,
	`GET /v1/kv/b/?recurse`,
	`DELETE /v1/kv/b/?recurse`,
	`GET /v1/kv/b/?recurse`,
	`GET /v1/kv/b/1`,

	// Services and checks.
	`PUT /v1/agent/service/register {"Name":""}`,
	`PUT /v1/agent/service/register {"ID":"svc-a","Name":"svc","Meta":{"node":"a"},"Address":"h","Port":1,"Checks":[
		{"CheckID":"svc-a:alive","Name":"alive","TTL":"1h","Status":"passing","DeregisterCriticalServiceAfter":"1h"},{"CheckID":"svc-a:ready","Name":"ready","TTL":"87600h0m0s","Status":"critical"}]}`,
	`until "svc-a:ready": GET /v1/health/service/svc`,
	`GET /v1/health/service/svc?passing=1`,
	`GET /v1/health/service/svc?tag=none`,
	`GET /v1/health/service/none`,
	`s5: PUT /v1/session/create {"Name":"svc-a","TTL":"1m","LockDelay":"1ms","NodeChecks":["serfHealth"],"ServiceChecks":[{"ID":"svc-a:alive"}]}`,
	`PUT /v1/session/create {"ServiceChecks":[{"ID":"svc-a:ready"}]}`,
	`GET /v1/session/info/$s5`,
	`PUT /v1/kv/c/1?acquire=$s5 z`,
	`PUT /v1/agent/check/update/svc-a:ready {"Status":"none","Output":""}`,
	`PUT /v1/agent/check/update/none {"Status":"passing","Output":""}`,
	`watch /v1/health/service/svc: PUT /v1/agent/check/update/svc-a:ready {"Status":"passing","Output":""}`,
	`PUT /v1/agent/check/update/svc-a:ready {"Status":"passing","Output":""}`,
	`GET /v1/agent/services?filter=Service+%3D%3D+%22svc%22+and+Meta.node+%3D%3D+%22a%22`,
	`GET /v1/agent/services?filter=Service+%3D%3D+%22none%22`,
	`GET /v1/agent/checks?filter=CheckID+%3D%3D+%22svc-a%3Aready%22`,
	`watch /v1/health/service/svc: PUT /v1/agent/service/maintenance/svc-a?enable=true&reason=test`,
	`PUT /v1/agent/service/maintenance/svc-a?enable=true&reason=again`,
	`watch /v1/health/service/svc: PUT /v1/agent/service/maintenance/svc-a?enable=false`,
	`PUT /v1/agent/service/maintenance/none?enable=true`,
	`PUT /v1/agent/service/maintenance/svc-a`,

	// A TTL that passes ends the session. Registering again revives nothing.
	`PUT /v1/agent/service/register {"ID":"svc-a","Name":"svc","Meta":{"node":"a"},"Address":"h","Port":1,"Checks":[
		{"CheckID":"svc-a:alive","Name":"alive","TTL":"1s","Status":"passing","DeregisterCriticalServiceAfter":"1h"},{"CheckID":"svc-a:ready","Name":"ready","TTL":"87600h0m0s","Status":"critical"}]}`,
	`until "TTL expired": GET /v1/health/service/svc`,
	`GET /v1/session/info/$s5`,
	`GET /v1/kv/c/1`,
	`PUT /v1/agent/service/register {"ID":"svc-a","Name":"svc","Meta":{"node":"a"},"Address":"h","Port":1,"Checks":[
		{"CheckID":"svc-a:alive","Name":"alive","TTL":"1h","Status":"passing","DeregisterCriticalServiceAfter":"1h"},{"CheckID":"svc-a:ready","Name":"ready","TTL":"87600h0m0s","Status":"critical"}]}`,
	`until "TTL expired": GET /v1/health/service/svc`,
	`PUT /v1/session/create {"ServiceChecks":[{"ID":"svc-a:alive"}]}`,
	`watch /v1/health/service/svc: PUT /v1/agent/check/update/svc-a:alive {"Status":"passing","Output":""}`,
	`watch /v1/health/service/svc: PUT /v1/agent/service/register {"ID":"svc-a","Name":"svc","Meta":{"node":"a"},"Address":"other","Port":1}`,
	`GET /v1/health/service/svc?passing`,

	// What the agent was told outlives a restart; what a check began with does not.
	`PUT /v1/agent/service/register {"ID":"svc-b","Name":"svc","Check":{"TTL":"1h","Status":"passing"}}`,
	`until "service:svc-b": GET /v1/health/service/svc`,
	`s6: PUT /v1/session/create {"LockDelay":"1ms","ServiceChecks":[{"ID":"svc-a:alive"}]}`,
	`s7: PUT /v1/session/create {"LockDelay":"1ms","ServiceChecks":[{"ID":"service:svc-b"}]}`,
	`PUT /v1/kv/d/6?acquire=$s6 z`,
	`PUT /v1/kv/d/7?acquire=$s7 z`,
	`restart`,
	`until "critical": GET /v1/health/service/svc`,
	`GET /v1/session/info/$s7`,
	`GET /v1/session/info/$s6`,
	`GET /v1/kv/d/?recurse`,

	// A check that is deregistered ends its sessions, too.
	`watch /v1/health/service/svc: PUT /v1/agent/check/update/service:svc-b {"Status":"passing","Output":""}`,
	`watch /v1/health/service/svc: PUT /v1/agent/check/deregister/svc-a:alive`,
	`GET /v1/session/info/$s6`,
	`PUT /v1/agent/check/deregister/none`,
	`watch /v1/health/service/svc: PUT /v1/agent/service/deregister/svc-b`,
	`watch /v1/health/service/svc: PUT /v1/agent/service/deregister/svc-a`,
	`PUT /v1/agent/service/deregister/svc-a`,
	`GET /v1/health/service/svc`,
	`GET /v1/health/service/none`,
	`GET /v1/agent/checks`,
	`GET /v1/agent/services`,
}

// callsWithTokens are for a server that asks for tokens: $token is one, and any other is none.
var callsWithTokens = []string{
	`GET /v1/kv/a/1?token=00000000-0000-4000-8000-000000000000`,
	`PUT /v1/kv/a/1?token=00000000-0000-4000-8000-000000000000 x`,
	`PUT /v1/session/create?token=00000000-0000-4000-8000-000000000000 {}`,
	`PUT /v1/session/renew/00000000-0000-4000-8000-000000000000?token=00000000-0000-4000-8000-000000000000`,
	`PUT /v1/agent/service/register?token=00000000-0000-4000-8000-000000000000 {"Name":"svc"}`,
	`PUT /v1/agent/check/update/none?token=00000000-0000-4000-8000-000000000000 {"Status":"passing"}`,
	`PUT /v1/txn?token=00000000-0000-4000-8000-000000000000 [{"KV":{"Verb":"delete","Key":"a/3"}}]`,
	`GET /v1/kv/a/1`,
	`PUT /v1/kv/a/1 x`,
	`PUT /v1/session/create {}`,
	`PUT /v1/kv/a/1?token=$token x`,
	`GET /v1/kv/a/1?token=$token`,
	`PUT /v1/agent/check/update/none?token=$token {"Status":"passing"}`,
	`PUT /v1/agent/check/deregister/none?token=$token`,
	`PUT /v1/agent/service/deregister/none?token=$token`,
}

// caller makes calls and writes down the answers, so that those of two servers can be compared: without what differs by
// chance, and with the ranks of indexes, since a server may count more commands than these.
type caller struct {
	t       *testing.T
	base    string
	web     *http.Client
	restart func()

	names   map[string]string
	last    map[string]string // the index of the last answer, by path
	answers []reply
	indexes map[uint64]bool
}

type reply struct {
	call, status, kind, index string
	body                      any
}

var prefix = regexp.MustCompile(`^(?:(\w+)|until "(.+)"|watch (\S+)): `)

func (c *caller) makeAll(calls []string) (answers []string) {
	for _, call := range calls {
		if call == "restart" {
			c.restart()
			continue
		}
		found := prefix.FindStringSubmatch(call)
		if found == nil {
			found = make([]string, 4)
		}
		ask := strings.SplitN(call[len(found[0]):], " ", 3)
		body := ""
		if len(ask) == 3 {
			body = ask[2]
		}
		woken := make(chan reply, 1)
		if watched := found[3]; watched != "" {
			sep := "?"
			if strings.Contains(watched, "?") {
				sep = "&"
			}
			path := watched + sep + "wait=60s&index=" + c.last[watched]
			go func() { woken <- c.call(call, "GET", path, "") }()
		}
		var r reply
		await.That(c.t, func() bool {
			r = c.call(call, ask[0], ask[1], body)
			return strings.Contains(fmt.Sprint(r.body), found[2])
		}, "%s", call)
		if found[1] != "" {
			c.names[found[1]], _ = r.body.(map[string]any)["ID"].(string)
			require.NotEmpty(c.t, c.names[found[1]])
		}
		c.note(ask[1], r)
		if found[3] != "" {
			c.note(found[3], await.Receive(c.t, woken, "%s", call))
		}
	}
	ranks := make(map[uint64]int)
	for rank, index := range slices.Sorted(maps.Keys(c.indexes)) {
		ranks[index] = rank
	}
	for _, r := range c.answers {
		if index, err := strconv.ParseUint(r.index, 10, 64); err == nil {
			r.index = "index #" + strconv.Itoa(ranks[index])
		}
		text, err := json.Marshal(rank(r.body, ranks))
		require.NoError(c.t, err)
		said := strings.TrimSpace(fmt.Sprint(r.status, " ", r.kind, " ", r.index, " ", string(text)))
		for name, id := range c.names {
			said = strings.ReplaceAll(said, id, "$"+name)
		}
		answers = append(answers, r.call+"\n\t"+said)
	}
	return answers
}

func (c *caller) call(call, method, path, body string) reply {
	for name, id := range c.names {
		path, body = strings.ReplaceAll(path, "$"+name, id), strings.ReplaceAll(body, "$"+name, id)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	require.NoError(c.t, err)
	resp, err := c.web.Do(r)
	if !(err == nil) {
		c.t.Errorf("%s: %v", call, err)
		return reply{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Errorf("%s: %v", call, err)
	}
	out := reply{call: call, status: resp.Status, kind: resp.Header.Get("Content-Type"), index: resp.Header.Get("X-Consul-Index")}
	for _, h := range []string{"X-Consul-Knownleader", "X-Consul-Lastcontact", "X-Consul-Effective-Consistency"} {
		out.kind += " " + resp.Header.Get(h)
	}
	if json.Unmarshal(text, &out.body) != nil {
		out.body = string(text)
	}
	return out
}

// note remembers an answer and the indexes in it.
func (c *caller) note(path string, r reply) {
	c.answers = append(c.answers, r)
	if r.index != "" {
		c.last[path] = r.index
		index, err := strconv.ParseUint(r.index, 10, 64)
		require.NoError(c.t, err)
		c.indexes[index] = true
	}
	rank(r.body, nil, func(index uint64) { c.indexes[index] = true })
}

// rank is a body with the ranks of indexes, and without what says which machine it is.
func rank(body any, ranks map[uint64]int, found ...func(uint64)) any {
	switch body := body.(type) {
	case []any:
		list := make([]any, len(body))
		for i, v := range body {
			list[i] = rank(v, ranks, found...)
		}
		return list
	case map[string]any:
		out := make(map[string]any)
		if body["CheckID"] == "serfHealth" { // a server writes it while it starts, once or twice
			body = maps.Clone(body)
			delete(body, "CreateIndex")
			delete(body, "ModifyIndex")
		}
		for k, v := range body {
			index, isNumber := v.(float64)
			switch {
			case (k == "CreateIndex" || k == "ModifyIndex") && isNumber:
				for _, f := range found {
					f(uint64(index))
				}
				out[k] = fmt.Sprint("#", ranks[uint64(index)])
			case k == "Node":
				out[k] = "?"
				if node, is := v.(map[string]any); is {
					out[k] = slices.Sorted(maps.Keys(node))
				}
			default:
				out[k] = rank(v, ranks, found...)
			}
		}
		return out
	}
	return body
}

func newCaller(t *testing.T, base string, transport *http.Transport, names map[string]string) *caller {
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t: t, base: base, web: &http.Client{Transport: transport}, names: names, last: map[string]string{}, indexes: map[uint64]bool{}}
}

// The fake answers as Consul does.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls   []string
		options []testrig.Option
		names   map[string]string
	}{
		"all":    {calls: calls, options: []testrig.Option{`-hcl=session_ttl_min = "1s"`}},
		"tokens": {calls: callsWithTokens, options: []testrig.Option{testrig.ConsulACL}, names: map[string]string{"token": testrig.ConsulMaster}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var faked []string
			synctest.Test(t, func(t *testing.T) {
				fake, network := fakeconsul.New(), new(memnet.Net)
				fake.MinSessionTTL = time.Second
				if token := c.names["token"]; token != "" {
					fake.AddToken(token)
				}
				t.Cleanup(fake.Listen(network.Listen("consul:8500")))
				call := newCaller(t, "http://consul:8500", &http.Transport{DialContext: network.Dial}, maps.Clone(c.names))
				call.restart = fake.Restart
				if call.names == nil {
					call.names = map[string]string{}
				}
				faked = call.makeAll(c.calls)
			})
			consul := testrig.StartConsul(t, c.options...)
			call := newCaller(t, "http://"+consul.Addr(), &http.Transport{}, maps.Clone(c.names))
			if call.names == nil {
				call.names = map[string]string{}
			}
			call.restart = func() {
				consul.Kill()
				consul.Start()
				call.web.CloseIdleConnections()
			}
			for i, answer := range call.makeAll(c.calls) {
				require.Equal(t, answer, faked[i], "Consul answers as expected, and the fake so") // the first difference explains the rest
			}
		})
	}
}
