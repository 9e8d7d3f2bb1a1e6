package forward_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

const id = uint64(413351953711104)

const secret = "a secret in a body"

// says answers with a problem.
func says(status int, members string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"status":%d,"title":"t","detail":"%s"%s}`, status, secret, members)
	}
}

func plain(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// raw answers with bytes and hangs up.
func raw(bytes string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, bytes)
		_ = conn.Close()
	}
}

// ask asks each question once.
func ask(ctx context.Context, owner intake.Peer) map[string]error {
	_, reschedule := owner.Reschedule(ctx, id, in(time.Hour))
	_, redrive := owner.Redrive(ctx, id)
	return map[string]error{"cancel": owner.Cancel(ctx, id), "reschedule": reschedule, "redrive": redrive}
}

func TestTableOfAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"processed": {says(409, `,"outcome":"already_processed"`), &task.ConflictError{JobID: id, Conflict: task.ConflictProcessed}},
		"cancelled": {says(409, `,"outcome":"already_cancelled"`), &task.ConflictError{JobID: id, Conflict: task.ConflictCancelled}},
		"dead":      {says(409, `,"outcome":"dead"`), &task.ConflictError{JobID: id, Conflict: task.ConflictDead}},
		"running":   {says(409, `,"outcome":"running"`), &task.ConflictError{JobID: id, Conflict: task.ConflictRunning}},
		"leased": {says(409, `,"outcome":"running","leased_until":"2030-01-02T03:04:05.678Z"`),
			&task.ConflictError{JobID: id, Conflict: task.ConflictRunning, Until: time.Date(2030, 1, 2, 3, 4, 5, 678e6, time.UTC)}},
		"pending":   {says(409, `,"outcome":"pending"`), &task.ConflictError{JobID: id, Conflict: task.ConflictPending}},
		"not found": {says(404, ""), task.ErrNotFound},
		"field": {says(422, `,"errors":[{"location":"body.delay","message":"is wrong"},{"location":"body.x","message":"y"}]`),
			&task.FieldError{Field: "delay", Message: "is wrong"}},
		"body": {says(422, `,"errors":[{"location":"body","message":"is wrong"}]`), &task.FieldError{Field: "body", Message: "is wrong"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, l := one(t, serve(t, row.answer).URL+"/")
			for what, err := range ask(t.Context(), the(t, p)) {
				require.Equal(t, row.want, err, what)
			}
			require.Empty(t, l.String())
		})
	}
}

// An answer that is not a Service's leaves the outcome open, and no part of it gets into a message.
func TestWhateverElseIsUnavailable(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		reason string
	}{
		"not now":                {says(503, ""), "status 503"},
		"a conflict of another":  {says(409, `,"outcome":"`+secret+`"`), "status 409"},
		"a conflict without one": {says(409, ""), "status 409"},
		"a refusal of nothing":   {says(422, ""), "status 422"},
		"changed, but how":       {says(412, ""), "status 412"},
		"another one is changed": {says(412, `,"task":{"job_id":"1","status":"pending"}`), "it is another task"},
		"wrong token":            {says(401, ""), "status 401"},
		"failed":                 {says(500, ""), "status 500"},
		"not of ours":            {plain(502, "<h1>"+secret+"</h1>"), "status 502"},
		"a redirect":             {plain(302, secret), "status 302"},
		"no JSON":                {plain(200, secret), "cannot be read"},
		"nothing":                {plain(200, ""), "cannot be read"},
		"no HTTP":                {raw("HTTP/1.1 2x0 " + secret + "\r\n\r\n"), "cannot be read"},
		"hung up":                {raw(""), "cannot be read"},
		"cut off":                {raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"outcome\":\"cancelled\""), "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, row.answer)
			p, l := one(t, s.URL)
			for what, err := range ask(t.Context(), the(t, p)) {
				require.ErrorIs(t, err, task.ErrUnavailable, what)
				require.ErrorContains(t, err, `node "n2": `)
				require.ErrorContains(t, err, row.reason)
				require.NotContains(t, err.Error(), secret)
			}
			require.EqualValues(t, 3, s.asked.Load(), "what may have been done is not tried again")
			require.NotContains(t, l.String(), secret)
			require.Equal(t, name != "not now", strings.Contains(l.String(), "node does not answer"))
		})
	}
}

// A positive answer counts only if it fits the question.
func TestAYesToSomethingElseIsNone(t *testing.T) {
	answered := func(members string) string {
		return `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"1","status":"pending","action_time":"2026-01-02T15:04:05.000Z","attempts":0` + members + `}`
	}
	for name, row := range map[string]struct {
		body   string
		reason string
	}{
		"another task":       {strings.Replace(answered(""), "413351953711104", "413351953711105", 1), "another task"},
		"an unknown status":  {strings.Replace(answered(""), "pending", "asleep", 1), "status is unknown"},
		"an empty object":    {`{}`, "another task"},
		"something for JSON": {`{"outcome":"ok"}`, "another task"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := one(t, serve(t, plain(200, row.body)).URL)
			owner := the(t, p)
			require.ErrorIs(t, owner.Cancel(t.Context(), id), task.ErrUnavailable)
			_, err := owner.Reschedule(t.Context(), id, in(time.Hour))
			require.ErrorIs(t, err, task.ErrUnavailable)
			require.ErrorContains(t, err, row.reason)
			_, err = owner.Redrive(t.Context(), id)
			require.ErrorContains(t, err, row.reason)
		})
	}
	t.Run("a type that was taken out of the configuration", func(t *testing.T) {
		p, _ := one(t, serve(t, plain(200, strings.Replace(answered(""), "order_close", "77", 1))).URL)
		got, err := the(t, p).Redrive(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "77", got.BizType)
	})
}

func TestWhatIsSent(t *testing.T) {
	var seen *http.Request
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(context.Background())
		_, _ = io.WriteString(w, `{"outcome":"cancelled"}`)
	})
	for name, header := range map[string]string{"n1": "n1", "a b\r\nX: y\x00é": "a%20b%0D%0AX:%20y%00%C3%A9", "": ""} {
		p, _ := one(t, strings.TrimPrefix(s.URL, "http://"), func(cfg *forward.Config) { cfg.Node = name })
		require.NoError(t, the(t, p).Cancel(t.Context(), id))
		require.Equal(t, "POST", seen.Method)
		require.Equal(t, "/v1/tasks/413351953711104/cancel", seen.URL.Path)
		require.Equal(t, []string{header}, seen.Header["Toc-Forwarded"])
		require.NotContains(t, seen.Header, "Authorization")
		require.NotContains(t, seen.Header, peerproof.Header)
	}
}

// A false address in Consul reveals no secret, and the answers from there are not believed. Before, each
// forwarded request showed a client's token, and tasks fired whose cancel was answered with 200.
func TestWhoDoesNotKnowTheSecretIsNotBelieved(t *testing.T) {
	proof := func(keys ...string) func(*forward.Config) {
		return func(cfg *forward.Config) { cfg.Proof = peerproof.New(cfg.Node, func() []string { return keys }) }
	}
	var seen *http.Request
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(context.Background())
		_, _ = io.WriteString(w, `{"outcome":"cancelled"}`)
	})
	p, _ := one(t, s.URL, proof(key))
	err := the(t, p).Cancel(t.Context(), id)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.ErrorContains(t, err, "does not prove that it knows cluster.secret")
	require.NotContains(t, fmt.Sprint(seen.Header), key)
	require.NotContains(t, seen.Header, "Authorization")

	c := newCluster(t)
	p, _ = one(t, c.address("n2"), proof("another-secret-0123"))
	require.ErrorContains(t, the(t, p).Cancel(t.Context(), id), "does not prove that it knows cluster.secret")
	p, _ = one(t, c.address("n2"))
	require.ErrorContains(t, the(t, p).Cancel(t.Context(), id), "it answered with status 401")
}

// A request goes to the address from the cluster, and nowhere else.
func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := serve(t, plain(200, `{"outcome":"cancelled"}`))
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	p, _ := one(t, s.URL)
	require.ErrorIs(t, the(t, p).Cancel(t.Context(), id), task.ErrUnavailable)
	require.Zero(t, elsewhere.asked.Load())
}

func TestAnOwnerThatHangsIsNotWaitedForLong(t *testing.T) {
	leave := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	defer close(leave)
	p, l := one(t, s.URL, func(cfg *forward.Config) { cfg.Timeout = time.Second })
	owner := the(t, p)
	err := owner.Cancel(t.Context(), id)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.ErrorContains(t, err, "did not answer in time")
	require.EqualValues(t, 1, s.asked.Load(), "it may have been done: it is not tried again")
	require.Contains(t, l.String(), "node does not answer")

	p, l = one(t, s.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range ask(ctx, the(t, p)) {
		require.ErrorIs(t, err, task.ErrUnavailable, what)
	}
	require.Empty(t, l.String(), "a caller that leaves says nothing about the node")
}

func TestTheLogTellsWhenANodeAnswersAgain(t *testing.T) {
	broken := true
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if broken {
			raw("")(w, r)
			return
		}
		says(404, "")(w, r)
	})
	p, l := one(t, s.URL)
	owner := the(t, p)
	ask(t.Context(), owner)
	broken = false
	ask(t.Context(), owner)
	require.Equal(t, 1, strings.Count(l.String(), "node does not answer"))
	require.Equal(t, 1, strings.Count(l.String(), "node answers again"))
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	s := serve(t, says(404, ""))
	p, _ := one(t, s.URL)
	for range 50 {
		require.ErrorIs(t, the(t, p).Cancel(t.Context(), id), task.ErrNotFound)
	}
	require.EqualValues(t, 1, s.opened.Load())
}

// A node that comes back at another address is asked there.
func TestANodeThatHasMoved(t *testing.T) {
	old, anew := serve(t, says(404, "")), serve(t, says(404, ""))
	owner := &theOther{Name: "n2", Address: old.URL}
	p, _ := one(t, "", func(cfg *forward.Config) { cfg.Cluster = owner })
	require.ErrorIs(t, the(t, p).Cancel(t.Context(), id), task.ErrNotFound)
	owner.Address = anew.URL
	require.ErrorIs(t, the(t, p).Cancel(t.Context(), id), task.ErrNotFound)
	require.EqualValues(t, 1, old.asked.Load())
	require.EqualValues(t, 1, anew.asked.Load())
}

func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	s.Config.ErrorLog = nil
	p, _ := one(t, s.URL)
	err := the(t, p).Cancel(t.Context(), id)
	require.ErrorIs(t, err, task.ErrUnavailable, "nobody vouches for its certificate")

	// And plain HTTP where TLS is spoken.
	p, _ = one(t, strings.TrimPrefix(s.URL, "https://"))
	require.ErrorIs(t, the(t, p).Cancel(t.Context(), id), task.ErrUnavailable)
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	p, _ := one(t, l.Addr().String())
	err = the(t, p).Cancel(t.Context(), id)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.ErrorContains(t, err, "connection refused")
}
