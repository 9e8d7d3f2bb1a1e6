package store

import (
	"context"
	"database/sql"
	"time"
)

// Control is a row of toc_control: what operators have decided about a business type.
type Control struct {
	BizType uint64
	Paused  bool
	Reason  string    // at most 255 characters
	Actor   string    // who decided; at most 64 bytes
	Until   time.Time // the end of the pause; zero: none
	Changed time.Time // milliseconds, UTC
}

// Replaces reports whether c wins over an earlier decision: it was changed later, or in the same millisecond and is a
// pause.
func (c Control) Replaces(earlier Control) bool {
	if c.Changed.Equal(earlier.Changed) {
		return c.Paused && !earlier.Paused
	}
	return c.Changed.After(earlier.Changed)
}

// maxControls bounds a read of toc_control. There is one row for each business type that was ever paused.
const maxControls = 10_000

// Controls reads the toc_control of a database.
func (s *Store) Controls(ctx context.Context, database int) (list []Control, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	const text = "SELECT biz_type,paused,reason,actor,paused_until,changed_at FROM toc_control LIMIT ?"
	// Not observed: each node reads this every second, over a connection that is still there. It does not show that the
	// database can be used.
	err = scanPool(ctx, s.dbs[database].unobserved, text, []any{maxControls}, func(rows *sql.Rows) error {
		var c Control
		var until sql.Null[utc]
		var changed utc
		err := rows.Scan((*unsigned)(&c.BizType), &c.Paused, &c.Reason, &c.Actor, &until, &changed)
		c.Until, c.Changed = time.Time(until.V), time.Time(changed)
		list = append(list, c)
		return err
	})
	return list, s.wrap(database, "read what is paused", err)
}

// SetControl writes a row into the toc_control of a database if it replaces the one there; see Replaces.
func (s *Store) SetControl(ctx context.Context, database int, c Control) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var until any
	if !c.Until.IsZero() {
		until = s.backend.timeArg(c.Until)
	}
	id, changed := s.backend.idArg(c.BizType), s.backend.timeArg(c.Changed)
	_, err := s.retryConflicts(ctx, database, []statement{
		{
			sql:  "DELETE FROM toc_control WHERE biz_type=? AND (changed_at<? OR changed_at=? AND paused<?)",
			args: []any{id, changed, changed, c.Paused},
		},
		{
			sql:  "INSERT INTO toc_control (biz_type,paused,reason,actor,paused_until,changed_at) VALUES (?,?,?,?,?,?)",
			args: []any{id, c.Paused, c.Reason, c.Actor, until, changed},
		},
	}, s.transact)
	if s.backend.refusal(err) == refusedDuplicate {
		return nil
	}
	return s.wrap(database, "write what is paused", err)
}
