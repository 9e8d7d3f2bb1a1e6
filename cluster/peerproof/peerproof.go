// Package peerproof lets the nodes of a cluster prove to each other that they have
// its secret, without ever sending it. A stranger that Consul names as a node, or
// that listens in between, learns nothing that would let it ask or answer in a
// node's place.
//
// A request carries who asks, when, a nonce and the hash of its body, and an HMAC
// (RFC 2104, SHA-256) of these, of the request's line, conditions and Toc headers and of the node
// that is asked. The answer carries one of the request's nonce, the status and the
// body. A process takes a request once, and not when it is older than Window.
package peerproof

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Header carries the proof, in requests and in answers.
const Header = "Toc-Peer"

// Window is how far the clocks of two nodes may be apart.
const Window = 30 * time.Second

// Bodies, of requests and of answers, are held in memory. The largest question between nodes is 256 settlements with errors of
// 255 bytes, the largest answer 256 leased tasks with attributes of 4,096 bytes; JSON writes some bytes as six.
const (
	maxRequest = 1 << 20
	maxAnswer  = 8 << 20
)

// errTooLarge is of an answer that is larger than any that a node gives.
var errTooLarge = fmt.Errorf("its answer is larger than %d MiB", maxAnswer>>20)

// AnswerError is an answer without a valid proof: its sender may not have the secret.
type AnswerError struct{ Status int }

func (e *AnswerError) Error() string {
	if e.Status >= http.StatusInternalServerError { // of a proxy in front of it, or of a node that is about to stop
		return fmt.Sprintf("it answered with status %d, unproved", e.Status)
	}
	return fmt.Sprintf("its answer (status %d) does not prove that it knows cluster.secret; is it the same on all nodes?", e.Status)
}

// Prover is one node's. It is safe for concurrent use.
type Prover struct {
	node string
	keys func() []string

	mu             sync.Mutex
	nonces, before map[string]struct{} // of requests that were taken, younger and older
	turned         time.Time           // when nonces began
}

// New makes the Prover of the node of that name. It proves with the first of the keys, and
// accepts requests that are proved with any of them. Without keys (keys may be nil) it
// proves nothing and asks for no proof.
func New(node string, keys func() []string) *Prover {
	if keys == nil {
		keys = func() []string { return nil }
	}
	return &Prover{node: url.PathEscape(node), keys: keys} // escaped, so that any name fits into a header
}

// signed are the headers that say what a request asks for.
var signed = []string{"If-Match", "Toc-Forwarded", "Toc-Question"}

// statement is what a request's proof is about.
type statement struct{ node, sent, nonce, body string }

func (s statement) sum(key string, r *http.Request, target string) string {
	words := []string{"request", r.Method, r.URL.RequestURI()}
	for _, name := range signed {
		words = append(words, strings.Join(r.Header.Values(name), ","))
	}
	return sum(key, append(words, s.node, target, s.sent, s.nonce, s.body)...)
}

// sumAnswer is that of an answer.
func sumAnswer(key, nonce string, status int, body []byte) string {
	return sum(key, "answer", nonce, strconv.Itoa(status), digest(body))
}

// sum gives the HMAC of words, none of which has line ends.
func sum(key string, words ...string) string {
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = io.WriteString(mac, strings.Join(words, "\n"))
	return hex.EncodeToString(mac.Sum(nil))
}

func digest(body []byte) string {
	d := sha256.Sum256(body)
	return hex.EncodeToString(d[:])
}

func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// Transport sends requests to the node of that name with a proof, and takes no answer
// without one: its error is an AnswerError.
func (p *Prover) Transport(target string, base http.RoundTripper) http.RoundTripper {
	return &transport{p, url.PathEscape(target), base}
}

type transport struct {
	*Prover
	target string
	base   http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	keys := t.keys()
	if len(keys) == 0 {
		return t.base.RoundTrip(r)
	}
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	r = r.Clone(r.Context())
	if len(body) == 0 { // so that net/http may send it again on a new connection, if the one it had was dead
		r.Body = http.NoBody
	} else {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	s := statement{node: t.node, sent: strconv.FormatInt(time.Now().UnixMilli(), 10), nonce: rand.Text(), body: digest(body)}
	r.Header.Set(Header, strings.Join([]string{s.node, s.sent, s.nonce, s.body, s.sum(keys[0], r, t.target)}, " "))
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	_ = answer.Body.Close()
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxAnswer:
		return nil, errTooLarge
	}
	if !equal(answer.Header.Get(Header), sumAnswer(keys[0], s.nonce, answer.StatusCode, body)) {
		return nil, &AnswerError{answer.StatusCode}
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// Handler lets requests through that carry a proof, as Proved, and those without. One
// whose proof does not hold goes to refused.
func (p *Prover) Handler(next http.Handler, refused func(http.ResponseWriter, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys := p.keys()
		given := r.Header.Get(Header)
		if len(keys) == 0 || given == "" {
			next.ServeHTTP(w, r)
			return
		}
		key, nonce, body, err := p.check(keys, given, r)
		if err != nil {
			refused(w, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), proved{}, true))
		r.Body = io.NopCloser(bytes.NewReader(body))
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(a, r)
		w.Header().Set(Header, sumAnswer(key, nonce, a.status, a.body.Bytes()))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body.Bytes())
	})
}

// Proves reports whether there is a key to prove with.
func (p *Prover) Proves() bool { return len(p.keys()) > 0 }

type proved struct{}

// Proved reports whether a node has proved to have sent the request of this context.
func Proved(ctx context.Context) bool { return ctx.Value(proved{}) != nil }

// check gives the key that holds, and the body.
func (p *Prover) check(keys []string, given string, r *http.Request) (key, nonce string, body []byte, err error) {
	words := strings.Split(given, " ")
	if len(words) != 5 {
		return "", "", nil, fmt.Errorf("the header %s is not a proof", Header)
	}
	s := statement{words[0], words[1], words[2], words[3]}
	found := false
	for _, k := range keys { // all of them, so that the time gives nothing away
		if equal(words[4], s.sum(k, r, p.node)) {
			key, found = k, true
		}
	}
	if !found {
		return "", "", nil, errors.New("the proof does not hold; is cluster.secret the same on all nodes?")
	}
	ms, err := strconv.ParseInt(s.sent, 10, 64)
	if age := time.Since(time.UnixMilli(ms)); err != nil || age.Abs() > Window {
		return "", "", nil, fmt.Errorf("the proof is %v old; are the clocks right?", age.Round(time.Millisecond))
	}
	if !p.first(s.nonce) {
		return "", "", nil, errors.New("the request was taken before")
	}
	body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequest))
	if err != nil || !equal(digest(body), s.body) {
		return "", "", nil, errors.New("the body is not the one that was sent")
	}
	return key, s.nonce, body, nil
}

// first reports whether a request with this nonce was never taken. One that is older than
// the two generations is outside the window.
func (p *Prover) first(nonce string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.nonces == nil || now.Sub(p.turned) > 2*Window {
		p.before, p.nonces, p.turned = p.nonces, make(map[string]struct{}), now
	}
	_, young := p.nonces[nonce]
	_, old := p.before[nonce]
	p.nonces[nonce] = struct{}{}
	return !young && !old
}

// answer keeps what is answered until it is whole.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
