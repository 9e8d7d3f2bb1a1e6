package virtual

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

const (
	// leadIn is how long before a task the polls have their own pace again, on top of the lookahead of a scan: so the scan that
	// reads the task is the same as without a rest.
	leadIn = time.Second
	// leastLead is the least of both.
	leastLead = 11 * time.Second
	// settles is how long the polls have their own pace after a write of a node.
	settles = 3 * time.Second
	// follows is the same at the beginning, and after a write of somebody else: the default schedule of scans is shorter.
	follows = 11 * time.Second
	// recovers is the same after a start, and after the end of a fault.
	recovers = time.Minute
	// lookEvery is the interval at which a rest looks for what others have written into the databases.
	lookEvery = 5 * time.Minute
)

// rest slows the polls of the nodes down while nothing can happen.
type rest struct {
	pace wait.Pace

	mu      sync.Mutex
	until   time.Time     // the polls keep their own pace until then
	stirred chan struct{} // closed when something has happened; nil: nobody waits
	runs    int           // of tasks, under way
}

// stir says that something has happened. The polls have their own pace for a while.
func (r *rest) stir(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); r.until.Before(until) {
		r.until = until
	}
	r.pace.Rouse()
	if r.stirred != nil {
		close(r.stirred)
		r.stirred = nil
	}
}

// run counts a run of a task from its start to the end.
func (r *rest) run() (end func()) {
	r.stir(settles)
	r.add(1)
	return func() { r.add(-1); r.stir(settles) }
}

func (r *rest) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs += n
}

// next is the next thing that may happen, and a channel that is closed if something does earlier.
func (r *rest) next() (awake time.Time, running bool, stirred <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stirred == nil {
		r.stirred = make(chan struct{})
	}
	return r.until, r.runs > 0, r.stirred
}

// slow slows the polls down, unless something has happened.
func (r *rest) slow(d time.Duration, stirred <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stirred == stirred {
		r.pace.Slow(d)
	}
}

// isStill reports whether nothing has happened.
func (r *rest) isStill(stirred <-chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stirred == stirred
}

// Advance lets time pass like Wait, and faster while nothing can happen: polls that would find nothing wait then. They have
// their own pace around each task, while a task is overdue, runs or is changed, and while there is a fault. What another
// process writes into the files is seen at the beginning, and then after five minutes at most.
func (w *World) Advance(d time.Duration) {
	end := time.Now().Add(d)
	w.rest.stir(follows)
	defer w.rest.stir(settles)
	var databases looks
	defer func() { databases.close() }()
	for left := d; left > 0; left = time.Until(end) {
		until, running, stirred := w.rest.next()
		if pause := time.Until(until); pause > 0 {
			w.wait(min(pause+1, left), stirred) // so that it is no moment at which a node polls
			continue
		}
		if databases == nil {
			databases = w.openLooks()
		}
		if databases.changed() {
			w.rest.stir(follows)
			continue
		}
		next, quiet := w.quiet(databases)
		if running || !quiet {
			w.wait(min(leastLead, left), stirred)
			continue
		}
		if end.Before(next) {
			next = end
		}
		w.rest.slow(time.Until(next), stirred)
		for pause := time.Until(next); pause > 0 && w.rest.isStill(stirred) && !databases.changed(); pause = time.Until(next) {
			w.wait(min(pause, lookEvery), stirred)
		}
		w.rest.pace.Rouse()
	}
}

// wait waits for a time, or until something happens.
func (w *World) wait(d time.Duration, stirred <-chan struct{}) {
	_ = wait.ForOr(context.Background(), d, stirred)
}

