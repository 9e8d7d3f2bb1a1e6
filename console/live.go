package console

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The bounds of streams.
const (
	maxStreams     = 128              // at once
	streamPatience = 10 * time.Second // for the browser to take what is sent
	streamBeat     = 15 * time.Second // between two signs of life, if nothing changes
)

// live has the streams of those who look, by topic: the page that they look at. A snapshot of a topic is made once a tick for all of
// them: the HTML of each part of the page that changes. What is sent is the parts that differ from the tick before.
type live struct {
	mu     sync.Mutex
	topics map[string]*topic
	open   int
	closed chan struct{}
}

type topic struct {
	viewers map[*viewer]bool
	parts   map[string]string // as of the last tick, by id
}

type viewer struct {
	events chan []byte // of one snapshot; a slow viewer misses some
	behind bool        // it gets all parts the next time
}

func newLive() *live { return &live{topics: make(map[string]*topic), closed: make(chan struct{})} }

func (l *live) close() { close(l.closed) }

// join adds a viewer; nil: there are too many.
func (l *live) join(name string) *viewer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == maxStreams {
		return nil
	}
	l.open++
	t := l.topics[name]
	if t == nil {
		t = &topic{viewers: make(map[*viewer]bool), parts: make(map[string]string)}
		l.topics[name] = t
	}
	v := &viewer{events: make(chan []byte, 1), behind: true}
	t.viewers[v] = true
	return v
}

func (l *live) leave(name string, v *viewer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if t := l.topics[name]; t != nil {
		if delete(t.viewers, v); len(t.viewers) == 0 {
			delete(l.topics, name)
		}
	}
}

// watched lists the topics that somebody looks at.
func (l *live) watched() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.topics))
}

// tell sends the parts of a topic to its viewers.
func (l *live) tell(name string, parts map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[name]
	if t == nil {
		return
	}
	changed := make(map[string]string)
	for id, text := range parts {
		if t.parts[id] != text {
			changed[id] = text
		}
	}
	t.parts = parts
	all, some := []byte(nil), event(changed)
	for v := range t.viewers {
		text := some
		if v.behind {
			if all == nil {
				all = event(parts)
			}
			text = all
		}
		if text == nil {
			continue
		}
		select {
		case v.events <- text:
			v.behind = false
		default:
			v.behind = true
		}
	}
}

// event is a server-sent event; nil if there is nothing to tell.
func event(parts map[string]string) []byte {
	if len(parts) == 0 {
		return nil
	}
	text, _ := json.Marshal(parts) // texts always marshal, on one line
	return slices.Concat([]byte("data: "), text, []byte("\n\n"))
}

// publish makes a snapshot of each topic that somebody looks at.
func (c *Console) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handleFor)
	defer cancel()
	for _, name := range c.live.watched() {
		body, template, err := c.topic(ctx, name)
		if err != nil {
			c.cfg.Logger.Debug("snapshot not made", "topic", name, "error", err)
			continue
		}
		parts := make(map[string]string)
		for _, part := range liveParts[template] {
			var out bytes.Buffer
			if err := templates[template].ExecuteTemplate(&out, template+"-"+part, body); err != nil {
				c.cfg.Logger.Error("page not made", "page", template, "part", part, "error", err)
				continue
			}
			parts["live-"+part] = out.String()
		}
		c.live.tell(name, parts)
	}
}

// liveParts are the parts of the pages that change. The template PAGE-PART makes the inner HTML of the element live-PART.
var liveParts = map[string][]string{
	"overview":   {"verdict", "faults", "tiles", "late", "work", "types"},
	"type":       {"load", "parts"},
	"operations": {"list"},
	"cluster":    {"faults", "nodes", "servers", "changes"},
}

// topic makes the body of the page that a topic is about.
func (c *Console) topic(ctx context.Context, name string) (body any, template string, err error) {
	kind, of, _ := strings.Cut(name, "/")
	switch kind {
	case "overview":
		body, err = c.overviewBody(ctx)
	case "type":
		body, err = c.typeBody(ctx, of)
	case "operations":
		body, err = c.operationsBody(ctx)
	case "cluster":
		body, err = c.clusterBody(ctx)
	default:
		err = errNoPage
	}
	return body, kind, err
}

// stream sends what changes on a page, until the browser leaves.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	if !c.loggedIn(r) {
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	name := r.URL.Query().Get("topic")
	if kind, of, _ := strings.Cut(name, "/"); liveParts[kind] == nil || (kind == "type") != (of != "") {
		http.Error(w, "there is no such topic", http.StatusNotFound)
		return
	} else if _, ok := c.desk.Types().ByName(of); of != "" && !ok {
		http.Error(w, "there is no such business type", http.StatusNotFound)
		return
	}
	v := c.live.join(name)
	if v == nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer c.live.leave(name, v)
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{}) // that of the server would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	text := []byte("retry: 5000\n\n")
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(streamPatience))
		if _, err := w.Write(text); err != nil || conn.Flush() != nil {
			return
		}
		select {
		case text = <-v.events:
		case <-beat.C:
			text = []byte(": nothing has changed\n\n")
		case <-c.live.closed:
			return
		case <-r.Context().Done():
			return
		}
		if !c.loggedIn(r) {
			return
		}
	}
}
