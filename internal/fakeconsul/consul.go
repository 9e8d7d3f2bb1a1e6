// Package fakeconsul is a Consul in memory, one agent that is also the only server, for tests in synctest bubbles. Each
// of its timers is package time's, so its sessions and checks end in virtual time.
//
// It has what package cluster and its tests use, and answers like Consul 1.8.7: the same status codes, headers, texts and
// indexes, which a test compares. It answers 501 to all else, so that no test relies on what nobody has compared.
//
// It differs from Consul where Consul leaves the time to chance. The agent's news reach the server at once, except after
// a start (Consul.ReportAfter). A session ends SessionTTLs after its last renewal, to the nanosecond. A query is held for
// the longest time that Consul would hold it. The index of a deleted key is kept for ever, and by Consul for 15 minutes.
package fakeconsul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Consul is an http.Handler. In a bubble it must be made there. Set its fields before the first request.
type Consul struct {
	// MinSessionTTL is Consul's session_ttl_min: 10 s.
	MinSessionTTL time.Duration
	// SessionTTLs is after how many of its TTLs a session ends that is not renewed. Consul promises no less than one and
	// no more than two (developer.hashicorp.com/consul/docs/dynamic-app-config/sessions). It takes two, the default.
	SessionTTLs float64
	// ReportAfter is how long after a start the agent reports the checks that became critical with it: 1 s. Consul
	// takes up to 3 s.
	ReportAfter time.Duration

	mux *http.ServeMux

	mu      sync.Mutex
	changed chan struct{} // closed and renewed at each change
	down    chan struct{} // closed while it is stopped
	started time.Time
	servers []*http.Server
	tokens  map[string]bool // nil: none is asked for

	// An index is that of the command that made the last change.
	index        uint64 // of the last command
	keys         map[string]entry
	deleted      map[string]uint64 // index, by the key or the prefix that was deleted
	keysIndex    uint64
	lockDelays   map[string]time.Time
	sessions     map[string]*session
	sessionIndex uint64
	made         int // sessions
	services     map[string]*service
	checks       map[string]*check
	byName       map[string]uint64 // index of a service
	extinct      uint64            // index at which a service lost its last instance; 0: none has
	catalogIndex uint64
}

// New makes a Consul without keys, sessions or services. It asks for no token until AddToken.
func New() *Consul {
	c := &Consul{
		MinSessionTTL: 10 * time.Second, SessionTTLs: 2, ReportAfter: time.Second,
		changed: make(chan struct{}), down: make(chan struct{}), started: time.Now(),
		index: 10, catalogIndex: 7, // a server writes its own node first
		keys: make(map[string]entry), deleted: make(map[string]uint64), lockDelays: make(map[string]time.Time),
		sessions: make(map[string]*session), services: make(map[string]*service), checks: make(map[string]*check), byName: make(map[string]uint64),
	}
	c.mux = c.routes()
	return c
}

// ServeHTTP answers a request.
func (c *Consul) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	stopped, refused := c.isDown(), c.refuses(token(r))
	c.mu.Unlock()
	switch {
	case stopped:
		panic(http.ErrAbortHandler) // the connection ends without an answer
	case refused != "":
		write(w, http.StatusForbidden, refused)
	default:
		c.mux.ServeHTTP(w, r)
	}
}

// Listen serves a listener until the returned function is called.
func (c *Consul) Listen(l net.Listener) (stop func()) {
	s := &http.Server{Handler: c, ErrorLog: log.New(io.Discard, "", 0)}
	c.mu.Lock()
	c.servers = append(c.servers, s)
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	return func() {
		_ = s.Close()
		<-done
	}
}

// Stop ends it as kill does: connections end, and time stands still for what it keeps.
func (c *Consul) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isDown() {
		return
	}
	close(c.down)
	for _, s := range c.sessions {
		s.timer.Stop()
	}
	for _, k := range c.checks {
		k.stop()
	}
	for _, s := range c.servers {
		s.SetKeepAlivesEnabled(false) // closes the connections that nobody uses
	}
}

