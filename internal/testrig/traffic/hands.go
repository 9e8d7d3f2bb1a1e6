package traffic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Hands change the tables by plain SQL, as docs/sql.md describes. Nobody breaks their line, so each result is certain.
type Hands struct {
	// Outage is held while a database server is away: hands rest then, as each result must be certain.
	Outage sync.RWMutex

	center  Center
	locks   chan struct{} // transactions that are open
	problem func(format string, args ...any)
}

// timeText is a time as both databases take it.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// place is where a job_id is.
func (h *Hands) place(jobID uint64) (*sql.DB, string) {
	layout := h.center.Layout
	shard, _ := layout.ShardOf(jobID)
	return h.center.DBs[layout.Database(shard)], sharding.TableName(layout.Table(shard))
}

// statement is a change of docs/sql.md, without its WHERE.
func (l actor) statement(c *audit.Change) (set string) {
	switch c.Kind {
	case audit.Cancelled:
		c.Set.Status = new(task.Cancelled)
		return "status = 3"
	case audit.Redriven:
		c.From, c.Set.Status = task.Dead, new(task.Pending)
		set, now := "status = 0", time.Now().Truncate(time.Millisecond)
		if l.IntN(2) == 0 {
			c.Set.Low, c.Set.High = now, now
			set += ", action_time = '" + timeText(now) + "', due_time = NULL"
		}
		if l.IntN(2) == 0 {
			c.Set.Attempts = new(int)
			set += ", attempts = 0"
		}
		return set
	case audit.Stopped:
		c.Set.Status = new(task.Dead)
		return "status = 4"
	case audit.Lowered:
		c.Set.Attempts = new(int)
		return "attempts = 0"
	case audit.Edited, audit.Locked:
		text := "h" + strconv.FormatUint(l.keys.Add(1), 10)
		c.Set.Attribute, c.Set.HasAttribute = audit.TextHash(text), true
		return "attribute = '" + text + "'"
	default:
		due := l.ahead()
		if l.IntN(3) == 0 {
			due = time.Now().Truncate(time.Millisecond) // at once
		}
		c.Set.Low, c.Set.High = due, due
		return "action_time = '" + timeText(due) + "', due_time = NULL"
	}
}

// byHand makes one change by SQL; whether it was made is what the database says.
func (l actor) byHand(of *audit.History, kind string) {
	if !l.Hands.Outage.TryRLock() {
		return
	}
	defer l.Hands.Outage.RUnlock()
	c := &audit.Change{Kind: kind, Hand: true}
	set := l.statement(c)
	db, table := l.Hands.place(of.JobID)
	c.Sent = time.Now()
	result, err := db.ExecContext(context.Background(), fmt.Sprintf("UPDATE %s SET %s WHERE job_id = %d AND status = %d%s", table, set, of.JobID, c.From, differs(c)))
	c.Answered = time.Now()
	if err == nil {
		if n, _ := result.RowsAffected(); n > 0 {
			c.Done = audit.Made
		}
		c.ByState = c.Done == audit.Refused
	} else if !isLockWait(err) {
		l.problem("%s of task %d by hand: %v", kind, of.JobID, err)
		return
	}
	of.Add(c)
}

// differs is the condition that there is something to change: SQLite counts rows that stay as they are, and such an edit
// looks like none.
func differs(c *audit.Change) string {
	switch {
	case c.Kind == audit.Lowered:
		return " AND attempts > 0"
	case !c.Set.Low.IsZero() && c.Kind != audit.Redriven:
		return " AND action_time <> '" + timeText(c.Set.Low) + "'"
	}
	return ""
}

// isLockWait reports whether another transaction was in the way: nothing was changed.
func isLockWait(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1205 || e.Number == 1213 || e.Number == 1020) || err != nil && strings.Contains(err.Error(), "SQLITE_BUSY")
}

// lock edits a task in a transaction that is forgotten for seconds, and then committed or not.
func (l actor) lock(ctx context.Context, of *audit.History) {
	if !l.Hands.Outage.TryRLock() {
		return
	}
	defer l.Hands.Outage.RUnlock()
	select {
	case l.Hands.locks <- struct{}{}:
		defer func() { <-l.Hands.locks }()
	default:
		return
	}
	c := &audit.Change{Kind: audit.Locked, Hand: true, Sent: time.Now()}
	set := l.statement(c)
	db, table := l.Hands.place(of.JobID)
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		if !isLockWait(err) { // SQLite's file is locked by a node that stands still
			l.problem("BEGIN by hand: %v", err)
		}
		return
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(context.Background(), fmt.Sprintf("UPDATE %s SET %s WHERE job_id = %d AND status = 0", table, set, of.JobID))
	if err != nil {
		if !isLockWait(err) {
			l.problem("lock task %d by hand: %v", of.JobID, err)
		}
		return
	}
	n, _ := result.RowsAffected()
	Wait(ctx, l.center.LockFor(l.Rand))
	if l.IntN(2) == 0 {
		err = tx.Rollback()
	} else if err = tx.Commit(); err == nil && n > 0 {
		c.Done = audit.Made
	}
	c.Answered = time.Now()
	if err != nil {
		l.problem("end a transaction of task %d by hand: %v", of.JobID, err)
		return
	}
	of.Add(c)
}

// insertByHand stores a task by an INSERT.
func (l actor) insertByHand(ctx context.Context) {
	if !l.Hands.Outage.TryRLock() {
		return
	}
	defer l.Hands.Outage.RUnlock()
	layout := l.center.Layout
	b := l.center.Types[l.IntN(len(l.center.Types))]
	of := &audit.History{BizType: b.Name, BizID: l.center.bizID(l.Rand, b.Name), Attribute: Harmless}
	try := audit.SubmitTry{Sent: time.Now(), Due: l.ahead()}
	var err error
	if of.JobID, err = sharding.JobID(time.Now(), layout.Shard(of.BizID), sharding.HandWorker); err != nil {
		l.problem("a job_id by hand: %v", err)
		return
	}
	db, table := l.Hands.place(of.JobID)
	_, err = db.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO %s (job_id, biz_id, biz_type, action_time, attribute) VALUES (%d, %d, %d, '%s', '%s')",
		table, of.JobID, of.BizID, b.ID, timeText(try.Due), of.Attribute))
	if err != nil {
		if !isLockWait(err) {
			l.problem("INSERT by hand: %v", err)
		}
		return
	}
	try.Answered = time.Now()
	of.Submits, of.Known = []audit.SubmitTry{try}, try.Answered
	l.accept(ctx, of)
}

// dead lists some dead tasks.
func (l actor) dead() (ids []uint64) {
	if !l.Hands.Outage.TryRLock() {
		return nil
	}
	defer l.Hands.Outage.RUnlock()
	db := l.center.DBs[l.IntN(len(l.center.DBs))]
	rows, err := db.QueryContext(context.Background(), audit.EachTable(l.center.Layout.TablesPerDatabase, "SELECT job_id FROM %s WHERE status = 4"))
	if err != nil {
		if !isLockWait(err) {
			l.problem("look for dead tasks: %v", err)
		}
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			l.problem("read a dead task: %v", err)
			return ids
		}
		ids = append(ids, id)
	}
	return ids
}
