package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// AuditEntry is a row of toc_audit: who did what.
type AuditEntry struct {
	At     time.Time
	Actor  string // at most 64 characters
	Action string // pause, resume, redrive, discard, …; at most 32 characters
	Target string // what it was done to, like a biz_type; at most 255 characters
	Count  int    // how many tasks it changed
	Detail string // at most 1024 characters
}

// AuditKey is a place in the list of entries, which is ordered from the latest to the earliest.
type AuditKey struct {
	At       time.Time
	Database int
	ID       uint64
}

func (k AuditKey) compare(other AuditKey) int {
	return cmp.Or(other.At.Compare(k.At), cmp.Compare(k.Database, other.Database), cmp.Compare(other.ID, k.ID))
}

// AuditFilter narrows a look-up of entries.
type AuditFilter struct {
	Actor, Action string    // empty: all
	From, To      time.Time // at or after From and before To; zero: no bound
	After         AuditKey  // the last entry of the page before; zero: the first page
	Limit         int
}

// The lengths of the columns of toc_audit, in characters.
const (
	maxActor  = 64
	maxAction = 32
	maxTarget = 255
	maxDetail = 1024
)

// Record writes an entry. A database that does not take it leaves it to the next one, so the error is that of all.
// (If only the answer of a database is lost, the entry is there twice.)
func (s *Store) Record(ctx context.Context, e AuditEntry) error {
	st := statement{
		sql: "INSERT INTO toc_audit (at,actor,action,target,count,detail) VALUES (?,?,?,?,?,?)",
		args: []any{s.backend.timeArg(task.CeilMilli(e.At)), cut(e.Actor, maxActor), cut(e.Action, maxAction),
			cut(e.Target, maxTarget), int64(e.Count), cut(e.Detail, maxDetail)},
	}
	var order, away []int
	for d := range s.dbs {
		if s.Writable(d) {
			order = append(order, d)
		} else {
			away = append(away, d)
		}
	}
	var errs []error
	for _, d := range append(order, away...) {
		bound, cancel := s.bound(ctx)
		_, err := s.retryConflicts(bound, d, []statement{st}, s.transact)
		cancel()
		if err == nil {
			return nil
		}
		if errs = append(errs, s.wrap(d, "write the audit", err)); ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// cut keeps at most n characters.
func cut(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n])
	}
	return text
}

// Audit reads entries of all databases, the latest first, and the place of the last of them. If a database does not
// answer, the entries of the others come with its error.
func (s *Store) Audit(ctx context.Context, f AuditFilter) (list []AuditEntry, last AuditKey, err error) {
	type entry struct {
		AuditKey
		AuditEntry
	}
	var mu sync.Mutex
	var found []entry
	errs := make([]error, len(s.dbs))
	s.eachDatabase(func(d int) {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		text, args := s.auditStatement(d, f)
		errs[d] = s.wrap(d, "read the audit", s.scan(ctx, d, text, args, func(rows *sql.Rows) error {
			e := entry{AuditKey: AuditKey{Database: d}}
			var at utc
			err := rows.Scan((*unsigned)(&e.ID), &at, &e.Actor, &e.Action, &e.Target, &e.Count, &e.Detail)
			e.AuditKey.At, e.AuditEntry.At = time.Time(at), time.Time(at)
			mu.Lock()
			found = append(found, e)
			mu.Unlock()
			return err
		}))
	})
	slices.SortFunc(found, func(a, b entry) int { return a.compare(b.AuditKey) })
	for _, e := range found[:min(f.Limit, len(found))] {
		list, last = append(list, e.AuditEntry), e.AuditKey
	}
	return list, last, errors.Join(errs...)
}

func (s *Store) auditStatement(database int, f AuditFilter) (text string, args []any) {
	text = "SELECT id,at,actor,action,target,count,detail FROM toc_audit WHERE 1=1"
	add := func(condition string, more ...any) { text, args = text+condition, append(args, more...) }
	if f.Actor != "" {
		add(" AND actor=?", f.Actor)
	}
	if f.Action != "" {
		add(" AND action=?", f.Action)
	}
	if !f.From.IsZero() {
		add(" AND at>=?", s.backend.timeArg(task.CeilMilli(f.From)))
	}
	if !f.To.IsZero() {
		add(" AND at<?", s.backend.timeArg(task.CeilMilli(f.To)))
	}
	if at := s.backend.timeArg(f.After.At); !f.After.At.IsZero() {
		switch cmp.Compare(database, f.After.Database) {
		case -1:
			add(" AND at<?", at)
		case 0:
			add(" AND at<=? AND (at<? OR id<?)", at, at, s.backend.idArg(f.After.ID))
		case 1:
			add(" AND at<=?", at)
		}
	}
	add(" ORDER BY at DESC,id DESC LIMIT ?", int64(f.Limit))
	return text, args
}

// purgeAuditRows is the maximum number of rows of a table in a PurgeAudit.
const purgeAuditRows = 1000

// PurgeAudit deletes entries of a database from before the given time, and operations that had ended by then: a batch.
// It returns their number; 0 means that none are left.
func (s *Store) PurgeAudit(ctx context.Context, database int, before time.Time) (int, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	old := func(table, column string) statement {
		return statement{
			sql: fmt.Sprintf("DELETE FROM %[1]s WHERE id IN (SELECT id FROM (SELECT id FROM %[1]s WHERE %[2]s<? ORDER BY %[2]s LIMIT %[3]d) AS x)",
				table, column, purgeAuditRows),
			args: []any{s.backend.timeArg(before)},
		}
	}
	oldest := s.backend.idArg(operationID(before, 0)) // an id has the time of the start
	tasks := statement{
		sql: fmt.Sprintf("DELETE FROM toc_operation_task WHERE operation<? AND job_id IN (SELECT job_id FROM (SELECT job_id FROM toc_operation_task WHERE operation<? ORDER BY operation,job_id LIMIT %d) AS x)",
			purgeAuditRows),
		args: []any{oldest, oldest},
	}
	affected, err := s.retryConflicts(ctx, database, []statement{old("toc_audit", "at"), old("toc_operation", "ended"), tasks}, s.transact)
	if err != nil {
		return 0, s.wrap(database, "purge the audit", err)
	}
	return int(affected[0] + affected[1] + affected[2]), nil
}
