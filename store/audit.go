package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// AuditEntry is a row of toc_audit: who did what.
type AuditEntry struct {
	At     time.Time `gorm:"-"`
	Actor  string    // at most 64 characters
	Action string    // pause, resume, redrive, discard, …; at most 32 characters
	Target string    // what it was done to, like a biz_type; at most 255 characters
	Count  int       // how many tasks it changed
	Detail string    // at most 1024 characters
}

// AuditKey is a place in the list of entries, which is ordered from the latest to the earliest.
type AuditKey struct {
	At       time.Time `gorm:"serializer:toc"`
	ID       uint64    `gorm:"serializer:toc"`
	Database int       `gorm:"-"`
}

func (k AuditKey) compare(other AuditKey) int {
	return cmp.Or(other.At.Compare(k.At), cmp.Compare(other.ID, k.ID), cmp.Compare(k.Database, other.Database))
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

// Record writes an entry. A database that does not take it leaves it to the next one, so the error is that of all. If only
// the answer of a database is lost, the entry is there twice, with one id, and Audit reads it once.
func (s records) Record(ctx context.Context, e AuditEntry) error {
	st := statement{
		sql: "INSERT INTO toc_audit (id,at,actor,action,target,count,detail) VALUES (?,?,?,?,?,?,?)",
		args: []any{s.backend.idArg(rand.Uint64N(1 << 62)), s.backend.timeArg(task.CeilMilli(e.At)), cut(e.Actor, maxActor),
			cut(e.Action, maxAction),
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
		_, err := s.change(ctx, d, "write the audit", st)
		if err == nil {
			return nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
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

// auditRows is how many rows of a database an Audit of some actor or action looks at. The index has their times alone.
const auditRows = 1000

// auditEntry is the GORM model of toc_audit.
type auditEntry struct {
	AuditKey
	AuditEntry
}

// Audit reads entries of all databases, the latest first: at most f.Limit. next is the place of the last one if there may be
// more; the zero next: there are none. A page may be short, or empty, although there are more. If a database does not answer,
// the entries of the others come with its error.
func (s records) Audit(ctx context.Context, f AuditFilter) (list []AuditEntry, next AuditKey, err error) {
	most := f.Limit
	if f.Actor != "" || f.Action != "" {
		most = max(most, auditRows)
	}
	found := make([][]auditEntry, len(s.dbs))
	err = s.eachDatabase("read the audit", func(d int) (err error) {
		found[d], err = s.audit(ctx, f, d, most)
		return err
	})
	var all []auditEntry
	var horizon AuditKey // what is behind it was not read everywhere
	for _, rows := range found {
		if len(rows) == most {
			if last := rows[most-1].AuditKey; horizon.At.IsZero() || last.compare(horizon) < 0 {
				horizon = AuditKey{At: last.At, ID: last.ID, Database: len(s.dbs)} // with the copies in other databases
			}
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b auditEntry) int { return a.compare(b.AuditKey) })
	next = horizon
	for i, e := range all {
		if !horizon.At.IsZero() && e.compare(horizon) > 0 {
			break
		}
		isCopy := i > 0 && e.ID == all[i-1].ID && e.AuditEntry == all[i-1].AuditEntry
		switch {
		case isCopy && len(list) == f.Limit:
			next = e.AuditKey // the next page must not begin with it
		case len(list) == f.Limit:
			return list, next, err
		case !isCopy && f.matches(&e.AuditEntry):
			if list = append(list, e.AuditEntry); len(list) == f.Limit {
				next = e.AuditKey
			}
		}
	}
	return list, next, err
}

func (f *AuditFilter) matches(e *AuditEntry) bool {
	return (f.Actor == "" || f.Actor == e.Actor) && (f.Action == "" || f.Action == e.Action)
}

// audit reads the latest rows of a database, at most most.
func (s records) audit(ctx context.Context, f AuditFilter, database, most int) (list []auditEntry, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	q := s.table(ctx, database, "toc_audit").Order("at DESC,id DESC").Limit(most)
	if !f.From.IsZero() {
		q = q.Where("at>=?", s.backend.timeArg(task.CeilMilli(f.From)))
	}
	if !f.To.IsZero() {
		q = q.Where("at<?", s.backend.timeArg(task.CeilMilli(f.To)))
	}
	if !f.After.At.IsZero() {
		at := s.backend.timeArg(f.After.At)
		order := "id<?"
		if database > f.After.Database {
			order = "id<=?"
		}
		q = q.Where("at<=? AND (at<? OR "+order+")", at, at, s.backend.idArg(f.After.ID))
	}
	err = q.Find(&list).Error
	for i := range list {
		list[i].Database, list[i].AuditEntry.At = database, list[i].AuditKey.At
	}
	return list, err
}

// purgeAuditRows is the maximum number of rows of a table in a PurgeAudit.
const purgeAuditRows = 1000

// PurgeAudit deletes entries of a database from before the given time, and operations that had ended by then: a batch.
// It returns their number; 0 means that none are left.
func (s records) PurgeAudit(ctx context.Context, database int, before time.Time) (int, error) {
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
	affected, err := s.change(ctx, database, "purge the audit", old("toc_audit", "at"), old("toc_operation", "ended"), tasks)
	if err != nil {
		return 0, err
	}
	return int(affected[0] + affected[1] + affected[2]), nil
}
