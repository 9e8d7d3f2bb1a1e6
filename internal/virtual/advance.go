package virtual

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

const (
	// follows is how long the polls have their own pace after a write, and before a task: the default schedule of scans is shorter.
	follows = 11 * time.Second
	// recovers is the same after a start, and after each change of a fault.
	recovers = time.Minute
	// lookEvery is the interval at which a rest looks for what others have written into the databases.
	lookEvery = 5 * time.Minute
)

// rest slows the polls of the nodes down while nothing can happen.
type rest struct {
	pace Pace

	mu    sync.Mutex
	awake time.Time // the polls keep their own pace until then
}

// stir says that something has happened: the polls have their own pace for a while.
func (r *rest) stir(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); r.awake.Before(until) {
		r.awake = until
	}
	r.pace.Rouse()
}

// disturbed is how long the polls keep their own pace; 0: nothing has happened for a while.
func (r *rest) disturbed() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.awake))
}

// slow slows the polls down until a stir, unless there was one just now. It returns a channel that a stir closes.
func (r *rest) slow(d time.Duration) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.awake) {
		return nil
	}
	r.pace.Slow(d)
	_, roused := r.pace.Slowed(0)
	return roused
}

// Advance lets time pass like Wait, and faster while nothing can happen: polls that would find nothing wait then. They have
// their own pace around each task, while a task is overdue, runs or is changed, and while there is a fault. What another
// process writes into the files is seen at the beginning, and then after five minutes at most.
func (w *World) Advance(d time.Duration) {
	end := time.Now().Add(d)
	w.rest.stir(follows)
	defer w.rest.stir(follows)
	var databases looks
	defer func() { databases.close() }()
	for left := d; left > 0; left = time.Until(end) {
		if d := w.rest.disturbed(); d > 0 {
			time.Sleep(min(d+1, left)) // so that it is no moment at which a node polls
			continue
		}
		if len(databases) == 0 {
			databases = w.openLooks()
		}
		next := w.quietUntil(end, databases)
		if databases.changed() || !next.After(time.Now()) {
			w.rest.stir(follows)
			continue
		}
		stirred := w.rest.slow(time.Until(next))
		for d := time.Until(next); d > 0 && w.rest.disturbed() == 0 && !databases.changed(); d = time.Until(next) {
			_ = wait.ForOr(context.Background(), min(d, lookEvery), stirred)
		}
		w.rest.pace.Rouse()
	}
}

// quietUntil returns the time, end at most, until which nothing happens without a cause from outside. If that time is not
// after now, something may happen now.
func (w *World) quietUntil(end time.Time, databases looks) time.Time {
	now, lead := time.Now(), follows
	if w.consul != nil || len(databases) == 0 || !w.isWhole() {
		return now
	}
	var runs []string // the business types whose tasks run when they are due
	var pauses []time.Time
	for _, n := range w.Nodes() {
		lead = max(lead, n.cfg.Scan.Lookahead+time.Second) // the scan that reads a task is the same as without a rest
		for _, b := range n.App.BizTypes() {
			switch {
			case b.Paused == nil:
				runs = append(runs, fmt.Sprint(int64(b.ID)))
			case !b.Paused.Until.IsZero():
				pauses = append(pauses, b.Paused.Until.Time())
			}
		}
	}
	for _, at := range append(pauses, databases.next(now, runs)...) {
		if at = at.Add(-lead); at.Before(end) {
			end = at
		}
	}
	return end
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
	version int64 // of the file: another one after each write of others
	tables  int
}

// openLooks opens the databases of the nodes that run; none: no node does.
func (w *World) openLooks() (list looks) {
	nodes := w.Nodes()
	if len(nodes) == 0 {
		return nil
	}
	c := nodes[0].cfg.Store
	for d := range c.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(c.SQLite.Dir, d, true))
		if err != nil {
			w.t.Errorf("database %d: %v", d, err)
			continue
		}
		db.SetMaxOpenConns(1) // the version is a connection's
		list = append(list, &look{db: db, tables: c.TablesPerDatabase})
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
		last := d.version
		err := d.db.QueryRow("PRAGMA data_version").Scan(&d.version)
		is = is || err != nil || d.version != last
	}
	return is
}

// next returns when pending tasks are due: the next ones, and some that are overdue, if their business type runs. A time that is
// zero stands for a running operation or an error.
func (l looks) next(now time.Time, runs []string) (list []time.Time) {
	for _, d := range l {
		ask := func(query string, args ...any) {
			var text sql.NullString
			err := d.db.QueryRow(query, args...).Scan(&text)
			if err != nil || text.Valid {
				at, _ := time.Parse("2006-01-02 15:04:05", text.String)
				list = append(list, at)
			}
		}
		ask("SELECT MIN(state) FROM toc_operation WHERE state = ?", store.OperationRunning)
		for table := range d.tables {
			ask(fmt.Sprintf("SELECT MIN(action_time) FROM %s WHERE status = %d AND (action_time > ? OR biz_type IN (%s))",
				sharding.TableName(table), task.Pending, strings.Join(runs, ",")), now.UTC().Format("2006-01-02 15:04:05.000"))
		}
	}
	return list
}
