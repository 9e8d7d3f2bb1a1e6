package cluster

import (
	"log/slog"
	"net/http"

	"github.com/timeoutcenter/toc/internal/logqueue"
)

// tokenTransport adds the ACL token that is in force to each request, so that a token that is replaced needs no
// restart.
type tokenTransport struct {
	base   http.RoundTripper
	read   func() (string, error)
	logger *slog.Logger

	mu     logqueue.Mutex
	last   string // the last token that could be read
	failed string // why the last reading failed; "": it did not
}

// tokenError: there is no token to send.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return "no consul token: " + e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// RoundTrip sends a request.
func (t *tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.current()
	if err != nil {
		return nil, err
	}
	if token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-Consul-Token", token)
	}
	return t.base.RoundTrip(r)
}

// CloseIdleConnections closes those of the transport below.
func (t *tokenTransport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// current returns the token. One that cannot be read, for example while its file is replaced, stays in force.
func (t *tokenTransport) current() (string, error) {
	token, err := t.read()
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := ""
	if err != nil {
		failed = err.Error()
		token = t.last
	}
	if failed != t.failed && failed != "" && t.last != "" {
		t.mu.Log(t.logger, slog.LevelWarn, "the consul token cannot be read; the last one stays in use", "error", err)
	}
	t.failed = failed
	if err != nil && t.last == "" {
		return "", &tokenError{err}
	}
	t.last = token
	return token, nil
}
