package soak_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// hands change the tables by plain SQL, as docs/sql.md tells. Nobody breaks their line, so they know what they did.
type hands struct {
	fleet *fleet
	dbs   []*sql.DB
	locks chan struct{} // transactions that are open
	// outage is held while a database server is away: hands rest then, as they must know what they did.
	outage sync.RWMutex
	// lockFor is how long such a transaction is open.
	lockFor func() time.Duration
}

func newHands(f *fleet, long bool) *hands {
	list, err := app.Databases(f.cfg, false)
	require.NoError(f.t, err)
	h := &hands{fleet: f, locks: make(chan struct{}, 2)}
	for _, d := range list {
		d.DB.SetMaxOpenConns(8)
		h.dbs = append(h.dbs, d.DB)
	}
	f.t.Cleanup(func() { require.NoError(f.t, app.CloseDatabases(list)) })
	h.lockFor = func() time.Duration {
		switch {
		case f.cfg.Store.Driver == configs.DriverSQLite: // it has no locks of rows: all of the file waits
			return 500*time.Millisecond + time.Duration(rand.Int64N(int64(time.Second)))
		case long:
			return 5*time.Second + time.Duration(rand.Int64N(int64(15*time.Second)))
		}
		return 3*time.Second + time.Duration(rand.Int64N(int64(3*time.Second)))
	}
	return h
}

// timeText is a time as both databases take it.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// place is where a job_id is.
func (h *hands) place(jobID uint64) (*sql.DB, string) {
	layout := h.fleet.layout()
	shard, _ := layout.ShardOf(jobID)
	return h.dbs[layout.Database(shard)], sharding.TableName(layout.Table(shard))
}

// statement is a change of docs/sql.md, without its WHERE.
func (h *hands) statement(l *load, c *audit.Change) (set string) {
	switch c.Kind {
	case audit.Cancelled:
		c.Set.Status = new(task.Cancelled)
		return "status = 3"
	case audit.Redriven:
		c.From, c.Set.Status = task.Dead, new(task.Pending)
		if rand.IntN(2) == 0 {
			return "status = 0"
		}
		c.Set.Attempts = new(int)
		return "status = 0, attempts = 0"
	case audit.Lowered:
		c.Set.Attempts = new(int)
		return "attempts = 0"
	case audit.Edited, audit.Locked:
		text := "h" + strconv.FormatUint(l.keys.Add(1), 10)
		c.Set.Attribute, c.Set.HasAttribute = audit.TextHash(text), true
		return "attribute = '" + text + "'"
	default:
		due := ahead()
		if rand.IntN(3) == 0 {
			due = time.Now().Truncate(time.Millisecond) // at once
		}
		c.Set.Low, c.Set.High = due, due
		return "action_time = '" + timeText(due) + "'"
	}
}

// change makes one change; whether it was made is what the database says.
func (h *hands) change(l *load, of *audit.History, kind string) {
	if !h.outage.TryRLock() {
		return
	}
	defer h.outage.RUnlock()
	c := &audit.Change{Kind: kind, Hand: true}
	set := h.statement(l, c)
	db, table := h.place(of.JobID)
	c.Sent = time.Now()
	result, err := db.ExecContext(context.Background(), fmt.Sprintf("UPDATE %s SET %s WHERE job_id = %d AND status = %d%s", table, set, of.JobID, c.From, differs(c)))
	c.Answered = time.Now()
	if err == nil {
		if n, _ := result.RowsAffected(); n > 0 {
			c.Done = audit.Made
		}
	} else if !isLockWait(err) {
		l.problem("%s of task %d by hand: %v", kind, of.JobID, err)
		return
	}
	of.Add(c)
}

// differs is the condition that there is something to change: SQLite counts rows that stay as they are, and nobody could
// tell such an edit from none.
func differs(c *audit.Change) string {
	switch {
	case c.Kind == audit.Lowered:
		return " AND attempts > 0"
	case !c.Set.Low.IsZero():
		return " AND action_time <> '" + timeText(c.Set.Low) + "'"
	}
	return ""
}

// isLockWait tells that somebody else's transaction was in the way: nothing was changed.
func isLockWait(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1205 || e.Number == 1213 || e.Number == 1020) || err != nil && strings.Contains(err.Error(), "SQLITE_BUSY")
}

// lock edits a task in a transaction that is forgotten for seconds, and then committed or not.
func (h *hands) lock(ctx context.Context, l *load, of *audit.History) {
	if !h.outage.TryRLock() {
		return
	}
	defer h.outage.RUnlock()
	select {
	case h.locks <- struct{}{}:
		defer func() { <-h.locks }()
	default:
		return
	}
	c := &audit.Change{Kind: audit.Locked, Hand: true, Sent: time.Now()}
	set := h.statement(l, c)
	db, table := h.place(of.JobID)
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
	wait(ctx, h.lockFor())
	if rand.IntN(2) == 0 {
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
func (l *load) insertByHand(ctx context.Context) {
	if !l.hands.outage.TryRLock() {
		return
	}
	defer l.hands.outage.RUnlock()
	layout := l.fleet.layout()
	b := rand.IntN(len(bizTypes))
	of := &audit.History{BizType: bizTypes[b], BizID: rand.Uint64() >> 1, Attribute: harmless}
	try := audit.SubmitTry{Sent: time.Now(), Due: ahead()}
	var err error
	if of.JobID, err = sharding.JobID(time.Now(), layout.Shard(of.BizID), sharding.HandWorker); err != nil {
		l.problem("a job_id by hand: %v", err)
		return
	}
	db, table := l.hands.place(of.JobID)
	_, err = db.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO %s (job_id, biz_id, biz_type, action_time, attribute) VALUES (%d, %d, %d, '%s', '%s')",
		table, of.JobID, of.BizID, b+1, timeText(try.Due), of.Attribute))
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
func (h *hands) dead(l *load) (ids []uint64) {
	if !h.outage.TryRLock() {
		return nil
	}
	defer h.outage.RUnlock()
	db := h.dbs[rand.IntN(len(h.dbs))]
	rows, err := db.QueryContext(context.Background(), audit.EachTable(h.fleet.cfg.Store.TablesPerDatabase, "SELECT job_id FROM %s WHERE status = 4"))
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
