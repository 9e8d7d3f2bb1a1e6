package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// snapshots are the live parts of pages, by topic: the page that is looked at. One a tick serves all who look at the same page.
type snapshots struct {
	mu   wait.Mutex
	last map[string]*snapshot
}

type snapshot struct {
	at   time.Time
	text []byte // a JSON object: the inner HTML of each part by the id of its element
	tag  string // the ETag
}

// livePage is a page of which parts change while somebody looks.
type livePage struct {
	title string            // of a page that is not about one thing of several
	parts []string          // the template PAGE-PART makes the inner HTML of the element live-PART
	did   map[string]string // what was done, in words
	body  func(c *Console, ctx context.Context, of string) (any, error)
}

var livePages = map[string]livePage{
	"overview": {"Overview", []string{"verdict", "faults", "tiles", "late", "work", "types"}, nil, (*Console).overviewBody},
	"type": {"", []string{"load", "parts"}, didType,
		func(c *Console, ctx context.Context, name string) (any, error) { return c.typeBody(ctx, name) }},
	"operations": {"Operations", []string{"list"}, didOperation, (*Console).operationsBody},
	"cluster":    {"Cluster", []string{"faults", "nodes", "servers", "changes"}, nil, (*Console).clusterBody},
}

// showLive answers with a whole live page. One that is about a business type has its name in the path.
func (c *Console) showLive(name string) handler {
	return func(r *http.Request) (*page, error) {
		l, of := livePages[name], r.PathValue("name")
		body, err := l.body(c, r.Context(), of)
		if err != nil {
			return nil, err
		}
		return &page{Name: name, Title: cmp.Or(of, l.title), Topic: path.Join(name, of), Body: body, Did: l.did[r.URL.Query().Get("did")]}, nil
	}
}

// live answers with the live parts of a page. An open page asks again and again; while nothing has changed the answer is 304.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	if !c.loggedIn(r) {
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	name := r.URL.Query().Get("topic")
	if kind, of, _ := strings.Cut(name, "/"); livePages[kind].body == nil || (kind == "type") != (of != "") {
		http.Error(w, "there is no such topic", http.StatusNotFound)
		return
	} else if _, ok := c.center.Types().ByName(of); of != "" && !ok {
		http.Error(w, "there is no such business type", http.StatusNotFound)
		return
	}
	s, err := c.snapshot(r.Context(), name)
	if err != nil {
		c.cfg.Logger.Debug("snapshot not made", "topic", name, "error", err)
		http.Error(w, "the page cannot be made now", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("ETag", s.tag)
	if r.Header.Get("If-None-Match") == s.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, r, http.StatusOK, s.text)
}

// snapshot returns the live parts of a page, which are no older than half a tick.
func (c *Console) snapshot(ctx context.Context, name string) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, handleFor)
	defer cancel()
	c.snapshots.mu.Lock()
	defer c.snapshots.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.snapshots.last, func(_ string, s *snapshot) bool { return now.Sub(s.at) >= c.cfg.Tick/2 })
	if s := c.snapshots.last[name]; s != nil {
		return s, nil
	}
	template, of, _ := strings.Cut(name, "/")
	body, err := livePages[template].body(c, ctx, of)
	if err != nil {
		return nil, err
	}
	parts := make(map[string]string)
	for _, part := range livePages[template].parts {
		var out bytes.Buffer
		if err := templates[template].ExecuteTemplate(&out, template+"-"+part, body); err != nil {
			return nil, err
		}
		parts["live-"+part] = out.String()
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	s := &snapshot{at: now, text: text, tag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	c.snapshots.last[name] = s
	return s, nil
}
