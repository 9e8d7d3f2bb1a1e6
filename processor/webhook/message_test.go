package webhook_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

func TestMessageSaysWhatTheReceiverSaid(t *testing.T) {
	long := strings.Repeat("é", 200)
	for said, want := range map[string]string{
		"":                                 ": 500 Internal Server Error",
		"  no such\torder\r\n\x00\x1b[31m": ": 500 Internal Server Error: no such order [31m",
		"bad \xff byte \u202e":             ": 500 Internal Server Error: bad \ufffd byte",
		long:                               ": 500 Internal Server Error: " + strings.Repeat("é", 58) + "...",
	} {
		r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, said)
		})
		err := open(t, webhook.Config{URL: r.URL}).Process(t.Context(), order())
		require.EqualError(t, err, "POST "+r.Listener.Addr().String()+want)
		require.True(t, utf8.ValidString(err.Error()))
		require.LessOrEqual(t, len(err.Error()), task.MaxLastError)
	}
}

// TestMessageHidesSecrets calls a receiver that repeats all it was told.
func TestMessageHidesSecrets(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintln(w, "no", r.RequestURI, password, r.URL.Query().Get("token"), "phrase")
	})
	url := strings.Replace(r.URL, "http://", "http://shop:sesame@", 1) + "/path?v=1&token=t0ken%2F1"
	err := open(t, webhook.Config{URL: url, Secret: "phrase"}).Process(t.Context(), order())
	require.EqualError(t, err, fmt.Sprintf("POST %s: 403 Forbidden: no /path?*** *** *** ***", r.Listener.Addr()))
}

// Many services have the key of a webhook in its path, and frameworks repeat the path in a 404.
func TestMessageHidesKeysInThePath(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, "Cannot POST", r.RequestURI, r.Header.Get("Authorization"))
	})
	url := strings.Replace(r.URL, "http://", "http://shop:sesame@", 1) + "/services/T000/0123456789%2Fabcdef"
	err := open(t, webhook.Config{URL: url}).Process(t.Context(), order())
	require.EqualError(t, err, fmt.Sprintf("POST %s: 404 Not Found: Cannot POST /services/T000/*** Basic ***", r.Listener.Addr()))
}

func TestMessageOfARefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())

	err = open(t, webhook.Config{URL: "http://shop:sesame@" + addr + "/?token=hidden"}).Process(t.Context(), order())
	require.EqualError(t, err, fmt.Sprintf("POST %s: dial tcp %s: connect: connection refused", addr, addr))
	var cause *net.OpError
	require.ErrorAs(t, err, &cause)
}

func TestMessageOfAnAnswerThatIsNoHTTP(t *testing.T) {
	addr := script(t, "SSH-2.0-server\r\n\r\n")
	err := open(t, webhook.Config{URL: "http://" + addr}).Process(t.Context(), order())
	require.ErrorContains(t, err, `malformed HTTP response "SSH-2.0-server"`)
	require.LessOrEqual(t, len(err.Error()), task.MaxLastError)
}

func TestHeadersHaveALimit(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 128<<10))
	})
	err := open(t, webhook.Config{URL: r.URL}).Process(t.Context(), order())
	require.ErrorContains(t, err, "server response headers exceeded 65536 bytes")
}
