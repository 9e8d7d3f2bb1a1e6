package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/task"
)

// The headers of a call, in the form that http.Header keeps.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	headerAttempt   = "Toc-Attempt"
	headerTrace     = "Traceparent"
)

// newTemplate makes what all calls have in common. Its headers are shared by
// all calls and must not be changed.
func newTemplate(u *url.URL) *http.Request {
	req := &http.Request{
		Method: http.MethodPost,
		URL:    u,
		Host:   u.Host,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/json"},
			"User-Agent":   {userAgent()},
			// This header allows net/http to repeat a POST; without a value it is
			// not sent. It must not be: a receiver that keeps its answers by this
			// key would give a failed run's answer to the retries too. To
			// receivers, webhook-id is the key.
			"Idempotency-Key": nil,
		},
	}
	if u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	return req
}

// send makes the call, and makes it once more if the connection of the pool that
// it was given turns out dead: many servers close an idle connection after a few
// seconds, and a call that crosses the close would else be a failed run though
// nothing is wrong. The same holds for a connection that fell silent and was
// found dead by a ping before the call's own time was over.
//
// net/http can repeat a POST itself, but does so on one old connection after
// the other: a receiver that crashes on a task would be hit as many times as
// there are idle connections. So GetBody makes it return errHungUp instead, and
// send makes the one repeat on a new connection.
func (w *Processor) send(ctx context.Context, m message) (*http.Response, error) {
	req, err := w.request(ctx, m)
	if err != nil {
		return nil, err
	}
	// The transport itself, not an http.Client: no redirect is followed and no
	// cookie kept.
	resp, err := w.pool.RoundTrip(req)
	if !errors.Is(err, errHungUp) && !httppool.IsLost(err) {
		return resp, err
	}
	if req, err = w.request(ctx, m); err != nil {
		return nil, err
	}
	// New connections of HTTP/2 are shared by calls of the same moment, and close after the first. A call that comes too late
	// was not sent: net/http may take the next one. It repeats none that was sent on a new connection.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.body)), nil }
	return w.fresh.RoundTrip(req)
}

// errHungUp means that a connection of the pool was closed without an answer.
var errHungUp = errors.New("the connection was closed without an answer")

// message is what a call says.
type message struct {
	id      string // webhook-id
	attempt string // toc-attempt; empty: the header is left out
	trace   string // traceparent; the same
	body    []byte
}

// single is the call of one task. Its body is not in a pooled buffer: the
// transport may read it still when the call is over, and one right-sized
// allocation among the dozens of a call is not worth that trap.
func (w *Processor) single(t task.Task) message {
	return message{strconv.FormatUint(t.JobID, 10), strconv.Itoa(t.Attempts + 1), t.Trace, api.From(t, w.bizType).AppendJSON(nil)}
}

func (w *Processor) request(ctx context.Context, m message) (*http.Request, error) {
	now := time.Now()
	req := w.template.WithContext(ctx)
	req.Header = make(http.Header, 8)
	for key, values := range w.template.Header {
		req.Header[key] = values
	}
	req.Header[headerID] = []string{m.id}
	req.Header[headerTimestamp] = []string{strconv.FormatInt(now.Unix(), 10)}
	if m.attempt != "" {
		req.Header[headerAttempt] = []string{m.attempt}
	}
	if m.trace != "" {
		req.Header[headerTrace] = []string{m.trace}
	}
	if len(w.signers) > 0 {
		signatures := make([]string, len(w.signers))
		for i, signer := range w.signers {
			var err error
			if signatures[i], err = signer.Sign(m.id, now, m.body); err != nil {
				return nil, fmt.Errorf("sign: %w", err)
			}
		}
		req.Header[headerSignature] = []string{strings.Join(signatures, " ")} // as Standard Webhooks wants
	}
	req.ContentLength = int64(len(m.body))
	req.Body = io.NopCloser(bytes.NewReader(m.body))
	// Asked for when net/http wants to repeat the call.
	req.GetBody = func() (io.ReadCloser, error) { return nil, errHungUp }
	return req, nil
}

// NewSigner reads a secret as Config.Secret has it. What it gives signs calls, and verifies them.
func NewSigner(secret string) (*standardwebhooks.Webhook, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	if !ok {
		return standardwebhooks.NewWebhookRaw([]byte(secret))
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, errors.New("secret is not base64 after whsec_; write it as it was issued")
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// userAgent is toc/ and the version of this module in the running program.
func userAgent() string {
	const module = "github.com/timeoutcenter/toc"
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "" {
				version = strings.Trim(m.Version, "()")
			}
		}
	}
	return "toc/" + version
}
