package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

// call is a request as the receiver saw it.
type call struct {
	*http.Request
	body []byte
}

// record answers 204 and hands on what came.
func record(t testing.TB) (*receiver, <-chan call) {
	calls := make(chan call, 16)
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusNoContent)
		calls <- call{r, body}
	}), calls
}

// A biz_id that is a text is sent as it is, and so are the promised time and the task's own time-out.
func TestCallOfATextAndAPromise(t *testing.T) {
	r, calls := record(t)
	o := order()
	o.BizKey, o.Timeout, o.DueTime = "6f1c-é", 1500*time.Millisecond, o.ActionTime.Add(-time.Minute)
	o.BizID = task.HashBizKey(o.BizKey)
	require.NoError(t, open(t, webhook.Config{URL: r.URL}).Process(t.Context(), o))
	var got map[string]any
	require.NoError(t, json.Unmarshal((<-calls).body, &got))
	require.Equal(t, []any{"6f1c-é", "1.5s", "2026-01-02T15:03:05.000Z"}, []any{got["biz_id"], got["timeout"], got["due_time"]})
	require.NotContains(t, got, "running")
}

func TestCallIsTheTaskAsJSON(t *testing.T) {
	r, calls := record(t)
	before := time.Now().Unix()
	require.NoError(t, open(t, webhook.Config{URL: r.URL + "/fire?k=v"}).Process(t.Context(), order()))

	got := <-calls
	require.Equal(t, http.MethodPost, got.Method)
	require.Equal(t, "/fire?k=v", got.RequestURI)
	require.Equal(t, string(api.From(order(), "order_close").AppendJSON(nil)), string(got.body))
	require.EqualValues(t, len(got.body), got.ContentLength)

	require.Equal(t, "application/json", got.Header.Get("content-type"))
	require.Regexp(t, `^toc/\S+$`, got.Header.Get("user-agent"))
	require.Equal(t, "413351953711104", got.Header.Get("webhook-id"))
	require.Equal(t, "3", got.Header.Get("toc-attempt"))
	sent, err := strconv.ParseInt(got.Header.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, sent, before)
	require.LessOrEqual(t, sent, time.Now().Unix())
	for _, absent := range []string{"webhook-signature", "idempotency-key", "authorization", "accept-encoding"} {
		require.NotContains(t, got.Header, http.CanonicalHeaderKey(absent))
	}
}

func TestFirstAttemptIsOne(t *testing.T) {
	r, calls := record(t)
	fresh := order()
	fresh.Attempts = 0
	require.NoError(t, open(t, webhook.Config{URL: r.URL}).Process(t.Context(), fresh))
	require.Equal(t, "1", (<-calls).Header.Get("toc-attempt"))
}

func TestSignature(t *testing.T) {
	const issued = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	byIssued, err := standardwebhooks.NewWebhook(issued)
	require.NoError(t, err)
	byBytes, err := standardwebhooks.NewWebhookRaw([]byte("a plain phrase"))
	require.NoError(t, err)

	for secret, verifier := range map[string]*standardwebhooks.Webhook{issued: byIssued, "a plain phrase": byBytes} {
		r, calls := record(t)
		require.NoError(t, open(t, webhook.Config{URL: r.URL, Secret: secret}).Process(t.Context(), order()))
		got := <-calls
		require.NoError(t, verifier.Verify(got.body, got.Header))
		require.Error(t, verifier.Verify(append(got.body, ' '), got.Header), "another body")
		got.Header.Set("webhook-id", "1")
		require.Error(t, verifier.Verify(got.body, got.Header), "another task")
	}
	r, calls := record(t)
	require.NoError(t, open(t, webhook.Config{URL: r.URL, Secret: issued, PreviousSecret: "a plain phrase"}).Process(t.Context(), order()))
	got := <-calls
	require.NoError(t, byIssued.Verify(got.body, got.Header))
	require.NoError(t, byBytes.Verify(got.body, got.Header), "until all receivers know the new one")
}

func TestPasswordInTheURL(t *testing.T) {
	r, calls := record(t)
	url := strings.Replace(r.URL, "http://", "http://shop:open%20sesame@", 1)
	require.NoError(t, open(t, webhook.Config{URL: url}).Process(t.Context(), order()))
	user, password, ok := (<-calls).BasicAuth()
	require.True(t, ok)
	require.Equal(t, []string{"shop", "open sesame"}, []string{user, password})
}

func TestEveryStatus(t *testing.T) {
	want := func(code int, retryAfter string) string {
		switch {
		case code < 300:
			return "processed"
		case code == 410:
			return "discarded"
		case (code == 429 || code == 503) && retryAfter == "7":
			return "again in 7s"
		case (code == 429 || code == 503) && retryAfter == "86400":
			return "again in 10m0s"
		default:
			return "failed"
		}
	}
	var code atomic.Int32
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(int(code.Load()))
	})
	for _, retryAfter := range []string{"", "7", "86400", "soon"} {
		w := open(t, webhook.Config{URL: r.URL + "/?after=" + retryAfter})
		for c := 200; c <= 599; c++ {
			code.Store(int32(c))
			err := w.Process(t.Context(), order())
			require.Equal(t, want(c, retryAfter), outcome(err), "%d, Retry-After %q", c, retryAfter)
			if err != nil {
				require.ErrorContains(t, err, fmt.Sprintf("POST %s: %d", r.Listener.Addr(), c))
			}
		}
	}
	require.LessOrEqual(t, r.connections(), 4, "one connection for each of the four")
}

func TestInterimAnswersAreNotTheAnswer(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusGone)
	})
	require.Equal(t, "discarded", outcome(open(t, webhook.Config{URL: r.URL}).Process(t.Context(), order())))
}

func TestSwitchingProtocolsIsAFailedRun(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the caller hangs up
		conn.Close()
	})
	err := open(t, webhook.Config{URL: r.URL}).Process(t.Context(), order())
	require.EqualError(t, err, fmt.Sprintf("POST %s: 101 Switching Protocols", r.Listener.Addr()))
}

func TestRedirectIsNotFollowed(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/fire" {
			panic("followed to " + r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere?token=hidden", http.StatusTemporaryRedirect)
	})
	err := open(t, webhook.Config{URL: r.URL + "/fire"}).Process(t.Context(), order())
	require.EqualError(t, err, fmt.Sprintf("POST %s: 307 Temporary Redirect: redirects are not followed", r.Listener.Addr()))
}

func TestRefusedSettings(t *testing.T) {
	const noURL, noBase64 = "url is not an absolute URL; write http", "secret is not base64 after whsec_"
	for _, c := range []struct {
		cfg  webhook.Config
		want string
	}{
		{webhook.Config{}, noURL},
		{webhook.Config{URL: "/fire"}, noURL},
		{webhook.Config{URL: "ftp://shop/fire"}, noURL},
		{webhook.Config{URL: "http://:80/fire"}, noURL},
		{webhook.Config{URL: "http://u:s3cret@shop:port/"}, noURL},
		{webhook.Config{URL: "http://shop/", Secret: "whsec_s3cret!"}, noBase64},
		{webhook.Config{URL: "http://shop/", Secret: "whsec_"}, noBase64},
		{webhook.Config{URL: "http://shop/", Timeout: -time.Second}, "timeout -1s is less than 0"},
	} {
		_, err := webhook.New(orderClose, c.cfg)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
