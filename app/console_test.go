package app_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// browser opens pages of a center, like one that is logged in.
type browser struct {
	t      *testing.T
	base   string
	client *http.Client
	cookie *http.Cookie
}

func newBrowser(t *testing.T, c *center) *browser {
	return &browser{t, "http://" + c.Addr(), &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil}
}

func (b *browser) send(method, path string, form url.Values) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	a, err := b.client.Do(r)
	require.NoError(b.t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(b.t, err)
	for _, c := range a.Cookies() {
		b.cookie = c
	}
	return a, string(text)
}

func (b *browser) page(path string) string {
	b.t.Helper()
	a, text := b.send("GET", path, nil)
	require.Equal(b.t, 200, a.StatusCode, text)
	return text
}

// A center serves its console to whoever logs in; what a person does there is done, and is in the audit under console.
func TestConsole(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.HTTP.Tokens = []string{"let-me-in-0123456"}
	fired := newLedger()
	c := run(t, cfg, app.WithProcessor("ledger", fired))
	b := newBrowser(t, c)
	a, _ := b.send("GET", "/console/", nil)
	require.Equal(t, 303, a.StatusCode)
	a, _ = b.send("POST", "/console/login", url.Values{"token": {"let-me-in-0123456"}})
	require.Equal(t, 303, a.StatusCode)
	require.Contains(t, b.page("/console/"), "nothing is overdue")

	got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 42, ActionTime: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	task := "/console/tasks/" + got.Task.JobID.String()
	require.Contains(t, b.page(task), "its time has not come")
	a, text := b.send("POST", "/console/types/order_close/pause", url.Values{"reason": {"the shop is down"}})
	require.Equal(t, 303, a.StatusCode, text)
	require.Contains(t, b.page("/console/types/order_close"), "the shop is down")
	require.Equal(t, "console", bizTypeNow(t, c, "order_close").Paused.By)
	a, text = b.send("POST", "/console/types/order_close/resume", nil)
	require.Equal(t, 303, a.StatusCode, text)
	a, text = b.send("POST", task+"/run-now", nil)
	require.Equal(t, 303, a.StatusCode, text)
	await.That(t, func() bool { return strings.Contains(b.page(task), "Processed, and recorded") }, "it is processed")
	await.That(t, func() bool { return strings.Contains(b.page("/console/"), "last five minutes&#39; 1 run, ") }, "its run is counted")
	await.That(t, func() bool { return strings.Contains(b.page("/console/types/order_close"), "1 processed") }, "its outcome is counted")

	p, err := c.Tasks().Audit(t.Context(), client.Audit{})
	require.NoError(t, err)
	var did []string
	for _, e := range p.Entries {
		require.Equal(t, "console", e.Actor)
		did = append(did, e.Action)
	}
	require.ElementsMatch(t, []string{"reschedule", "resume", "pause"}, did) // two of them may be of one millisecond
	require.Contains(t, scrape1(t, b), `route="POST /console/tasks/{job_id}/run-now"`, "its requests are counted by their routes")
}

// scrape1 reads the metrics with the token.
func scrape1(t *testing.T, b *browser) string {
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.base+"/metrics", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer let-me-in-0123456")
	a, err := b.client.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return string(text)
}

func TestWithoutConsole(t *testing.T) {
	t.Parallel()
	cfg := fewTables(t)
	cfg.HTTP.Console = false
	b := newBrowser(t, run(t, cfg, app.WithProcessor("ledger", newLedger())))
	for _, p := range []string{"/console/", "/console", "/console/login", "/console/assets/console.js"} {
		a, _ := b.send("GET", p, nil)
		require.Equal(t, 404, a.StatusCode, p)
	}
}

// Each node's console shows the whole center: what the others do, and who owns what.
func TestConsoleOfACluster(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix()+"toc")
	fired := newLedger()
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", fired))
	awaitShares(t, nodes)
	var list []client.Submit
	for i := range uint64(64) {
		list = append(list, client.Submit{BizType: "order_close", BizID: i, ActionTime: time.Now()})
	}
	_, err := nodes[0].Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	fired.await(t, 64)
	for _, n := range nodes {
		b := newBrowser(t, n)
		b.send("POST", "/console/login", url.Values{"token": {cfg.HTTP.Tokens[0]}})
		await.That(t, func() bool {
			text := b.page("/console/")
			return strings.Contains(text, "64 runs") && strings.Contains(text, "Of 2 nodes.")
		}, "the runs of both nodes are shown")
		await.That(t, func() bool { // a database may be slow meanwhile
			text := b.page("/console/cluster")
			return strings.Contains(text, "Each has its owner.") && strings.Count(text, `<span class="tag ok">ready</span>`) == 2 &&
				strings.Contains(text, `id="node-`+nodes[0].Node()+`"`) && strings.Contains(text, `id="node-`+nodes[1].Node()+`"`)
		}, "both nodes are shown")
	}
	found := client.New("consul://"+consul.Addr()+"/"+cfg.Cluster.Consul.Prefix, client.WithToken(cfg.HTTP.Tokens[0]),
		client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}))
	await.That(t, func() bool { // a node reports after a while that it is ready
		got, err := found.Cluster(t.Context())
		return err == nil && len(got.Nodes) == 2
	}, "a client finds both nodes by their service in Consul")
	require.NoError(t, nodes[1].stop())
	b := newBrowser(t, nodes[0])
	b.send("POST", "/console/login", url.Values{"token": {cfg.HTTP.Tokens[0]}})
	await.That(t, func() bool {
		text := b.page("/console/cluster")
		return strings.Contains(text, "<td>"+nodes[1].Node()+"</td>") && strings.Contains(text, "on 1 node. Each has its owner.")
	}, "the owner changes that the node has seen are shown")
}
