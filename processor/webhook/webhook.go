// Package webhook is the processor that calls a URL: an HTTP POST of the task as
// JSON, signed as Standard Webhooks are.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// Config says whom to call.
type Config struct {
	// URL is called by POST; absolute, http or https. A user and password in it
	// are sent as basic authentication. It has no default.
	URL string
	// Secret signs the calls (Standard Webhooks v1): whsec_ and base64, or any
	// other string, whose bytes are then the key. "" signs none. Defaults to "".
	Secret string
	// PreviousSecret signs them as well, until all receivers know Secret. Defaults to "".
	PreviousSecret string
	// Timeout is how long one call may take; 0 is the business type's timeout,
	// which holds in any case. Defaults to 0.
	Timeout time.Duration
	// Batch is how many tasks one call may have, as a JSON array: 1 to 256. 0 posts one task a call, as an object.
	// Defaults to 0.
	Batch int
	// Dial makes the connections. Nil is that of package net.
	Dial outside.Dial
}

// Processor fires a task by an HTTP POST of its JSON, the same as GET
// /v1/tasks/{job_id} answers. What the receiver answers decides:
//
//	2xx                          processed
//	410                          discarded
//	429, 503 with Retry-After    failed run, tried again then, after the longest back-off at the latest
//	all else, redirects too      failed run, tried again after the back-off
//
// Where this machine had no descriptor or port for the call nothing was tried:
// it is made again after a second, and no attempt is counted.
//
// The header webhook-id is the job_id and the same in every attempt: receivers
// should be idempotent by it. toc-attempt counts from 1.
type Processor struct {
	bizType  string
	batch    int
	timeout  time.Duration               // of one call; 0: ctx alone says
	template *http.Request               // what is the same in all calls
	signers  []*standardwebhooks.Webhook // none: calls are not signed
	longest  time.Duration               // that a Retry-After may ask for
	pool     *httppool.Pool              // its own: one slow receiver starves no other
	fresh    *http.Transport             // a new connection for each call
	target   string                      // how messages call the receiver: no path, no query, no password
	hide     *strings.Replacer           // takes secrets out of messages
}

// New makes the webhook processor of a business type. Its messages show
// no secret: not the key, not the URL's password, path or query.
func New(b task.BizType, cfg Config) (*Processor, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("url is not an absolute URL; write http://host/path or https://host/path")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("timeout %v is less than 0", cfg.Timeout)
	}
	var signers []*standardwebhooks.Webhook
	for _, secret := range []string{cfg.Secret, cfg.PreviousSecret} {
		if secret == "" {
			continue
		}
		signer, err := NewSigner(secret)
		if err != nil {
			return nil, err
		}
		signers = append(signers, signer)
	}
	dial := b.Timeout
	if cfg.Timeout > 0 && (dial <= 0 || cfg.Timeout < dial) {
		dial = cfg.Timeout
	}
	fresh := newTransport(b.Workers, dial, cfg.Dial)
	fresh.DisableKeepAlives = true
	return &Processor{
		bizType:  b.Name,
		batch:    cfg.Batch,
		timeout:  cfg.Timeout,
		template: newTemplate(u),
		signers:  signers,
		longest:  b.BackoffMax,
		pool:     httppool.New(newTransport(b.Workers, dial, cfg.Dial)),
		fresh:    fresh,
		target:   "POST " + u.Host,
		hide:     hiding(u, cfg.Secret, cfg.PreviousSecret),
	}, nil
}

// Process calls the receiver.
func (w *Processor) Process(ctx context.Context, t task.Task) error {
	if w.batch > 0 {
		return w.ProcessBatch(ctx, []task.Task{t})[0]
	}
	var verdict error
	err := w.call(ctx, w.single(t), func(resp *http.Response) { verdict = w.verdict(resp) })
	return cmp.Or(err, verdict)
}

// call makes a call, and passes its answer to read, which must be quick.
func (w *Processor) call(ctx context.Context, m message, read func(*http.Response)) error {
	ctx, cancel := w.limit(ctx)
	defer cancel()
	start := time.Now()
	resp, err := w.send(ctx, m)
	if err != nil {
		return w.unanswered(ctx, err, time.Since(start))
	}
	defer resp.Body.Close()
	late := time.AfterFunc(bodyTime, cancel)
	defer late.Stop()
	read(resp)
	return nil
}

// Close closes the connections that are idle.
func (w *Processor) Close() error {
	w.pool.CloseIdleConnections()
	return nil
}

func (w *Processor) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.timeout > 0 {
		return context.WithTimeout(ctx, w.timeout)
	}
	return context.WithCancel(ctx)
}

// unanswered is the failed run of a call that got no answer.
func (w *Processor) unanswered(ctx context.Context, err error, after time.Duration) error {
	said := w.shown(err.Error())
	switch ctx.Err() {
	case context.DeadlineExceeded:
		said = fmt.Sprintf("no answer within %s", after.Round(time.Millisecond))
	case context.Canceled:
		said = fmt.Sprintf("stopped after %s", after.Round(time.Millisecond))
	}
	failed := &callError{message: w.target + ": " + said, cause: err}
	if isOurs(err) {
		return processor.NoAttempt(time.Second, failed)
	}
	return failed
}

// isOurs reports whether a call failed before it had a connection, because this machine
// lacks a resource: its receiver was never asked.
func isOurs(err error) bool {
	ours := []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok { // it has the error as a text
		return slices.ContainsFunc(ours, func(e error) bool { return strings.Contains(lookup.Err, e.Error()) })
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" && slices.ContainsFunc(ours, func(e error) bool { return errors.Is(op, e) })
}

// callError is a failed call: a message that may be shown, and its cause, which
// may not.
type callError struct {
	message string
	cause   error
}

func (e *callError) Error() string { return e.message }

func (e *callError) Unwrap() error { return e.cause }
