package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// authorize lets requests through that carry one of the tokens. Without any
// token it lets everybody through. /healthz and /readyz are for probes, which
// have none.
func authorize(next http.Handler, tokens []string) http.Handler {
	if len(tokens) == 0 {
		return next
	}
	known := make([][sha256.Size]byte, len(tokens))
	for i, t := range tokens {
		known[i] = sha256.Sum256([]byte(t))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
		if !open && !isKnown(known, bearer(r)) {
			p := newProblem(http.StatusUnauthorized, "send Authorization: Bearer and one of the tokens of http.tokens")
			p.headers = http.Header{"Www-Authenticate": {`Bearer realm="toc"`}}
			writeProblem(w, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer gives the token of a request; "" if it carries none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// isKnown compares hashes, and all of them, so that its time tells nothing
// about the tokens, not even their lengths.
func isKnown(known [][sha256.Size]byte, token string) bool {
	given := sha256.Sum256([]byte(token))
	found := 0
	for i := range known {
		found |= subtle.ConstantTimeCompare(known[i][:], given[:])
	}
	return found == 1 && token != ""
}

// sameOrigin refuses changes that a browser sends on behalf of a foreign site:
// a center on 127.0.0.1 is reachable from every page its user looks at.
func sameOrigin(next http.Handler) http.Handler {
	var protection http.CrossOriginProtection
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, newProblem(http.StatusForbidden, "a browser sent this from another site"))
	}))
	return protection.Handler(next)
}
