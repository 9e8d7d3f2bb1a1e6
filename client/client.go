// Package client is the Go client of the timeout center's HTTP API.
//
//	c := client.New("http://127.0.0.1:8080", client.WithToken(token))
//	s, err := c.Submit(ctx, client.Submit{
//		BizType: "order_close", BizID: 42, Delay: 30 * time.Minute, DedupKey: "order-42-unpaid",
//	})
//
// Go values come in and go out. A refusal is an *Error that carries what the
// server said; errors.Is and errors.As find the errors of package task in it:
//
//	if errors.Is(err, task.ErrUnavailable) { … } // try again
//
// It shares with the server only the JSON shapes (package api), the words (package
// task) and the rules for connections (package httppool). It repeats no request, except at another server (WithServers).
// A submit that got no answer may or may not be stored. It is safe to repeat only with a DedupKey.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/task"
)

// The shapes that the API takes and answers, as package api declares them.
type (
	Task         = api.Task        // a task
	Why          = api.Why         // where a task waits, and what holds it
	FailedRun    = api.FailedRun   // a failed run of a task, as Why returns it
	BizTypePause = api.Pause       // why and how long a business type is paused
	ID           = api.ID          // a 64-bit id, such as a job_id
	BizID        = api.BizID       // a business's own id: a number, or a text
	BatchResult  = api.BatchResult // what became of one task of a batch
	TaskError    = api.BatchError  // why one task of a batch was not stored
	Page         = api.Page        // a part of a list of tasks
	RedriveDead  = api.DeadRequest // asks to redrive many dead tasks; all of it may be left out
	Redriven     = api.Redriven    // what became of a RedriveDead
	DiscardDead  = api.DeadRequest // asks to discard many dead tasks; all of it may be left out
	Discarded    = api.Discarded   // what became of a DiscardDead
	Retried      = api.Retried     // what became of a Retry
	Forecast     = api.Forecast    // how many tasks are due when
	DeadGroups   = api.DeadGroups  // dead tasks by their error
	DeadGroup    = api.DeadGroup   // dead tasks that died of the same error
	Operation    = api.Operation   // a redrive or discard at a rate
	AuditPage    = api.AuditPage   // a part of the audit
	AuditEntry   = api.AuditEntry  // who did what
	Cluster      = api.Cluster     // who owns what
	Node         = api.Node        // one node of the cluster
	BizType      = api.BizType     // a business type and how much it has to do on the node that answered

	Submit       = api.Submit       // asks for one task
	Submitted    = api.Submitted    // answers a Submit
	Key          = api.Key          // the caller's own name for a task
	List         = api.List         // narrows a look-up by biz_id
	ListAll      = api.ListAll      // narrows a look-up over all tasks
	ListDead     = api.ListDead     // narrows a look-up of dead tasks
	AskForecast  = api.AskForecast  // asks how many tasks are due when
	Change       = api.Change       // asks for another time, attribute or timeout
	ChangeOption = api.ChangeOption // is a condition of a change
	Condition    = api.Condition    // what the ChangeOptions ask for
	Audit        = api.Audit        // narrows a look-up of the audit
	Pause        = api.AskPause     // why and how long the tasks of a business type do not start
	AskLease     = api.AskLease     // asks for tasks of a pull type
)

// Values of Submit.OnDuplicate and Submit.Past; see package api.
const (
	Keep   = api.Keep
	Again  = api.Again
	Move   = api.Move
	Refuse = api.Refuse
	Fire   = api.Fire
)

// The shapes that consumers of pull types get and send, as package api declares them.
type (
	Leased       = api.LeaseAnswer // tasks that a consumer has for a while
	LeasedTask   = api.LeasedTask  // one of them
	LeaseID      = api.Lease       // names the hand-out of a task
	Settlement   = api.Settlement  // what a consumer does with a lease
	SettleResult = api.Settled     // what became of a settlement
)

// Values of Settlement.Do.
const (
	Ack    = "ack"    // the task is processed
	Nack   = "nack"   // the run has failed: the task is tried again, or dead after max_retries
	Extend = "extend" // the lease ends later
	Reject = "reject" // the task is cancelled
	// Release says that nobody has begun the task: it is due again at once, and this was no attempt.
	Release = "release"
)

// Values of SettleResult.Result.
const (
	SettledOK          = api.SettledOK
	SettledLost        = api.SettledLost        // the lease is over or was settled before: nothing was changed
	SettledInvalid     = api.SettledInvalid     // this is no lease
	SettledUnavailable = api.SettledUnavailable // it cannot be decided now: send it again
)

// IfMatch makes a change only if the task is still in one of these states; see api.IfMatch.
func IfMatch(etags ...string) ChangeOption { return api.IfMatch(etags...) }

// Client calls one timeout center. It is safe for concurrent use.
type Client struct {
	servers []string               // base URLs
	consul  *consul                // where more of them are found; nil: nowhere
	current atomic.Pointer[string] // the one that answered last
	token   string
	header  http.Header
	http    *http.Client

	gathers     *bool     // as WithGathering says; nil: it was not given
	gatherer    *gatherer // nil: each submit goes alone
	consulToken string
}

// Option changes a Client.
type Option func(*Client)

// WithToken sends a token of http.tokens with each request. Empty: none.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithHeader sends a header with each request, besides what the client sends
// itself. What is not allowed in a header fails each call.
func WithHeader(key, value string) Option {
	return func(c *Client) { c.header.Set(key, value) }
}

