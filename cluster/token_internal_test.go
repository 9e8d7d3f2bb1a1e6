package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type sent struct{ tokens []string }

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.tokens = append(s.tokens, r.Header.Get("X-Consul-Token"))
	return &http.Response{}, nil
}

// Each request has the token of its time. A file that is being replaced is missing or empty for a moment.
func TestARequestHasTheTokenOfItsTime(t *testing.T) {
	var log bytes.Buffer
	token, err := "", errors.New("is missing")
	wire := &sent{}
	tt := &tokenTransport{base: wire, read: func() (string, error) { return token, err }, logger: slog.New(slog.NewTextHandler(&log, nil))}
	ask := func() error {
		r, e := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://consul/", nil)
		require.NoError(t, e)
		_, e = tt.RoundTrip(r)
		require.Empty(t, r.Header, "the caller's request is left as it is")
		return e
	}
	e := ask()
	require.EqualError(t, e, "no consul token: is missing")
	require.False(t, unreachable(e), "nothing was asked")
	token, err = "one", nil
	require.NoError(t, ask())
	token, err = "", errors.New("is empty")
	require.NoError(t, ask())
	require.NoError(t, ask())
	token, err = "two", nil
	require.NoError(t, ask())
	require.Equal(t, []string{"one", "one", "one", "two"}, wire.tokens)
	require.Equal(t, 1, strings.Count(log.String(), "the consul token cannot be read; the last one stays in use"))
	require.NotContains(t, log.String(), "one\n")
}