// Start starts it again with all its data. As with Consul, the time of each session and check begins again, a check whose
// TTL passed meanwhile becomes critical, and no lock-delay is left.
func (c *Consul) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isDown() {
		return
	}
	c.down, c.started = make(chan struct{}), time.Now()
	clear(c.lockDelays)
	for _, s := range c.sessions {
		c.prolong(s)
	}
	for _, k := range c.checks {
		if c.reapLater(k); k.ttl > 0 && time.Since(k.told) >= k.ttl {
			k.timer = c.after(c.ReportAfter, func() { c.set(k, critical, "") })
		} else {
			c.run(k)
		}
	}
	for _, s := range c.servers {
		s.SetKeepAlivesEnabled(true)
	}
}

// Restart stops and starts it: what it keeps stays, and connections end.
func (c *Consul) Restart() {
	c.Stop()
	c.Start()
}

// EndSession ends the sessions that have this ID or this name, or hold this key, and returns their number.
func (c *Consul) EndSession(what string) (ended int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessionList() {
		if what != "" && (s.ID == what || s.Name == what || c.keys[what].Session == s.ID) {
			c.commit()
			c.endSession(s)
			ended++
		}
	}
	return ended
}

// Forget makes the agent forget the services that have one of these IDs or names; without an argument all of them.
func (c *Consul) Forget(services ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.services)) {
		if s := c.services[id]; len(services) == 0 || slices.Contains(services, id) || slices.Contains(services, s.Service) {
			c.deregister(s)
		}
	}
}

// AddToken makes a token that may do everything. From the first one on, requests need a token.
func (c *Consul) AddToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		c.tokens = make(map[string]bool)
	}
	c.tokens[token] = true
}

// DeleteToken deletes a token. Requests with it are refused, and checks that were registered with it stay as they were
// last reported.
func (c *Consul) DeleteToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tokens, token)
}

func token(r *http.Request) string {
	return cmp.Or(r.URL.Query().Get("token"), r.Header.Get("X-Consul-Token"))
}

// refuses returns why requests with a token are refused; "": they are not. The caller holds mu.
func (c *Consul) refuses(token string) string {
	switch {
	case c.tokens == nil || c.tokens[token]:
		return ""
	case token == "":
		return "Permission denied"
	}
	return "ACL not found"
}

// isDown reports whether it is stopped. The caller holds mu.
func (c *Consul) isDown() bool {
	select {
	case <-c.down:
		return true
	default:
		return false
	}
}

// after calls f under the lock, unless the timer was stopped, also in the moment in which it fired. The caller holds mu.
func (c *Consul) after(d time.Duration, f func()) *timer {
	t := new(timer)
	t.Timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !t.stopped {
			f()
		}
	})
	return t
}

// timer may be nil.
type timer struct {
	*time.Timer
	stopped bool
}

// Stop stops the timer. The caller holds mu.
func (t *timer) Stop() {
	if t != nil {
		t.stopped = true
		t.Timer.Stop()
	}
}

// commit begins a command of the server. It has an index, whether it changes something or not. Who waits for a change looks
// once the lock is free. The caller holds mu.
func (c *Consul) commit() {
	c.index++
	close(c.changed)
	c.changed = make(chan struct{})
}

// call is a request whose body has come.
type call struct {
	what  string // the last part of the path: a key, an ID or a name
	asked url.Values
	body  []byte
	token string
}

// decode reads the body.
func (q call) decode(into any) error {
	err := json.NewDecoder(strings.NewReader(string(q.body))).Decode(into)
	if err != nil && err != io.EOF {
		return refusal{http.StatusBadRequest, fmt.Sprintf("Request decode failed: %v", err)}
	}
	return nil
}

