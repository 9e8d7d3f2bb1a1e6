// Package fakeconsul is a Consul in memory, one agent that is also the only server, for tests in synctest bubbles. Each
// of its timers is package time's, so its sessions and checks end in virtual time.
//
// It has what package cluster uses, and answers like Consul 1.8.7: the same status codes, headers, texts and indexes,
// which a test compares. It answers 501 to all else, so that no test relies on what nobody has compared.
//
// It differs from Consul where Consul leaves the time to chance. The agent's news reach the server at once, except after
// a start (Consul.ReportAfter). A session ends SessionTTLs after its last renewal, to the nanosecond. A query is held
// for the longest time that Consul would hold it. Deleted keys are remembered for ever, where Consul forgets their index
// after 15 minutes.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// defaultWait and maxWait bound how long a query is held; developer.hashicorp.com/consul/api-docs/features/blocking.
	defaultWait, maxWait = 5 * time.Minute, 10 * time.Minute
	// defaultLockDelay and maxLockDelay are those of sessions; developer.hashicorp.com/consul/api-docs/session.
	defaultLockDelay, maxLockDelay = 15 * time.Second, time.Minute
	// reapEvery is how often the agent looks for services that were critical for too long, and reapAfter the least time
	// that it takes for too long; developer.hashicorp.com/consul/api-docs/agent/check.
	reapEvery, reapAfter = 30 * time.Second, time.Minute

	serfHealth = "serfHealth"
	passing    = "passing"
	critical   = "critical"
)

// Consul is an http.Handler. In a bubble it must be made there. Set its fields before the first request.
type Consul struct {
	// Node is the name of the machine.
	Node string
	// MinSessionTTL is Consul's session_ttl_min: 10 s.
	MinSessionTTL time.Duration
	// SessionTTLs is after how many of its TTLs a session ends that is not renewed. Consul promises no less than one and
	// no more than two, and takes two, which is the default.
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
	tokens  map[string]bool // nil: all is allowed; false: deleted
	serial  uint64          // of the last session

	// What the server keeps. An index is that of the last change.
	index        uint64 // of the last command
	keys         map[string]entry
	deleted      map[string]uint64 // tombstones: the index by the key or the prefix that was deleted
	keysIndex    uint64
	lockDelays   map[string]time.Time
	sessions     map[string]*session
	sessionIndex uint64
	services     map[string]*service // by id
	checks       map[string]*check   // by id
	byName       map[string]uint64   // index of a service
	extinct      uint64              // index of the last service of which no instance was left; 0: none
	catalogIndex uint64
}

// New makes a Consul without keys, sessions or services. It takes all requests, whatever their token, until AddToken.
func New() *Consul {
	c := &Consul{
		Node: "fake", MinSessionTTL: 10 * time.Second, SessionTTLs: 2, ReportAfter: time.Second,
		changed: make(chan struct{}), down: make(chan struct{}), started: time.Now(),
		index: 10, catalogIndex: 7, // a server writes its own node first
		keys: make(map[string]entry), deleted: make(map[string]uint64), lockDelays: make(map[string]time.Time),
		sessions: make(map[string]*session), services: make(map[string]*service), checks: make(map[string]*check), byName: make(map[string]uint64),
	}
	c.checks[serfHealth] = &check{
		CheckID: serfHealth, Name: "Serf Health Status", Output: "Agent alive and reachable", Tags: []string{},
		Status: passing, reported: report{passing, "Agent alive and reachable"}, CreateIndex: 5, ModifyIndex: 5,
	}
	c.mux = c.routes()
	return c
}

// ServeHTTP answers a request.
func (c *Consul) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	down, refused := c.down, c.refuses(token(r))
	c.mu.Unlock()
	select {
	case <-down:
		panic(http.ErrAbortHandler) // the connection ends, and no answer comes
	default:
	}
	if refused != "" {
		http.Error(w, refused, http.StatusForbidden)
		return
	}
	c.mux.ServeHTTP(w, r)
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
	select {
	case <-c.down:
		return
	default:
		close(c.down)
	}
	for _, s := range c.sessions {
		s.timer.Stop()
	}
	for _, k := range c.checks {
		k.stop()
	}
	for _, s := range c.servers {
		s.SetKeepAlivesEnabled(false) // ends those that nobody uses
	}
}

