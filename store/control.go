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

// Decisions are what operators have decided, as one database has it.
type Decisions struct {
	Controls  []Control // at most 10,000
	Operation bool      // an operation runs
}

// Decisions reads what operators have decided. It is the one poll of all databases: nodes make it every second.
func (s records) Decisions(ctx context.Context, database int) (all Decisions, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	// One row at least. There is one for each business type that was ever paused. The limit is a literal: SQLite would
	// parse the statement twice for each run, to plan it with the value.
	const text = "SELECT o.runs,biz_type,paused,reason,actor,paused_until,changed_at" +
		" FROM (SELECT EXISTS (SELECT 1 FROM toc_operation WHERE state='running') AS runs) AS o LEFT JOIN toc_control ON 1=1 LIMIT 10000"
	// Not observed: the connection is still there, so an answer does not show that the database can be used.
	err = scanPool(ctx, s.dbs[database].unobserved, text, nil, func(rows *sql.Rows) error {
		var bizType sql.Null[unsigned]
		var paused sql.NullBool
		var reason, actor sql.NullString
		var until, changed sql.Null[utc]
		err := rows.Scan(&all.Operation, &bizType, &paused, &reason, &actor, &until, &changed)
		if bizType.Valid {
			all.Controls = append(all.Controls, Control{
				BizType: uint64(bizType.V), Paused: paused.Bool, Reason: reason.String, Actor: actor.String,
				Until: time.Time(until.V), Changed: time.Time(changed.V),
			})
		}
		return err
	})
	return all, s.wrap(database, "read what operators have decided", err)
}

// SetControl writes a row into the toc_control of a database if it replaces the one there; see Replaces.
func (s records) SetControl(ctx context.Context, database int, c Control) error {
	id, changed := s.backend.idArg(c.BizType), s.backend.timeArg(c.Changed)
	_, err := s.change(ctx, database, "write what is paused",
		statement{
			sql:  "DELETE FROM toc_control WHERE biz_type=? AND (changed_at<? OR changed_at=? AND paused<?)",
			args: []any{id, changed, changed, c.Paused},
		},
		statement{
			sql:  "INSERT INTO toc_control (biz_type,paused,reason,actor,paused_until,changed_at) VALUES (?,?,?,?,?,?)",
			args: []any{id, c.Paused, c.Reason, c.Actor, s.timeOrNull(c.Until), changed},
		})
	if s.backend.refusal(err) == refusedDuplicate {
		return nil
	}
	return err
}
