package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// link is a connection: what both of its ends share.
type link struct {
	way  pair
	ends [2]end

	mu     sync.Mutex
	moved  *sync.Cond // something to read, or another rule
	silent bool       // sent bytes are lost
	held   bool       // sent bytes wait
	delay  time.Duration

	promptAt time.Time // what is sent at this time is neither held nor delayed
}

// end is one end of a connection, on a host; nil: on none in particular.
type end struct {
	*conn
	host *Host
}

func (l *link) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[0].closed && l.ends[1].closed
}

// stream is one direction of a connection: what was sent and not read yet.
type stream struct {
	sent   []packet
	closed bool // by its reader
}

// packet is what one Write sent. The last one of a stream has no bytes: the writer has closed.
type packet struct {
	data     []byte
	due      time.Time // when it arrives
	isEnd    bool
	isPrompt bool // it is not held
}

// conn is an end of a connection. Its Write does not wait for the reader, as a socket's with a large buffer does not.
type conn struct {
	link          *link
	in, out       *stream
	local, remote addr

	closed   bool
	deadline time.Time // of reads
}

var _ net.Conn = (*conn)(nil)

func (c *conn) Read(p []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case !c.deadline.IsZero() && !now.Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		until := c.deadline // when to look again at the latest; zero: when something moves
		if len(c.in.sent) > 0 && (!c.link.held || c.in.sent[0].isPrompt) {
			first := &c.in.sent[0]
			switch {
			case now.Before(first.due):
				if until.IsZero() || first.due.Before(until) {
					until = first.due
				}
			case first.isEnd:
				return 0, io.EOF
			default:
				n := copy(p, first.data)
				if first.data = first.data[n:]; len(first.data) == 0 {
					c.in.sent = c.in.sent[1:]
				}
				return n, nil
			}
		}
		if until.IsZero() {
			c.link.moved.Wait()
			continue
		}
		timer := time.AfterFunc(until.Sub(now), c.wake)
		c.link.moved.Wait()
		timer.Stop()
	}
}

func (c *conn) wake() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.moved.Broadcast()
}

func (c *conn) Write(p []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.link.silent || len(p) == 0:
		return len(p), nil
	case c.out.closed && !c.link.held:
		return 0, &net.OpError{Op: "write", Net: "memory", Addr: c.remote, Err: errReset}
	}
	c.send(packet{data: append([]byte(nil), p...)})
	return len(p), nil
}

// send puts a packet on its way. The caller holds the lock.
func (c *conn) send(p packet) {
	now := time.Now()
	if p.isPrompt = now.Equal(c.link.promptAt); p.isPrompt {
		p.due = now
	} else {
		p.due = now.Add(c.link.delay)
	}
	c.out.sent = append(c.out.sent, p)
	c.link.moved.Broadcast()
}

func (c *conn) Close() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed, c.in.closed = true, true
	if !c.link.silent {
		c.send(packet{isEnd: true})
	}
	c.link.moved.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: no Write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.deadline = t
	c.link.moved.Broadcast()
	return nil
}