// Start starts it again with all that it had. As with Consul, the time of each session and check begins anew, a check
// whose TTL passed meanwhile is critical, and no lock-delay is left.
func (c *Consul) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.down:
	default:
		return
	}
	c.down, c.started = make(chan struct{}), time.Now()
	clear(c.lockDelays)
	for _, s := range c.sessions {
		c.prolong(s)
	}
	for _, k := range c.checks {
		if k.ttl == 0 {
			continue
		}
		k.run(c)
		if time.Since(k.told) < k.ttl {
			continue
		}
		started := c.started
		time.AfterFunc(c.ReportAfter, c.unlessDown(func() {
			if c.checks[k.CheckID] == k && k.told.Before(started) {
				c.set(k, critical, "")
			}
		}))
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

// AddToken makes a token that may do everything. From the first one on no request is taken without a token.
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

// token is that of a request.
func token(r *http.Request) string {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return cmp.Or(r.URL.Query().Get("token"), r.Header.Get("X-Consul-Token"), bearer)
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

// unlessDown is f under the lock, or nothing while it is stopped: for timers, which may have fired just before.
func (c *Consul) unlessDown(f func()) func() {
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		select {
		case <-c.down:
		default:
			f()
		}
	}
}

// commit is a command of the server: it has an index, whether it changes something or not. Who waits looks again when the
// lock is free. The caller holds mu.
func (c *Consul) commit() {
	c.index++
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Consul) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /v1/kv/{key...}":                    c.getKey,
		"PUT /v1/kv/{key...}":                    c.putKey,
		"DELETE /v1/kv/{key...}":                 c.deleteKey,
		"PUT /v1/txn":                            c.transact,
		"PUT /v1/session/create":                 c.createSession,
		"PUT /v1/session/renew/{id}":             c.renewSession,
		"PUT /v1/session/destroy/{id}":           c.destroySession,
		"GET /v1/session/info/{id}":              c.getSession,
		"PUT /v1/agent/service/register":         c.registerService,
		"PUT /v1/agent/service/deregister/{id}":  c.deregisterService,
		"PUT /v1/agent/service/maintenance/{id}": c.maintainService,
		"PUT /v1/agent/check/update/{id}":        c.updateCheck,
		"PUT /v1/agent/check/deregister/{id}":    c.deregisterCheck,
		"GET /v1/agent/services":                 c.listServices,
		"GET /v1/agent/checks":                   c.listChecks,
		"GET /v1/health/service/{name}":          c.healthOfService,
	} {
		mux.HandleFunc(pattern, handle)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { unsupported(w, r.Method+" "+r.URL.Path) })
	return mux
}

func unsupported(w http.ResponseWriter, what string) {
	http.Error(w, "fakeconsul has no "+what, http.StatusNotImplemented)
}

// answer sends JSON.
func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(marshal(body))
}

func marshal(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // our own types can be written
	}
	return text
}

// query answers with what read returns, as soon as its index is greater than the one that the request knows; nil: there is
// nothing. read is called under the lock.
func (c *Consul) query(w http.ResponseWriter, r *http.Request, read func() (index uint64, body []byte)) {
	asked := r.URL.Query()
	var known uint64
	wait, err := defaultWait, error(nil)
	if text := asked.Get("index"); text != "" {
		if known, err = strconv.ParseUint(text, 10, 64); err != nil {
			http.Error(w, "Invalid index", http.StatusBadRequest)
			return
		}
	}
	if text := asked.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil {
			http.Error(w, "Invalid wait time", http.StatusBadRequest)
			return
		}
	}
	wait = min(wait, maxWait)
	timer := time.NewTimer(wait + wait/16)
	defer timer.Stop()
	for over := false; ; {
		c.mu.Lock()
		index, body := read()
		changed, down := c.changed, c.down
		c.mu.Unlock()
		index = max(index, 1)
		if known == 0 || index > known || over {
			w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
			w.Header().Set("X-Consul-KnownLeader", "true")
			w.Header().Set("X-Consul-LastContact", "0")
			if body == nil {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-down:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

// decode reads the body of a request, or answers why it cannot.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil && err != io.EOF {
		http.Error(w, fmt.Sprintf("Request decode failed: %v", err), http.StatusBadRequest)
		return false
	}
	return true
}

// fail answers with an internal error, as Consul does to most that it does not take.
func fail(w http.ResponseWriter, format string, args ...any) {
	http.Error(w, fmt.Sprintf(format, args...), http.StatusInternalServerError)
}
