package rest

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
)

// authorize lets a request through if it carries one of the tokens, if another node has
// proved that it sent it, or if its route needs no token.
func authorize(next http.Handler, tokens func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case peerproof.Proved(r.Context()), isKnown(tokens(), bearer(r)):
			LetIn(r)
		case isOpen(r):
			r = r.WithContext(context.WithValue(r.Context(), anonymous{}, true))
		default:
			p := newProblem(http.StatusUnauthorized, "send Authorization: Bearer and one of the tokens of http.tokens")
			p.headers = http.Header{"Www-Authenticate": {`Bearer realm="toc"`}}
			writeProblem(w, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// anonymous marks the context of a request that was let in without a token where there are some.
type anonymous struct{}

// isOpen reports whether a request needs no token: a probe has none, and a browser that
// reads the documentation sends none. The answers hold no secret.
func isOpen(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/docs", "/openapi.json", "/openapi.yaml":
		return true
	}
	return false
}

// bearer gives the token of a request; "" if it carries none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// isKnown compares hashes, and all of them, so that its time reveals nothing
// about the tokens, not even their lengths.
func isKnown(tokens []string, token string) bool {
	given := sha256.Sum256([]byte(token))
	found := 0
	for _, t := range tokens {
		known := sha256.Sum256([]byte(t))
		found |= subtle.ConstantTimeCompare(known[:], given[:])
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

// noDomain refuses a request that reached a loopback address under a
// domain name. A page whose name its owner points at 127.0.0.1 (DNS rebinding) is of
// one origin with a center there, so a browser lets it read and change everything. Nor does
// it do the work of a read that a page of another site asks for, which could not see the answer. With
// tokens there is no need: a page does not know them.
func noDomain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !isOpen(r) && !peerproof.Proved(r.Context()) && isDomain(r.Host) {
			writeProblem(w, newProblem(http.StatusForbidden,
				"the Host header is a domain name; ask by localhost or an address, or set http.tokens"))
			return
		}
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !isLink(r) && !isOpen(r) {
			writeProblem(w, newProblem(http.StatusForbidden, "a browser sent this from another site"))
			return
		}
		LetIn(r)
		next.ServeHTTP(w, r)
	})
}

// isLink reports whether a browser goes to a page because somebody has clicked on a link to it.
func isLink(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// isDomain reports whether a Host header is a name that somebody on the internet may
// own. An address is none, nor is a single label without a dot behind it.
func isDomain(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return strings.Contains(host, ".") && name != "localhost" && !strings.HasSuffix(name, ".localhost") && net.ParseIP(host) == nil
}

// isAmongNodes are the routes that take no token, but a node's proof.
var isAmongNodes = map[string]bool{"/v1/cluster/wake": true, "/v1/cluster/limits": true, "/v1/cluster/unanswered": true}

// checkPeers refuses who says to be a node and does not prove it.
func (a *handlers) checkPeers(next http.Handler) http.Handler {
	refused := func(w http.ResponseWriter, err error) {
		writeProblem(w, newProblem(http.StatusUnauthorized, err.Error()))
	}
	return a.cfg.Peers.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, forwarded := r.Header[api.HeaderForwarded]
		switch among := isAmongNodes[r.URL.Path]; {
		case among && a.cfg.Alone:
			writeProblem(w, newProblem(http.StatusNotFound, "there are no other nodes: cluster.provider is single"))
			return
		case (among || forwarded) && a.cfg.Peers.Proves() && !peerproof.Proved(r.Context()):
			refused(w, errors.New("this is for other nodes of the cluster, which prove that they know cluster.secret"))
			return
		}
		next.ServeHTTP(w, r)
	}), refused)
}

// fromPeer marks the context of a forwarded request for the center.
func fromPeer(ctx context.Context, h http.Header) context.Context {
	if _, forwarded := h[api.HeaderForwarded]; !forwarded {
		return ctx
	}
	question, _ := strconv.ParseUint(h.Get(api.HeaderQuestion), 10, 64)
	return intake.Forwarded(ctx, h.Get(api.HeaderForwarded), question)
}
