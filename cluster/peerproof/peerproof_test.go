package peerproof_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster/peerproof"
)

func keys(k ...string) func() []string { return func() []string { return k } }

// owner answers as the node n2 does.
func owner(seen *string, k ...string) http.Handler {
	refused := func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusUnauthorized) }
	return peerproof.New("n2", keys(k...)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*seen = string(body)
		if !peerproof.Proved(r.Context()) {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, "done")
	}), refused)
}

// wire sends a request to a handler, and lets somebody in between change it or its answer.
type wire struct {
	handler http.Handler
	request func(*http.Request)
	answer  func(*http.Response)
}

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.request != nil {
		w.request(r)
	}
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	a := recorder.Result()
	if w.answer != nil {
		w.answer(a)
	}
	return a, nil
}

func ask(t http.RoundTripper) (status int, body string, err error) {
	r := httptest.NewRequest("PATCH", "/v1/tasks/7?x=1", strings.NewReader(`{"delay":"1h"}`))
	r.Header.Set("If-Match", `"a"`)
	r.Header.Set("Toc-Forwarded", "n1")
	answer, err := t.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

func TestNodesProve(t *testing.T) {
	var seen string
	status, body, err := ask(peerproof.New("n 1", keys("one", "two")).Transport("n2", wire{handler: owner(&seen, "two", "one")}))
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Equal(t, "done", body)
	require.Equal(t, `{"delay":"1h"}`, seen)

	status, _, err = ask(peerproof.New("n1", nil).Transport("n2", wire{handler: owner(&seen)}))
	require.NoError(t, err)
	require.Equal(t, 403, status, "without keys nothing is proved")
	status, _, err = ask(peerproof.New("n1", nil).Transport("n2", wire{handler: owner(&seen, "one")}))
	require.NoError(t, err)
	require.Equal(t, 403, status, "who says nothing is let through as anybody is")
}

func TestWhatIsChangedOnTheWayIsRefused(t *testing.T) {
	const key = "the-secret-of-the-cluster"
	word := func(i int, w string) func(*http.Request) {
		return func(r *http.Request) {
			words := strings.Split(r.Header.Get(peerproof.Header), " ")
			words[i] = w
			r.Header.Set(peerproof.Header, strings.Join(words, " "))
		}
	}
	for name, change := range map[string]func(*http.Request){
		"method":     func(r *http.Request) { r.Method = "POST" },
		"path":       func(r *http.Request) { r.URL.Path = "/v1/tasks/8" },
		"query":      func(r *http.Request) { r.URL.RawQuery = "x=2" },
		"condition":  func(r *http.Request) { r.Header.Set("If-Match", "*") },
		"forwarded":  func(r *http.Request) { r.Header.Del("Toc-Forwarded") },
		"question":   func(r *http.Request) { r.Header.Set("Toc-Question", "7") },
		"body":       func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"delay":"2h"}`)) },
		"long body":  func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(make([]byte, 1<<20))) },
		"node":       word(0, "n3"),
		"time":       word(1, "1"),
		"nonce":      word(2, "ABC"),
		"digest":     word(3, "00"),
		"sum":        word(4, "00"),
		"no sum":     func(r *http.Request) { r.Header.Set(peerproof.Header, "n1 1 2 3") },
		"not a word": func(r *http.Request) { r.Header.Set(peerproof.Header, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			var seen string
			_, _, err := ask(peerproof.New("n1", keys(key)).Transport("n2", wire{handler: owner(&seen, key), request: change}))
			require.ErrorContains(t, err, "(status 401) does not prove")
			require.Empty(t, seen)
		})
	}
	for name, change := range map[string]func(*http.Response){
		"status": func(a *http.Response) { a.StatusCode = 201 },
		"body":   func(a *http.Response) { a.Body = io.NopCloser(strings.NewReader("DONE")) },
		"sum":    func(a *http.Response) { a.Header.Set(peerproof.Header, "00") },
	} {
		t.Run("answer/"+name, func(t *testing.T) {
			var seen string
			_, _, err := ask(peerproof.New("n1", keys(key)).Transport("n2", wire{handler: owner(&seen, key), answer: change}))
			require.ErrorAs(t, err, new(*peerproof.AnswerError))
		})
	}
	var seen string
	_, _, err := ask(peerproof.New("n1", keys(key)).Transport("n3", wire{handler: owner(&seen, key)}))
	require.ErrorAs(t, err, new(*peerproof.AnswerError), "it was for another node")
	require.Empty(t, seen)
	_, _, err = ask(peerproof.New("n1", keys("another")).Transport("n2", wire{handler: owner(&seen, key)}))
	require.ErrorAs(t, err, new(*peerproof.AnswerError), "another secret")
	require.Empty(t, seen)
}

func TestARequestIsTakenOnce(t *testing.T) {
	const key = "the-secret-of-the-cluster"
	synctest.Test(t, func(t *testing.T) {
		var seen string
		n2 := owner(&seen, key)
		var recorded *http.Request
		transport := peerproof.New("n1", keys(key)).Transport("n2", wire{handler: n2, request: func(r *http.Request) { recorded = r.Clone(t.Context()) }})
		again := func() *httptest.ResponseRecorder {
			recorded.Body = io.NopCloser(strings.NewReader(`{"delay":"1h"}`))
			w := httptest.NewRecorder()
			n2.ServeHTTP(w, recorded)
			return w
		}
		for range 5 {
			_, _, err := ask(transport)
			require.NoError(t, err)
			for range 4 {
				time.Sleep(peerproof.Window / 4)
				require.Equal(t, "the request was taken before\n", again().Body.String())
			}
			time.Sleep(time.Second)
			require.Equal(t, "the proof is 31s old; are the clocks right?\n", again().Body.String())
			time.Sleep(peerproof.Window)
			require.Equal(t, 401, again().Code)
		}
	})
}
