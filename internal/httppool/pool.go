// Package httppool keeps a pool of HTTP connections: it replaces old connections and drops the ones that went silent.
//
// net/http reuses a connection for as long as it seems to work. This has three faults. A silent HTTP/2 connection gets every
// call until the kernel gives it up. A dozen idle HTTP/1.1 connections that went silent together make a dozen calls fail. When a
// name has a new address, calls still go to the old one for as long as a server answers there. A Pool has three rules against them:
//
//   - HTTP/2 connections on which nothing arrives are pinged.
//   - Connections to a host are replaced once they are MaxAge old, less up to a third.
//   - A call without an answer in time makes all connections to its host suspect: later calls make new ones.
//
// Calls under way on a replaced connection end on it.
package httppool

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The times of connections; docs/production.md lists them.
const (
	// SendPingAfter is how long nothing arrives on an HTTP/2 connection before it is pinged.
	SendPingAfter = 5 * time.Second
	// PingTimeout is how long the answer to a ping may take. Then the connection is dead, and its calls fail.
	PingTimeout = 3 * time.Second
	// WriteTimeout is how long an HTTP/2 connection may take no byte of what is to be sent.
	WriteTimeout = 10 * time.Second
	// IdleTimeout is how long a connection without a call stays open: less than the minute after which most proxies hang up.
	IdleTimeout = 30 * time.Second
	// MaxAge of a connection, less up to a third; later its host's name may mean another server.
	MaxAge = time.Minute
	// SuspectEvery is the shortest time between two replacements because of calls without an answer. A receiver that is
	// only slow gets no more new connections than that.
	SuspectEvery = 5 * time.Second
)

// Pool is an http.RoundTripper. It is safe for concurrent use.
type Pool struct {
	// Template is cloned for each generation of connections. It must not change after the first call.
	Template *http.Transport

	mu      sync.Mutex
	hosts   map[host]*generation
	retired []*generation
}

type host struct{ scheme, address string }

// generation is the connections to one host that have the same age.
type generation struct {
	*http.Transport
	until     time.Time // when it is too old
	suspected time.Time // when a call without an answer last made a generation for this host; zero: never
}

// New makes a Pool of connections like those of template, with the times of this package.
func New(template *http.Transport) *Pool {
	template.IdleConnTimeout = IdleTimeout
	template.HTTP2 = &http.HTTP2Config{SendPingTimeout: SendPingAfter, PingTimeout: PingTimeout, WriteByteTimeout: WriteTimeout}
	return &Pool{Template: template, hosts: make(map[host]*generation)}
}

// RoundTrip implements http.RoundTripper.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) {
	at := host{r.URL.Scheme, r.URL.Host}
	g, old := p.current(at)
	closeIdle(old)
	resp, err := g.RoundTrip(r)
	if errors.Is(err, context.DeadlineExceeded) {
		closeIdle(p.suspect(at, g))
	}
	return resp, err
}

// current returns the connections to a host, and the generations that are too old.
func (p *Pool) current(at host) (g *generation, old []*generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	g = p.hosts[at]
	if g != nil && now.Before(g.until) {
		return g, nil
	}
	var suspected time.Time
	if g != nil {
		suspected = g.suspected
	}
	for known, g := range p.hosts { // those of hosts that nobody calls any more, too
		if !now.Before(g.until) {
			delete(p.hosts, known)
			old = append(old, g)
		}
	}
	return p.renew(at, now, suspected, old), old
}

// suspect replaces the connections of a call without an answer, unless they are replaced already.
func (p *Pool) suspect(at host, g *generation) (old []*generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.hosts[at] != g || now.Sub(g.suspected) < SuspectEvery {
		return nil
	}
	old = []*generation{g}
	p.renew(at, now, now, old)
	return old
}

// renew makes a generation, and keeps the replaced ones while calls may be under way on them. The lock is held.
func (p *Pool) renew(at host, now, suspected time.Time, old []*generation) *generation {
	g := &generation{Transport: p.Template.Clone(), until: now.Add(MaxAge - rand.N(MaxAge/3)), suspected: suspected}
	p.hosts[at] = g
	p.retired = slices.DeleteFunc(p.retired, func(r *generation) bool { return now.Sub(r.until) > MaxAge })
	p.retired = append(p.retired, old...)
	return g
}

// CloseIdleConnections closes the connections that no call uses now.
func (p *Pool) CloseIdleConnections() {
	p.mu.Lock()
	list := slices.AppendSeq(slices.Clone(p.retired), maps.Values(p.hosts))
	p.mu.Unlock()
	closeIdle(list)
}

func closeIdle(list []*generation) {
	for _, g := range list {
		g.CloseIdleConnections()
	}
}

// IsLost reports whether a call failed because its connection turned out dead while it waited: its ping was not
// answered. net/http has no type for this error.
func IsLost(err error) bool {
	return err != nil && strings.Contains(err.Error(), "http2: client connection lost")
}
