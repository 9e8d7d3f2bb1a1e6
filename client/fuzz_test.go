package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/timeoutcenter/toc/client"
)

// FuzzAnswer has something answer that is no center: a client says so, or reads it, and never panics.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "application/json", `{"job_id":"1","biz_id":"x","status":"pending","action_time":"2030-01-02T15:04:05Z"}`, "3")
	f.Add(422, "application/problem+json", `{"status":"422","errors":[null,{"location":5}]}`, "-1")
	f.Add(412, "application/problem+json", `{"task":{}}`, "")
	f.Add(503, "text/html", "<h1>\xff", "99999999999999999999")
	f.Fuzz(func(t *testing.T, status int, contentType, body, retryAfter string) {
		if status < 100 || status > 999 {
			return
		}
		c := client.New("http://center", client.WithHTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}, "Retry-After": {retryAfter}, "Etag": {contentType}},
				Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})}))
		ask := func(_ any, err error) {
			var refused *client.Error
			if errors.As(err, &refused) {
				_ = refused.Error()
			}
		}
		ask(c.Get(t.Context(), 1))
		ask(c.Submit(t.Context(), client.Submit{BizType: "a", Now: true}))
		ask(c.SubmitBatch(t.Context(), []client.Submit{{BizType: "a", Now: true}}))
		ask(c.List(t.Context(), client.List{BizID: 1}))
		ask(c.Cluster(t.Context()))
		ask(nil, c.Cancel(t.Context(), 1))
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
