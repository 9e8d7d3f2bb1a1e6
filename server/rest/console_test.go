package rest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pages are the console's, everything else the API's; a browser that asks for / is led to the pages.
func TestWithConsole(t *testing.T) {
	t.Parallel()
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(name)) })
	}
	h := withConsole(named("api"), named("console"))
	ask := func(method, path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for path, want := range map[string]string{"/console": "console", "/console/": "console", "/console/tasks/1": "console",
		"/consoles": "api", "/v1/tasks": "api", "/docs": "api"} {
		require.Equal(t, want, ask("GET", path, browser).Body.String(), path)
	}
	require.Equal(t, "/console/", ask("GET", "/", browser).Header().Get("Location"))
	require.Equal(t, "api", ask("GET", "/", "*/*").Body.String())
	require.Equal(t, "api", ask("POST", "/", browser).Body.String())
}
