package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Lease is how long a Lock is held after the moment at which a successful Check was
// sent. Nobody else gets the lock before that time is over, whatever happens to the
// holder, its connections or the server.
const Lease = 3 * time.Second

// Who may hold a database.
const (
	HolderSingle  = "single"  // one process, alone
	HolderCluster = "cluster" // all nodes of one cluster, together
)

// Holder is who holds a database, or wants to. Two holders are the same if kind and
// id are: all nodes of a cluster give the same id, each single process its own.
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

// Lock is a hold on one database: as long as it lasts no other holder works on the
// same rows. Its methods are called one at a time.
type Lock interface {
	// Check proves the hold anew, for a Lease. ErrLockLost means that it has ended;
	// after another error it lasts until the Lease of the last good Check is over.
	Check(ctx context.Context) error
	// TakenUncleanly tells whether the holder before did not release the database, or
	// released it unsettled.
	TakenUncleanly() bool
	// Release gives a single process's hold back, so that the next holder gets it at
	// once. settled: nothing is left that a holder before may have started. That of a cluster ends a Lease after the last Check of any of its nodes.
	Release(settled bool) error
}

// ErrLockLost answers Lock.Check when the database is not held any more.
var ErrLockLost = errors.New("the lock is not held any more")

// OccupiedError answers Lock when somebody else holds the database.
type OccupiedError struct {
	Database string
	Holder   string
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("the store is in use: %s is held by %s; stop that process first, or give this one another store",
		e.Database, e.Holder)
}

// Lock takes a database for a holder. It answers OccupiedError when another has it.
// A holder that released nothing is watched for a Lease and a second: if it gives no
// sign of life, its hold is taken over.
func (s *Store) Lock(ctx context.Context, database int, holder Holder) (Lock, error) {
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
// and every proof of the hold is another beat. All changes are compare-and-sets of
// the whole text. If you change it, old and new processes must still refuse each other.
type claim struct {
	Holder
	beat  uint64
	state string
}

func (c claim) isReleased() bool { return c.state == stateReleased || c.state == stateUnsettled }

const (
	holderRow      = "holder" // its name in toc_meta
	maxName        = 120      // bytes of a holder's name that are kept: the row has room for 255
	stateHeld      = "held"
	stateReleased  = "released"
	stateUnsettled = "unsettled" // released, but taken uncleanly and not settled since
)

// releasedAs is the state of a claim that is released.
func releasedAs(settled bool) string {
	if settled {
		return stateReleased
	}
	return stateUnsettled
}

func (c claim) text() string {
	return fmt.Sprintf("%s %s %d %s %s", c.Kind, c.ID, c.beat, c.state, strings.ToValidUTF8(c.Name[:min(len(c.Name), maxName)], ""))
}

// parseClaim reads a holder's text. One that is not ours is taken for a holder that
// released nothing, so that it is watched like any other.
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

// ServerClock gives the last reading of a database's clock, which each Lock.Check
// takes on the way; false if there is none. SQLite has no clock of its own.
func (s *Store) ServerClock(database int) (ServerClock, bool) { return s.backend.clock(database) }