// WithHTTPClient sends requests with h. The default one keeps up to 64 idle connections a server, for at most a
// minute, pings silent ones of HTTP/2, and follows no redirect, which would take the token elsewhere. It has no time-out:
// the context of each call bounds it.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 20

// idleConns is how many connections are kept for the next requests.
const idleConns = 64

// New makes a client of the center at baseURL, like http://127.0.0.1:8080; the
// scheme may be left out. It connects at the first call.
//
// consul://127.0.0.1:8500/toc is the service toc of a Consul (consul+https: by TLS), under which the nodes of a center
// register: cluster.consul.prefix. The parameters dc, ns, partition, peer, tag and filter go to Consul. A request goes to an
// instance that passes its checks. They are read at the first call, in the background of calls 10 s later, and when none of
// them takes a request.
func New(baseURL string, opts ...Option) *Client {
	c := &Client{consul: consulOf(baseURL), header: http.Header{}}
	if c.consul == nil {
		c.servers = []string{baseOf(baseURL)}
	}
	for _, o := range opts {
		o(c)
	}
	if c.gathers != nil && *c.gathers || c.gathers == nil && c.http == nil {
		c.gatherer = newGatherer(c)
	}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = idleConns
		transport.DisableCompression = true // a small answer could become a huge one
		c.http = &http.Client{Transport: httppool.New(transport),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c
}

// CloseIdleConnections closes the connections that no call uses now.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// do sends a request and reads the answer into out; a Task gets its ETag. body may be nil.
func (c *Client) do(ctx context.Context, method, path string, body, out any, opts ...ChangeOption) (status int, err error) {
	var text []byte
	if err := checkFilter(body); err != nil {
		return 0, invalid("body", err)
	}
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, fmt.Errorf("encode request: %w", err)
		}
	}
	return c.each(ctx, isRepeatable(method, body), func(ctx context.Context, base string) (int, error) {
		return c.send(ctx, base, method, path, text, out, opts)
	})
}

// checkFilter refuses a text that JSON cannot carry. (The requests for tasks do so themselves; the error of a run may hold
// anything, and its faults become U+FFFD.)
func checkFilter(body any) error {
	texts := map[string]string{}
	switch b := body.(type) {
	case api.DeadRequest:
		texts = map[string]string{"biz_type": b.BizType, "error": b.Error}
	case api.PauseRequest:
		texts = map[string]string{"reason": b.Reason}
	}
	for field, text := range texts {
		if err := api.CheckText(field, text); err != nil {
			return err
		}
	}
	return nil
}

// send makes one request of one server. body may be nil.
func (c *Client) send(ctx context.Context, base, method, path string, body []byte, out any, opts []ChangeOption) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	maps.Copy(r.Header, c.header)
	if condition := api.ConditionOf(opts); condition.IfMatch != nil {
		r.Header["If-Match"] = condition.IfMatch
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, answer.Body, 4<<10) // so that the connection can be used again
		_ = answer.Body.Close()
	}()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return answer.StatusCode, refusal(answer)
	}
	if err := read(io.LimitReader(answer.Body, maxAnswer), answer.ContentLength, out); err != nil {
		return answer.StatusCode, fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	if t, ok := out.(*Task); ok {
		t.ETag = answer.Header.Get("ETag")
	}
	return answer.StatusCode, nil
}

// read reads an answer of a length; -1: that is not known.
func read(from io.Reader, length int64, out any) error {
	known, ok := out.(interface{ ReadJSON(text []byte) error })
	if !ok {
		return json.NewDecoder(from).Decode(out)
	}
	var text bytes.Buffer
	text.Grow(int(min(max(0, length), firstPart)) + bytes.MinRead)
	if _, err := text.ReadFrom(from); err != nil {
		return err
	}
	return known.ReadJSON(text.Bytes())
}

// firstPart is how much memory the length of an answer may ask for, in bytes, before the answer comes.
const firstPart = 1 << 20

// Error is the server's refusal: an RFC 9457 problem. errors.Is and errors.As find in it what
// it stands for in package task; see api.Problem.
type Error = api.Problem

// FieldError says what is wrong with one field of a request.
type FieldError = api.ProblemField

// invalid is what a server would answer to a field that is wrong; where it is in is body or query.
func invalid(where string, err error) error {
	e := &Error{
		Status: http.StatusUnprocessableEntity, Title: http.StatusText(http.StatusUnprocessableEntity), Detail: "validation failed",
	}
	if field, ok := errors.AsType[*task.FieldError](err); ok {
		e.Errors = []FieldError{{Location: where + "." + field.Field, Message: field.Message}}
	}
	return e
}

// maxProblem is how much of a refusal is read, in bytes.
const maxProblem = 1 << 20

// refusal reads an answer that is no success. What stands between client and
// server may have sent it, so it need not be a problem.
func refusal(answer *http.Response) error {
	e := &Error{}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	isProblem := strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json")
	if err != nil || !isProblem || json.Unmarshal(text, e) != nil {
		*e = Error{Detail: fmt.Sprintf("%.200q", text)}
	}
	e.Status = answer.StatusCode
	if e.Task != nil {
		e.Task.ETag = answer.Header.Get("ETag")
	}
	if e.Title == "" {
		e.Title = http.StatusText(answer.StatusCode)
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
