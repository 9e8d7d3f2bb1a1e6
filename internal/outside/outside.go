// Package outside has the functions by which a center reaches the world outside its process: servers, other nodes, databases
// and the time of day. A field that is nil stands for the real function. Tests set a network in memory, databases with faults
// and wrong clocks.
package outside

import (
	"context"
	"database/sql/driver"
	"net"
	"time"
)

// Outside is what a center is surrounded by. Nil fields are the real thing.
type Outside struct {
	// Dial connects to servers and other nodes: Consul, Redis, Kafka, webhooks, the collector of traces.
	Dial Dial
	// Listen opens the port of the HTTP API.
	Listen func(network, address string) (net.Listener, error)
	// Connect returns what connects to a database in place of c, which is the real way.
	Connect func(database int, c driver.Connector) driver.Connector
	// Shared is whether the nodes of a cluster share the files of a SQLite store, in one process. Their tables are there before.
	Shared bool
	// Hold takes the directory of a SQLite store for this process, until release. It returns unix.EWOULDBLOCK if another one
	// has it.
	Hold func(dir string) (release func() error, err error)
	// Ahead is how far the wall clock is ahead of time.Now. It may change, like a clock that somebody sets.
	Ahead func() time.Duration
	// Killed ends when the machine or the process is dead, as far as all others can see: a drain would be in vain.
	Killed context.Context
}

// Connector is what makes the connections to a database, by Connect or real.
func (o Outside) Connector(database int, real driver.Connector) driver.Connector {
	if o.Connect == nil {
		return real
	}
	return o.Connect(database, real)
}

// Dial connects to host:port. Nil is that of package net.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Within returns a Dial that gives up after a time; 0 is no limit.
func (d Dial) Within(timeout time.Duration) Dial {
	if d == nil {
		return (&net.Dialer{Timeout: timeout}).DialContext
	}
	if timeout == 0 {
		return d
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return d(ctx, network, address)
	}
}
