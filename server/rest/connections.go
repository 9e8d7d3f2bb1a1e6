package rest

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// connections bounds how many connections a server has: each costs a descriptor, and
// without one nothing can be fired. One more than there may be takes the place of the one
// that has been loose longest; if none is loose, it is turned away.
type connections struct {
	most int

	mu    sync.Mutex
	open  map[net.Conn]*connection
	loose *list.List // of net.Conn, the longest loose one first
}

// connection is an open one. It is loose while it is idle, and until a request of it was let in, so that a caller without a
// token keeps nobody out.
type connection struct {
	place *list.Element // in loose; nil: it is not
	known bool          // a request of it was let in
}

// LimitConnections lets a server have so many connections at most. Call it before the
// server serves.
func LimitConnections(s *http.Server, most int) {
	c := &connections{most: most, open: make(map[net.Conn]*connection), loose: list.New()}
	s.ConnState = c.note
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, letInKey{}, func() { c.letIn(conn) })
	}
}

type letInKey struct{}

// LetIn keeps the connection of a request while it is under way, and while later ones are: its caller may ask.
func LetIn(r *http.Request) {
	if letIn, limited := r.Context().Value(letInKey{}).(func()); limited {
		letIn()
	}
}

func (c *connections) letIn(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[conn]; one != nil && !one.known {
		one.known = true
		c.keep(one)
	}
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[conn]
	if one != nil {
		c.keep(one)
	}
	switch state {
	case http.StateNew:
		one = &connection{}
		c.open[conn] = one
		if len(c.open) > c.most && !c.makeRoom() {
			_ = conn.Close()
			return
		}
		one.place = c.loose.PushBack(conn)
	case http.StateIdle:
		one.place = c.loose.PushBack(conn)
	case http.StateActive:
		if !one.known {
			one.place = c.loose.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// keep takes a connection out of the loose ones.
func (c *connections) keep(one *connection) {
	if one.place != nil {
		c.loose.Remove(one.place)
		one.place = nil
	}
}

// makeRoom closes the connection that has been loose longest, and reports whether there is
// one; that it is closed is noted when the server notices.
func (c *connections) makeRoom() bool {
	longest := c.loose.Front()
	if longest == nil {
		return false
	}
	victim := longest.Value.(net.Conn)
	c.keep(c.open[victim])
	_ = victim.Close()
	return true
}
