package peerproof_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster/peerproof"
)

// FuzzHandler has somebody without the key say anything at the door of a node: it is never believed. What a node that
// has the key sends is, once.
func FuzzHandler(f *testing.F) {
	f.Add("POST", "/v1/tasks/1/cancel", "n2 1763856000000 nonce hash mac", "{}", `"tag"`)
	f.Add("GET", "/", "    ", "", "")
	f.Add("PUT", "/a?b=c\n", "n1 9223372036854775807 x y z", "\x00", "*")
	key := func(k string) func() []string { return func() []string { return []string{k} } }
	n1, n2, stranger := peerproof.New("n1", key("the right key")), peerproof.New("n2", key("the right key")), peerproof.New("n2", key("another key"))
	believed, refused := 0, 0
	door := n1.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peerproof.Proved(r.Context()) {
			believed++
		}
		w.WriteHeader(http.StatusNoContent)
	}), func(w http.ResponseWriter, err error) {
		refused++
		w.WriteHeader(http.StatusUnauthorized)
	})
	f.Fuzz(func(t *testing.T, method, target, given, body, tag string) {
		if _, err := http.NewRequest(method, "http://n1"+target, nil); err != nil || !strings.HasPrefix(target, "/") {
			return // no such request can be sent
		}
		request := func() *http.Request {
			r, err := http.NewRequest(method, "http://n1"+target, strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Add("If-Match", tag)
			return r
		}
		ask := func(by *peerproof.Prover, forged string) error {
			_, err := by.Transport("n1", roundTrip(func(r *http.Request) (*http.Response, error) {
				if forged != "" {
					r.Header.Set(peerproof.Header, forged)
				}
				a := httptest.NewRecorder()
				door.ServeHTTP(a, r)
				return a.Result(), nil
			})).RoundTrip(request())
			return err
		}
		believed, refused = 0, 0
		require.Error(t, ask(stranger, ""))
		require.Equal(t, []int{0, 1}, []int{believed, refused})
		if given != "" {
			require.Error(t, ask(n2, given))
			require.Zero(t, believed, "%q", given)
		}
		require.NoError(t, ask(n2, ""))
		require.Equal(t, 1, believed)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
