package rest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/server/rest"
)

func withTokens(tokens ...string) func(*rest.Config) {
	return func(c *rest.Config) {
		c.Tokens = func() []string { return tokens }
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "toc_up 1\n") })
	}
}

func TestTokens(t *testing.T) {
	d := newFakeCenter(t)
	h := newFake(d, withTokens("alpha", "beta-longer"))
	guarded := append([][3]string{
		{"GET", "/metrics", ""}, {"GET", "/docs/", ""}, {"GET", "/openapi", ""}, {"GET", "/nope", ""}, {"DELETE", "/v1/tasks", ""}, {"GET", "/healthz/", ""}, {"GET", "//healthz", ""},
		{"POST", "/v1/tasks", "no JSON"}, {"POST", "/v1/tasks/batch", "{}"}, {"POST", "/v1/cluster/wake", "{}"},
	}, calls...)
	for _, r := range guarded {
		for _, header := range []string{
			"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer ALPHA", "Bearer alpha beta-longer", "Basic alpha", "Bearer gamma",
		} {
			a := call(h, r[0], r[1], r[2], "Authorization", header)
			a.problem(t, 401)
			require.Equal(t, `Bearer realm="toc"`, a.Header().Get("WWW-Authenticate"), "%v %q", r, header)
		}
		for _, header := range []string{"Bearer alpha", "bearer beta-longer", "BEARER  alpha "} {
			require.NotEqual(t, 401, call(h, r[0], r[1], r[2], "Authorization", header).Code, "%v %q", r, header)
		}
	}
	require.EqualValues(t, 3*len(calls), d.Calls.Load(), "nobody without a token gets to the desk")

	require.Equal(t, 200, call(h, "GET", "/healthz", "").Code)
	anonymous := call(h, "GET", "/readyz", "")
	require.Equal(t, 503, anonymous.Code, "not ready, but let in")
	require.JSONEq(t, `{"ready":false,"degraded":["database_down of database 3"]}`, anonymous.Body.String())
	require.Contains(t, call(h, "GET", "/readyz", "", "Authorization", "Bearer alpha").Body.String(), "database 3 does not answer")
	for _, path := range []string{"/docs", "/openapi.json", "/openapi.yaml"} { // a browser sends no token
		a := call(h, "GET", path, "")
		require.Equal(t, 200, a.Code, path)
		require.NotContains(t, a.Body.String(), "alpha")
	}
}

func TestAnEmptyTokenLetsNobodyIn(t *testing.T) {
	h := newFake(newFakeCenter(t), withTokens(""))
	for _, header := range []string{"", "Bearer ", "Bearer"} {
		call(h, "GET", "/v1/tasks/1", "", "Authorization", header).problem(t, 401)
	}
}

func TestWithoutTokensEverybodyIsLetIn(t *testing.T) {
	h := newFake(newFakeCenter(t), withTokens())
	require.Equal(t, 200, call(h, "GET", "/v1/tasks/1", "").Code)
	require.Equal(t, "toc_up 1\n", call(h, "GET", "/metrics", "").Body.String())
	require.Equal(t, 200, call(h, "GET", "/v1/tasks/1", "", "Authorization", "Basic eDp5").Code)
}

// A page on another site cannot change anything through its visitor's browser.
func TestForeignSites(t *testing.T) {
	d := newFakeCenter(t)
	h := newFake(d)
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		call(h, "POST", "/v1/tasks/1/cancel", "", headers...).problem(t, 403)
		call(h, "POST", "/v1/tasks", submitBody, append(headers, "Content-Type", "text/plain")...).problem(t, 403)
		require.Empty(t, call(h, "GET", "/v1/tasks/1", "", headers...).Header().Get("Access-Control-Allow-Origin"))
	}
	d.Calls.Store(0)
	require.Equal(t, 200, call(h, "POST", "/v1/tasks/1/cancel", "", "Origin", "http://example.com", "Sec-Fetch-Site", "same-origin").Code)
	require.EqualValues(t, 1, d.Calls.Load())
}

// Nor can it make a center without tokens work, though it could not see the answer. A link may lead there.
func TestForeignSitesMakeNothingRead(t *testing.T) {
	d := newFakeCenter(t)
	server := httptest.NewServer(newFake(d, func(c *rest.Config) {
		c.Console = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { d.Calls.Add(1) })
	}))
	defer server.Close()
	ask := func(path string, headers ...string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := server.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	for _, path := range []string{"/v1/dead/groups", "/v1/forecast", "/console/dead/redrive"} {
		for _, dest := range []string{"empty", "image", "iframe"} {
			require.Equal(t, 403, ask(path, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", dest), path)
		}
		require.Equal(t, 403, ask(path, "Sec-Fetch-Site", "cross-site"), path)
	}
	require.Zero(t, d.Calls.Load())
	require.Equal(t, 200, ask("/console/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"))
	require.Equal(t, 200, ask("/v1/tasks/1", "Sec-Fetch-Site", "same-origin"))
	require.Equal(t, 200, ask("/v1/tasks/1", "Sec-Fetch-Site", "none"), "typed by hand")
	require.Equal(t, 200, ask("/healthz", "Sec-Fetch-Site", "cross-site"))
}

// Only nodes change something at each other: a token is not enough, and where there is one node the routes do not exist.
func TestRoutesAmongNodes(t *testing.T) {
	for _, path := range []string{"/v1/cluster/wake", "/v1/cluster/limits", "/v1/cluster/unanswered"} {
		body := map[string]string{"/v1/cluster/wake": `{"job_ids":["1"]}`, "/v1/cluster/limits": `{"from":"n2 X","seq":1,"asks":[{"biz_type":"x"}]}`}[path]
		d := newFakeCenter(t)
		proving := newFake(d, withTokens("alpha"), func(c *rest.Config) { c.Peers = peerproof.New("n1", func() []string { return []string{"secret"} }) })
		require.Contains(t, call(proving, "POST", path, body, "Authorization", "Bearer alpha").problem(t, 401).Detail, "for other nodes of the cluster")
		alone := newFake(d, withTokens("alpha"), func(c *rest.Config) { c.Alone = true })
		require.Contains(t, call(alone, "POST", path, body, "Authorization", "Bearer alpha").problem(t, 404).Detail, "there are no other nodes")
		require.Zero(t, d.Calls.Load())
	}
}

// A page whose name was made to mean 127.0.0.1 is of one origin with a center there.
func TestNamesThatMeanLoopback(t *testing.T) {
	ask := func(server *httptest.Server, path, host string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		req.Host = host
		res, err := server.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	open := httptest.NewServer(newFake(newFakeCenter(t)))
	defer open.Close()
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LocalHost:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200, "10.0.0.1": 200, "x": 200, "toc.localhost:8080": 200, "toc:8080": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "evil.example.": 403, "ai.": 403, "localhost.": 200, "toc.localhost.": 200,
	} {
		require.Equal(t, want, ask(open, "/v1/tasks/1", host), host)
		require.Equal(t, 200, ask(open, "/healthz", host), host)
	}
	guarded := httptest.NewServer(newFake(newFakeCenter(t), withTokens("alpha")))
	defer guarded.Close()
	require.Equal(t, 401, ask(guarded, "/v1/tasks/1", "toc.example"))
}
