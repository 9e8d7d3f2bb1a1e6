package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Lease is how long a Lock is held after the time at which a successful Check was sent. No other holder gets
// the lock before that, no matter what happens to the holder, its connections or the server.
const Lease = 3 * time.Second

// The kinds of holders.
const (
	HolderSingle  = "single"  // one process, alone
	HolderCluster = "cluster" // all nodes of one cluster, together
)

// Holder identifies the holder of a database. Two holders are the same if kind and id are: all nodes of a
// cluster have the same id, each single process has its own.
type Holder struct {
	Kind string // HolderSingle or HolderCluster
	ID   string // letters and digits, at most 32
	Name string // for people: the node's name, or the cluster's prefix
}

func (h Holder) is(other Holder) bool { return h.Kind == other.Kind && h.ID == other.ID }

func (h Holder) String() string {
	switch {
	case h.Kind == HolderCluster:
		return fmt.Sprintf("the cluster %q (id %s)", h.Name, h.ID)
	case h.Name != "":
		return h.Name
	}
	return "another process"
}

// Lock is a hold on one database: while it lasts no other holder works on the same rows. Call one method at a
// time.
type Lock interface {
	// Check renews the hold for a Lease. ErrLockLost means that the hold has ended. After another error it
	// lasts until the Lease of the last good Check ends.
	Check(ctx context.Context) error
	// TakenUncleanly reports whether the last holder did not release the database, or released it unsettled.
	TakenUncleanly() bool
	// Release ends a single process's hold, so that the next holder gets it at once. settled: no starts of an
	// earlier holder are left open. The hold of a cluster ends a Lease after the last Check of any of its
	// nodes.
	Release(settled bool) error
}

// ErrLockLost is returned by Lock.Check when the database is not held any more.
var ErrLockLost = errors.New("the lock is not held any more")

// OccupiedError is returned by Lock when another holder has the database.
type OccupiedError struct {
	Database string
	Holder   string
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("the store is in use: %s is held by %s; stop that process first, or give this one another store",
		e.Database, e.Holder)
}

// Lock takes a database for a holder. It returns OccupiedError if another holder has it. A holder that has not
// released it is watched for a Lease and a second: without a sign of life its hold is taken over.
func (s *databases) Lock(ctx context.Context, database int, holder Holder) (Lock, error) {
	l, err := s.backend.lock(ctx, database, holder)
	var occupied *OccupiedError
	if err == nil || errors.As(err, &occupied) {
		return l, err
	}
	return nil, s.wrap(database, "lock", err)
}

// claim is the row "holder" of a database's toc_meta. Its text is
//
//	<kind> <id> <beat> <held|released|unsettled> <name>
//
// and each Check changes the beat. All changes are compare-and-sets of the whole text. If you change it, old
// and new processes must still refuse each other.
type claim struct {
	Holder
	beat  uint64
	state string
}

func (c claim) isReleased() bool { return c.state == stateReleased || c.state == stateUnsettled }

const (
	holderRow      = "holder" // its name in toc_meta
	maxName        = 120      // maximum bytes of a holder's name: the row has space for 255
	stateHeld      = "held"
	stateReleased  = "released"
	stateUnsettled = "unsettled" // released, but taken uncleanly and not settled since
)

// releasedAs is the state of a released claim.
func releasedAs(settled bool) string {
	if settled {
		return stateReleased
	}
	return stateUnsettled
}

func (c claim) text() string {
	return fmt.Sprintf("%s %s %d %s %s", c.Kind, c.ID, c.beat, c.state, strings.ToValidUTF8(c.Name[:min(len(c.Name), maxName)], ""))
}

// parseClaim parses a holder's text. An unknown text counts as a holder that has released nothing, so it is
// watched like any other.
func parseClaim(text string) claim {
	if parts := strings.SplitN(text, " ", 5); len(parts) == 5 {
		if beat, err := strconv.ParseUint(parts[2], 10, 64); err == nil {
			return claim{Holder: Holder{Kind: parts[0], ID: parts[1], Name: parts[4]}, beat: beat, state: parts[3]}
		}
	}
	return claim{Holder: Holder{Name: text}}
}

// ServerClock is a reading of a database server's clock.
type ServerClock struct {
	Sent, Received time.Time // by this process's clock
	Server         time.Time
}

// serverClocks holds the last reading by database; nil: there is none.
type serverClocks []atomic.Pointer[ServerClock]

func (c serverClocks) clock(database int) (ServerClock, bool) {
	if reading := c[database].Load(); reading != nil {
		return *reading, true
	}
	return ServerClock{}, false
}

// ServerClock returns the last reading of a database's clock, which each Lock.Check takes; false if there is
// none. SQLite has no separate clock.
func (s *databases) ServerClock(database int) (ServerClock, bool) { return s.backend.clock(database) }