// refusal is an answer that is no success.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// internal is an internal error. Consul says so to most that it does not take.
func internal(format string, args ...any) error {
	return refusal{http.StatusInternalServerError, fmt.Sprintf(format, args...)}
}

func unsupported(what string) error {
	return refusal{http.StatusNotImplemented, "fakeconsul has no " + what}
}

// nothing is the answer of the agent to what it has done.
type nothing struct{}

func (c *Consul) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(q call) (any, error){
		"PUT /v1/kv/{what...}":                     c.putKey,
		"DELETE /v1/kv/{what...}":                  c.deleteKey,
		"PUT /v1/txn":                              c.transact,
		"PUT /v1/session/create":                   c.createSession,
		"PUT /v1/session/renew/{what}":             c.renewSession,
		"PUT /v1/session/destroy/{what}":           c.destroySession,
		"PUT /v1/agent/service/register":           c.registerService,
		"PUT /v1/agent/service/deregister/{what}":  c.deregisterService,
		"PUT /v1/agent/service/maintenance/{what}": c.maintainService,
		"PUT /v1/agent/check/update/{what}":        c.updateCheck,
		"PUT /v1/agent/check/deregister/{what}":    c.deregisterCheck,
		"GET /v1/agent/services":                   c.listServices,
		"GET /v1/agent/checks":                     c.listChecks,
		"/":                                        func(q call) (any, error) { return nil, unsupported("such call") },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			c.mu.Lock()
			out, err := answer(call{r.PathValue("what"), r.URL.Query(), body, token(r)})
			text := marshal(out) // here, since it may point to what changes
			c.mu.Unlock()
			_, conflict := out.(conflict)
			switch {
			case err != nil:
				refused := err.(refusal)
				write(w, refused.status, refused.text)
			case conflict:
				writeJSON(w, http.StatusConflict, text)
			case out != any(nothing{}):
				writeJSON(w, http.StatusOK, text)
			}
		})
	}
	for pattern, read := range map[string]func(q call) (uint64, any){
		"GET /v1/kv/{what...}":          c.getKey,
		"GET /v1/session/info/{what}":   c.getSession,
		"GET /v1/health/service/{what}": c.healthOfService,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.query(w, r, read) })
	}
	return mux
}

func write(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func writeJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func marshal(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // our own types can be written
	}
	return text
}

// The times for which a query is held; developer.hashicorp.com/consul/api-docs/features/blocking.
const defaultWait, maxWait = 5 * time.Minute, 10 * time.Minute

// query answers with the result of read, as soon as its index is greater than the request's index or the wait is over. A
// nil body: there is nothing.
func (c *Consul) query(w http.ResponseWriter, r *http.Request, read func(q call) (index uint64, body any)) {
	q := call{what: r.PathValue("what"), asked: r.URL.Query()}
	known, err := strconv.ParseUint(cmp.Or(q.asked.Get("index"), "0"), 10, 64)
	if err != nil {
		write(w, http.StatusBadRequest, "Invalid index")
		return
	}
	wait, err := time.ParseDuration(cmp.Or(q.asked.Get("wait"), defaultWait.String()))
	if err != nil {
		write(w, http.StatusBadRequest, "Invalid wait time")
		return
	}
	wait = min(wait, maxWait)
	held := time.NewTimer(wait + wait/16)
	defer held.Stop()
	for over := false; ; {
		c.mu.Lock()
		index, body := read(q)
		text, changed, down := marshal(body), c.changed, c.down
		c.mu.Unlock()
		index = max(index, 1)
		if known == 0 || index > known || over {
			w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
			w.Header().Set("X-Consul-KnownLeader", "true")
			w.Header().Set("X-Consul-LastContact", "0")
			if strings.HasPrefix(r.URL.Path, "/v1/health/") {
				w.Header().Set("X-Consul-Effective-Consistency", "leader")
			}
			if body == nil {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			writeJSON(w, http.StatusOK, text)
			return
		}
		select {
		case <-changed:
		case <-held.C:
			over = true
		case <-down:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}
