package soak_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
func (h *hands) statement(l *load, c *change) (set string) {
	switch c.kind {
	case cancelled:
		c.set.status = new(task.Cancelled)
		return "status = 3"
	case redriven:
		c.from, c.set.status = task.Dead, new(task.Pending)
		if rand.IntN(2) == 0 {
			return "status = 0"
		}
		c.set.attempts = new(int)
		return "status = 0, attempts = 0"
	case lowered:
		c.set.attempts = new(int)
		return "attempts = 0"
	case edited, locked:
		text := "h" + strconv.FormatUint(l.keys.Add(1), 10)
		c.set.attribute, c.set.hasAttribute = textHash(text), true
		return "attribute = '" + text + "'"
	default:
		due := ahead()
		if rand.IntN(3) == 0 {
			due = time.Now().Truncate(time.Millisecond) // at once
		}
		c.set.low, c.set.high = due, due
		return "action_time = '" + timeText(due) + "'"
	}
}

// change makes one change; whether it was made is what the database says.
func (h *hands) change(l *load, of *history, kind string) {
	if !h.outage.TryRLock() {
		return
	}
	defer h.outage.RUnlock()
	c := &change{kind: kind, hand: true}
	set := h.statement(l, c)
	db, table := h.place(of.jobID)
	c.sent = time.Now()
	result, err := db.ExecContext(context.Background(), fmt.Sprintf("UPDATE %s SET %s WHERE job_id = %d AND status = %d%s", table, set, of.jobID, c.from, differs(c)))
	c.answered = time.Now()
	if err == nil {
		if n, _ := result.RowsAffected(); n > 0 {
			c.done = made
		}
	} else if !isLockWait(err) {
		l.problem("%s of task %d by hand: %v", kind, of.jobID, err)
		return
	}
	of.add(c)
}

// differs is the condition that there is something to change: SQLite counts rows that stay as they are, and nobody could
// tell such an edit from none.
func differs(c *change) string {
	switch {
	case c.kind == lowered:
		return " AND attempts > 0"
	case !c.set.low.IsZero():
		return " AND action_time <> '" + timeText(c.set.low) + "'"
	}
	return ""
}

// isLockWait tells that somebody else's transaction was in the way: nothing was changed.
func isLockWait(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1205 || e.Number == 1213 || e.Number == 1020) || err != nil && strings.Contains(err.Error(), "SQLITE_BUSY")
}

// lock edits a task in a transaction that is forgotten for seconds, and then committed or not.
func (h *hands) lock(ctx context.Context, l *load, of *history) {
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
	c := &change{kind: locked, hand: true, sent: time.Now()}
	set := h.statement(l, c)
	db, table := h.place(of.jobID)
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		if !isLockWait(err) { // SQLite's file is locked by a node that stands still
			l.problem("BEGIN by hand: %v", err)
		}
		return
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(context.Background(), fmt.Sprintf("UPDATE %s SET %s WHERE job_id = %d AND status = 0", table, set, of.jobID))
	if err != nil {
		if !isLockWait(err) {
			l.problem("lock task %d by hand: %v", of.jobID, err)
		}
		return
	}
	n, _ := result.RowsAffected()
	wait(ctx, h.lockFor())
	if rand.IntN(2) == 0 {
		err = tx.Rollback()
	} else if err = tx.Commit(); err == nil && n > 0 {
		c.done = made
	}
	c.answered = time.Now()
	if err != nil {
		l.problem("end a transaction of task %d by hand: %v", of.jobID, err)
		return
	}
	of.add(c)
}

// insertByHand stores a task by an INSERT.
func (l *load) insertByHand(ctx context.Context) {
	if !l.hands.outage.TryRLock() {
		return
	}
	defer l.hands.outage.RUnlock()
	layout := l.fleet.layout()
	b := rand.IntN(len(bizTypes))
	of := &history{bizType: bizTypes[b], bizID: rand.Uint64() >> 1, attribute: harmless}
	try := submitTry{sent: time.Now(), due: ahead()}
	var err error
	if of.jobID, err = sharding.JobID(time.Now(), layout.Shard(of.bizID), sharding.HandWorker); err != nil {
		l.problem("a job_id by hand: %v", err)
		return
	}
	db, table := l.hands.place(of.jobID)
	_, err = db.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO %s (job_id, biz_id, biz_type, action_time, attribute) VALUES (%d, %d, %d, '%s', '%s')",
		table, of.jobID, of.bizID, b+1, timeText(try.due), of.attribute))
	if err != nil {
		if !isLockWait(err) {
			l.problem("INSERT by hand: %v", err)
		}
		return
	}
	try.answered = time.Now()
	of.submits, of.known = []submitTry{try}, try.answered
	l.accept(ctx, of)
}

// dead lists some dead tasks.
func (h *hands) dead(l *load) (ids []uint64) {
	if !h.outage.TryRLock() {
		return nil
	}
	defer h.outage.RUnlock()
	db := h.dbs[rand.IntN(len(h.dbs))]
	rows, err := db.QueryContext(context.Background(), eachTable(h.fleet, "SELECT job_id FROM %s WHERE status = 4"))
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
