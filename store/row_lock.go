package store

import (
	"context"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The holder of a database that several processes can reach is a row of toc_meta that the holder keeps changing. A lock
// of the server would not do: it would end with its connection, while its holder still relies on it, or outlive a host
// that died silently.
//
// A new process watches the row by its own clock. If the row changes, the holder lives. If it stands still for
// a Lease and a second, the new process takes it over by a compare-and-set: a later change by the old holder
// has no effect, and so proves nothing. The last change that proved something was sent before the watch began,
// hence its Lease is over.

const (
	holderTimeout = 1500 * time.Millisecond // of one statement; leaves time for a second in a Lease
	takeOverAfter = Lease + time.Second     // how long a silent holder is watched
	watchEvery    = 200 * time.Millisecond
)

// holderRows reads and changes the holder's rows.
type holderRows interface {
	// readHolder returns the row; "" if there is none.
	readHolder(ctx context.Context, database int) (row string, err error)
	// swapHolder changes the row if it is still the given one, and returns the row as it is then.
	swapHolder(ctx context.Context, database int, seen string, next claim) (row string, changed bool, err error)
	// nameHolderBlocked joins the cause with the error of a row that is locked.
	nameHolderBlocked(ctx context.Context, database int, err error) error
}

// lockRow takes the row as soon as no other holder has it.
func lockRow(ctx context.Context, b holderRows, database int, name string, holder Holder) (Lock, error) {
	seen, err := b.readHolder(ctx, database)
	if err != nil {
		return nil, err
	}
	for watched := time.Now(); ; {
		before := parseClaim(seen)
		free := seen == "" || before.isReleased() || before.is(holder)
		if !free && time.Since(watched) < takeOverAfter {
			if err := wait.For(ctx, watchEvery); err != nil {
				return nil, err
			}
			now, err := b.readHolder(ctx, database)
			if err != nil {
				return nil, err
			}
			if after := parseClaim(now); now != seen && now != "" && !after.isReleased() && !after.is(holder) {
				return nil, &OccupiedError{Database: name, Holder: after.Holder.String()}
			}
			seen = now
			continue
		}
		next := claim{Holder: holder, beat: before.beat + 1, state: stateHeld}
		now, taken, err := b.swapHolder(ctx, database, seen, next)
		if err != nil {
			return nil, b.nameHolderBlocked(ctx, database, err)
		}
		if taken {
			return &rowLock{rows: b, database: database, name: name, claim: next, unclean: !free || before.state == stateUnsettled}, nil
		}
		// Another process was faster: another node of ours, or one of another holder.
		after := parseClaim(now)
		if !after.is(holder) && now != "" && !after.isReleased() {
			return nil, &OccupiedError{Database: name, Holder: after.Holder.String()}
		}
		seen = now
	}
}

// rowLock is the hold on a database.
type rowLock struct {
	rows     holderRows
	database int
	name     string // of the database
	claim    claim  // the last known row
	unclean  bool
}

func (l *rowLock) TakenUncleanly() bool { return l.unclean }

func (l *rowLock) Check(ctx context.Context) error { return l.write(ctx, stateHeld) }

// write makes the next beat. If the answer to a beat was lost, the beat may have been made: then the row
// differs from the known one, and is changed once more. To find it changed proves nothing for a single process,
// but for a cluster it proves that another node lives.
func (l *rowLock) write(ctx context.Context, state string) error {
	for {
		next := l.claim
		next.beat++
		next.state = state
		row, changed, err := l.rows.swapHolder(ctx, l.database, l.claim.text(), next)
		if err != nil {
			return l.rows.nameHolderBlocked(ctx, l.database, err)
		}
		now := parseClaim(row)
		if row == "" || !now.is(l.claim.Holder) || now.isReleased() && state == stateHeld {
			return fmt.Errorf("%w: %s is held by %s", ErrLockLost, l.name, now.Holder)
		}
		l.claim = now
		if changed || now.Kind == HolderCluster || now.isReleased() {
			return nil
		}
	}
}

func (l *rowLock) Release(settled bool) error {
	if l.claim.Kind == HolderCluster {
		return nil
	}
	return l.write(context.Background(), releasedAs(settled))
}
