package e2e

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
)

var hrefs = regexp.MustCompile(`\s(?:href|src)="([^"]*)"`)

// Every link leads somewhere, and none of them changes anything: links are followed by those who preload pages, too.
func TestNoLinkChangesAnything(t *testing.T) {
	t.Parallel()
	s := tell(t)
	before := s.state(t)
	get := s.browse(t)
	seen, next := map[string]bool{"/console/": true}, []string{"/console/"}
	for len(next) > 0 && len(seen) < 1000 {
		path := next[0]
		next = next[1:]
		status, body := get(path)
		require.Equal(t, http.StatusOK, status, path)
		here, err := url.Parse(path)
		require.NoError(t, err)
		for _, m := range hrefs.FindAllStringSubmatch(body, -1) {
			at, err := url.Parse(html.UnescapeString(m[1]))
			require.NoError(t, err, "%s links to %s", path, m[1])
			if at.Scheme == "data" {
				continue
			}
			at = here.ResolveReference(at)
			require.Empty(t, at.Host, "%s links to another site: %s", path, m[1])
			at.Fragment = ""
			if to := at.RequestURI(); !seen[to] && strings.HasPrefix(to, "/console/") {
				seen[to], next = true, append(next, to)
			}
		}
	}
	for _, p := range s.pages() {
		status, _ := get(p.path)
		require.Equal(t, http.StatusOK, status, p.path)
	}
	require.Greater(t, len(seen), 30, "the console has more links than that")
	require.Equal(t, before, s.state(t))
}

// browse gives a reader that is logged in, without a browser.
func (c *center) browse(t *testing.T) func(path string) (status int, body string) {
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := stay.PostForm(c.url+"/console/login", url.Values{"token": {token}})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, resp.Cookies(), 1)
	return func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
		require.NoError(t, err)
		req.AddCookie(resp.Cookies()[0]) // which a jar would keep back: it is for https, or for a browser that knows loopback
		got, err := stay.Do(req)
		require.NoError(t, err)
		defer got.Body.Close()
		body, err := io.ReadAll(io.LimitReader(got.Body, 4<<20))
		require.NoError(t, err)
		return got.StatusCode, string(body)
	}
}

// state is what an act would change.
func (s *story) state(t *testing.T) any {
	t.Helper()
	var state struct {
		Tasks      []string
		Audit      []client.AuditEntry
		Operations []client.Operation
		Paused     []string
	}
	for _, one := range []client.Task{s.pending, s.processed, s.dead, s.cancelled, s.failed, s.running} {
		got, err := s.api.Get(t.Context(), uint64(one.JobID))
		require.NoError(t, err)
		state.Tasks = append(state.Tasks, got.ETag)
	}
	audit, err := s.api.Audit(t.Context(), client.Audit{})
	require.NoError(t, err)
	state.Audit = audit.Entries
	state.Operations, err = s.api.Operations(t.Context(), 0)
	require.NoError(t, err)
	types, err := s.api.BizTypes(t.Context())
	require.NoError(t, err)
	for _, b := range types {
		if b.Paused != nil {
			state.Paused = append(state.Paused, b.Name)
		}
	}
	return state
}
