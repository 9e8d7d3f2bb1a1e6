package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

// Who is not logged in is asked to, and then goes on to where he wanted to go. Log out ends it.
func TestLogInAndOut(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, view := range []browser.View{{}, {NoScript: true}} {
		t.Run(view.String(), func(t *testing.T) {
			tab := browser.Open(t, c.url, view)
			tab.Go("/console/audit?action=pause")
			require.True(t, strings.HasPrefix(tab.Path(), "/console/login?"), tab.Path())
			require.False(t, tab.Has("Cluster"), "the navigation is for those who are logged in")
			tab.Fill("Token", "token-of-somebody-else")
			tab.Press("Log in")
			tab.Sees("No token of this center is like that.")
			tab.Expect("401 (Unauthorized)")
			require.Empty(t, tab.Cookies())

			tab.Fill("Token", token)
			tab.Press("Log in")
			tab.Until("it is the page that was asked for", func() bool { return tab.Path() == "/console/audit?action=pause" })
			cookies := tab.Cookies()
			require.Len(t, cookies, 1)
			require.Equal(t, "__Host-toc", cookies[0].Name)
			require.True(t, cookies[0].Secure)
			require.True(t, cookies[0].HTTPOnly)
			require.Equal(t, "Strict", string(cookies[0].SameSite))
			require.NotContains(t, cookies[0].Value, token)

			tab.Press("Log out")
			tab.Until("it is the login", func() bool { return tab.Path() == "/console/login" })
			require.Empty(t, tab.Cookies())
			tab.Go("/console/cluster")
			require.True(t, strings.HasPrefix(tab.Path(), "/console/login?"), tab.Path())
		})
	}
}

// A center without tokens lets everybody in, as its API does.
func TestACenterWithoutTokens(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *configs.Config) { cfg.HTTP.Tokens = nil })
	tab := browser.Open(t, c.url, browser.View{})
	require.Equal(t, http.StatusOK, tab.Go("/console/cluster"))
	tab.Sees("node-1")
	require.False(t, tab.Has("Log out"))
}

func TestTheConsoleIsOff(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *configs.Config) { cfg.HTTP.Console = false })
	for _, path := range []string{"/console/", "/console/login", "/console/live?topic=overview", "/console/assets/console.js"} {
		resp, err := http.Get(c.url + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Contains(t, []int{http.StatusNotFound, http.StatusUnauthorized}, resp.StatusCode, path)
	}
}

// The page of the HTTP API has the address at which the reader has found it, for the examples.
func TestTheDocumentationNamesItsOwnAddress(t *testing.T) {
	t.Parallel()
	c := start(t)
	tab := browser.Open(t, c.url, browser.View{})
	require.Equal(t, http.StatusOK, tab.Go("/docs"))
	tab.Sees("export TOC_SERVER=" + c.url)
	require.Empty(t, tab.Faults())
}
