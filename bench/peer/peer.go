// Package peer has the systems that are measured: this product in its several
// forms, the systems that users compare it with, and the floors beneath it. Each
// is driven by its public API, with the best reasonable settings, and names these
// settings.
//
// The same work comes in for all of them (Load); counts and lateness go out. Other
// packages choose the measurements, repeat them and report them.
package peer

import (
	"context"
	"errors"
	"time"

	"github.com/timeoutcenter/toc/bench/server"
)

// ErrMissing is a peer that cannot be measured on this machine. It is reported as
// missing, never as zero.
var ErrMissing = errors.New("missing")

// Part is something that a peer may or may not do.
type Part uint16

// The parts that a peer may do.
const (
	Submits  Part = 1 << iota // takes single tasks
	Batches                   // takes many tasks in one call
	Fires                     // calls a processor when a task is due, and records the outcome
	Parks                     // holds tasks that are due much later
	Purges                    // deletes what has fired after a time: a Purged
	Grows                     // is the product: it is also measured against itself, with more rows
	Clusters                  // is the product with several nodes
	Scripts                   // runs the product's scripts on Redis alone
	Restarts                  // goes on when its servers end and start again: a Restarted

	everything = Submits | Batches | Fires | Parks
)

// Info is what the results say of a peer.
type Info struct {
	Name     string // "toc/redis/8x128"
	Parts    Part
	Settings string // that were chosen, and why
	Durable  string // what an answered submit survives
	Precise  string // the precision of a task's due time
}

// Has reports whether a peer does all parts of p.
func (i Info) Has(p Part) bool { return i.Parts&p == p }

// Env is where a peer is brought up.
type Env struct {
	Scratch   string        // a directory that vanishes with the run
	Repo      string        // the product's sources
	Retention time.Duration // of what has fired, for the peers that keep it; 0: their default
}

// Peer is one system. Up is called once, then Work once; Load any number of times.
type Peer interface {
	Info() Info
	// Version names the versions of the library and of the servers. An
	// ErrMissing names the missing part.
	Version(ctx context.Context, env Env) (string, error)
	// Up starts servers and clients, empty. An ErrMissing names the missing part.
	Up(ctx context.Context, env Env) error
	// Work starts the processors. What fires counts for the latest Load.
	Work(ctx context.Context) error
	// Load submits tasks, and returns when the last submit was answered.
	Load(ctx context.Context, l Load) (Loaded, error)
	// Done is how many outcomes the system itself has recorded since it is up.
	Done(ctx context.Context) (int, error)
	// Heard is the number of calls of the processor since the latest Reset. It is cheap.
	Heard(ctx context.Context) (int, error)
	// Fired is the full record of these calls.
	Fired(ctx context.Context) (Fired, error)
	// Reset forgets what fired, and makes room for n.
	Reset(ctx context.Context, n int) error
	// Processes is what the system consists of, the process that calls it among them.
	Processes() []Process
	// Down ends everything that Up started. It may be called after a failed Up.
	Down() error
}

// Gated is a peer that cannot make many tasks due at one instant. They are made
// due in the second before it, and its connected workers wait for the instant.
type Gated interface {
	Hold()    // from a second later on, workers take nothing
	Release() // they begin
}

// Restarted is a peer whose servers can end and start again, while its client goes on.
type Restarted interface {
	Kill()                             // kill -9 of all servers
	Restart(ctx context.Context) error // on the same data and ports
}

// Purged is a peer that keeps what has fired for Env.Retention.
type Purged interface {
	Rows(ctx context.Context) (int, error) // tasks in the store, of all states
}

// Process is one process of a peer.
type Process struct {
	Name string // "mariadb"; "client" is the one with the library and the processors
	PID  int
	Addr string // of a server: host:port
}

// Load is tasks to be submitted.
type Load struct {
	N       int           `json:"n"`
	Callers int           `json:"callers"` // submit at the same time
	Batch   int           `json:"batch"`   // tasks a call; 1: the call for one
	Rate    int           `json:"rate"`    // tasks a second; 0: as fast as it goes
	At      time.Time     `json:"at"`      // due then; zero: from the moment of the submit
	After   time.Duration `json:"after"`   // due so much after At
	Spread  time.Duration `json:"spread"`  // and up to so much more, at random
	// Near puts into a call tasks that are stored near each other, if their places
	// are known. The rows are the same in the end, and there sooner.
	Near bool `json:"near"`
}

// Loaded is how a Load went.
type Loaded struct {
	Took  time.Duration
	Calls []time.Duration // each call's time, sorted
}

// Fired is the record of the processor's calls.
type Fired struct {
	Late  []time.Duration // of each call, sorted; a negative one is early
	Tasks int             // different tasks
	Twice int             // of them, the ones that were called more than once
	First time.Time       // the moment of the first; zero: none
}

func process(name string, s *server.Server) Process {
	return Process{Name: name, PID: s.PID(), Addr: s.Addr}
}