// quiet returns until when nothing happens by itself. If ok is false, something may happen now.
func (w *World) quiet(databases looks) (until time.Time, ok bool) {
	if w.consul != nil || databases == nil {
		return time.Time{}, false
	}
	if !w.isWhole() {
		w.rest.stir(recovers)
		return time.Time{}, false
	}
	nodes := w.Nodes()
	now, lead := time.Now(), leastLead
	paused, ends := make(map[uint64]bool), time.Time{}
	earliest := func(t time.Time) {
		if !t.IsZero() && (ends.IsZero() || t.Before(ends)) {
			ends = t
		}
	}
	known := make(map[uint64]bool)
	for _, n := range nodes {
		lead = max(lead, leadIn+n.cfg.Scan.Lookahead)
		for _, b := range n.App.BizTypes() {
			known[uint64(b.ID)] = true
			if b.Paused != nil {
				paused[uint64(b.ID)] = true
				earliest(b.Paused.Until.Time())
			}
		}
	}
	for _, d := range databases {
		seen, err := d.look(now)
		switch {
		case err != nil, seen.operates:
			return time.Time{}, false
		case slices.ContainsFunc(seen.overdue, func(b uint64) bool { return known[b] && !paused[b] }):
			return time.Time{}, false
		}
		earliest(seen.next)
	}
	if ends.IsZero() {
		return now.AddDate(1, 0, 0), true
	}
	until = ends.Add(-lead)
	return until, until.After(now)
}

// isWhole reports whether there is no fault.
func (w *World) isWhole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.databases {
		if d.hasFault() {
			return false
		}
	}
	for _, n := range w.nodes {
		if !n.isOver() && n.ahead.Load() != 0 {
			return false
		}
	}
	return w.net.IsWhole()
}

func (d *database) hasFault() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow != 0 || d.full || d.locker != nil
}

// looks are looks into all databases, from outside of the nodes.
type looks []*look

type look struct {
	db      *sql.DB
	version *sql.Stmt // of the file: another one after each write of others
	last    int64     // version
	tables  int
}

// openLooks opens the databases of the nodes that run; nil: there are none, or they are not open to queries.
func (w *World) openLooks() (list looks) {
	nodes := w.Nodes()
	if len(nodes) == 0 {
		return nil
	}
	c := nodes[0].cfg.Store
	for d := range c.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(c.SQLite.Dir, d, true))
		if err == nil {
			l := &look{db: db, tables: c.TablesPerDatabase}
			list = append(list, l)
			db.SetMaxOpenConns(1) // the version is a connection's
			l.version, err = db.Prepare("PRAGMA data_version")
		}
		if err != nil {
			list.close()
			return nil
		}
	}
	list.changed()
	return list
}

func (l looks) close() {
	for _, d := range l {
		_ = d.db.Close()
	}
}

// changed reports whether somebody has written into a database since the last call.
func (l looks) changed() (is bool) {
	for _, d := range l {
		var version int64
		err := d.version.QueryRow().Scan(&version)
		is = is || err != nil || version != d.last
		d.last = version
	}
	return is
}

// seen is what a look has shown.
type seen struct {
	operates bool      // an operation runs
	overdue  []uint64  // business types of pending tasks whose time has come
	next     time.Time // of the pending tasks after them; zero: there is none
}

func (l *look) look(now time.Time) (s seen, err error) {
	ctx := context.Background()
	err = l.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM toc_operation WHERE state = ?)", store.OperationRunning).Scan(&s.operates)
	at := now.UTC().Format(timeFormat)
	for table := range l.tables {
		err = errors.Join(err, l.table(ctx, sharding.TableName(table), at, &s))
	}
	return s, err
}

// timeFormat is that of times in the tables.
const timeFormat = "2006-01-02 15:04:05.000"

func (l *look) table(ctx context.Context, name, now string, s *seen) error {
	rows, err := l.db.QueryContext(ctx, strings.NewReplacer("{table}", name, "{pending}", fmt.Sprint(int(task.Pending))).Replace(`
		SELECT biz_type, NULL FROM {table} WHERE status = {pending} AND action_time <= ? GROUP BY biz_type
		UNION ALL SELECT 0, MIN(action_time) FROM {table} WHERE status = {pending} AND action_time > ?`), now, now)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var bizType int64
		var at sql.NullString
		if err := rows.Scan(&bizType, &at); err != nil {
			return err
		}
		switch next, err := time.Parse("2006-01-02 15:04:05", at.String); {
		case !at.Valid && bizType != 0:
			s.overdue = append(s.overdue, uint64(bizType))
		case at.Valid && err != nil:
			return err
		case at.Valid && (s.next.IsZero() || next.Before(s.next)):
			s.next = next
		}
	}
	return rows.Err()
}
