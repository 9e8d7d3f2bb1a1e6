package rest

import (
	"net/http"
	"strings"
)

// withConsole hands what is below /console to the console.
func withConsole(next, console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/console" || strings.HasPrefix(r.URL.Path, "/console/") {
			console.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") { // a browser
			http.Redirect(w, r, "/console/", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}
