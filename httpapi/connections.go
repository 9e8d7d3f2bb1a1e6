package httpapi

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// connections bounds how many connections a server has: each costs a descriptor, and
// without one nothing can be fired. One more than there may be takes the place of the one
// that has been idle longest; if none is idle, it is turned away.
type connections struct {
	most int

	mu   sync.Mutex
	open map[net.Conn]*list.Element // its place in idle; nil: a request is under way
	idle *list.List                 // of net.Conn, the longest idle one first
}

// LimitConnections lets a server have so many connections at most. Call it before the
// server serves.
func LimitConnections(s *http.Server, most int) {
	c := &connections{most: most, open: make(map[net.Conn]*list.Element), idle: list.New()}
	s.ConnState = c.note
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if place := c.open[conn]; place != nil {
		c.idle.Remove(place)
	}
	switch state {
	case http.StateNew:
		c.open[conn] = nil
		if len(c.open) <= c.most || c.makeRoom() {
			c.open[conn] = c.idle.PushBack(conn) // nothing was asked yet
		} else {
			_ = conn.Close()
		}
	case http.StateIdle:
		c.open[conn] = c.idle.PushBack(conn)
	case http.StateActive:
		c.open[conn] = nil
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// makeRoom closes the connection that has been idle longest, and tells whether there is
// one; that it is closed is noted when the server notices.
func (c *connections) makeRoom() bool {
	longest := c.idle.Front()
	if longest == nil {
		return false
	}
	victim := c.idle.Remove(longest).(net.Conn)
	c.open[victim] = nil
	_ = victim.Close()
	return true
}
