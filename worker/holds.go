package worker

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Holds are what keeps a task from starting, or the outcome of its run from being recorded.
type Holds struct {
	Unwritten  error     // why outcomes cannot be recorded in its database
	Unmarked   error     // why the start of a suspect of its table cannot be marked
	TableFull  bool      // so many outcomes of its table or database wait that its tasks do not start
	WaitsSince time.Time // since when the task's own outcome waits; zero: it does not
	TableErr   error     // why it waits: its table cannot be written; nil: another transaction has locked the row
}

// Holds returns what holds a task of a database.
func (r *Runner) Holds(jobID uint64, database int) (h Holds) {
	if why := r.finisher.failing[database].Load(); why != nil {
		h.Unwritten = *why
	}
	h.Unmarked = r.marks.refusal(r.shardOf(jobID), r.cfg.Now())
	l := r.finisher.held
	h.TableFull = l.isOverLimit(jobID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.byJob[jobID]; d != nil {
		h.WaitsSince, h.TableErr = d.heldSince, d.tableErr
	}
	return h
}

// Trouble is a fault that keeps outcomes from being recorded or tasks from starting.
type Trouble struct {
	Kind     TroubleKind
	Database int
	Text     string
}

// TroubleKind is the kind of a Trouble.
type TroubleKind string

// The kinds.
const (
	RowLocked TroubleKind = "row_locked" // outcomes wait for rows that another transaction has locked
	Unwritten TroubleKind = "outcomes"   // outcomes cannot be recorded
)

// Degraded lists the troubles: databases first, then rows, the longest wait first.
func (r *Runner) Degraded() (list []Trouble) {
	for d := range r.cfg.Layout.Databases {
		if why := r.finisher.failing[d].Load(); why != nil {
			list = append(list, Trouble{Unwritten, d,
				fmt.Sprintf("database %d: outcomes cannot be recorded, so its tasks do not start: %v", d, *why)})
		}
	}
	return append(list, r.finisher.held.troubles(r.cfg.Now())...)
}

func (h *heldOutcomes) troubles(now time.Time) (list []Trouble) {
	h.mu.Lock()
	all := slices.SortedFunc(maps.Values(h.byJob), func(a, b *finish) int { return a.heldSince.Compare(b.heldSince) })
	h.mu.Unlock()
	const most = 3
	for i, d := range all {
		database := h.layout.PartitionDatabase(d.entry.Partition)
		if i == most {
			return append(list, Trouble{RowLocked, database, fmt.Sprintf("%d more outcomes wait for their rows", len(all)-most)})
		}
		waited := now.Sub(d.heldSince).Round(time.Second)
		if d.tableErr == nil {
			list = append(list, Trouble{RowLocked, database, fmt.Sprintf("outcome of job_id %d waits for a row lock for %s", d.entry.ID(), waited)})
		} else {
			list = append(list, Trouble{Unwritten, database,
				fmt.Sprintf("outcome of job_id %d cannot be recorded for %s: %v", d.entry.ID(), waited, d.tableErr)})
		}
	}
	return list
}

// Load is the work of a business type's workers.
type Load struct {
	Busy    int           // workers with a run under way
	Oldest  time.Time     // when the longest of these runs began
	Timeout time.Duration // of the run of the task in question; 0: it is not under way
}

// Load returns the load of a business type, and the time-out of a task's run.
func (r *Runner) Load(bizType, jobID uint64) (l Load) {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	for w := range r.watch.workers {
		if w.bizType.ID != bizType {
			continue
		}
		w.run.mu.Lock()
		if len(w.entries) > 0 {
			l.Busy++
			if l.Oldest.IsZero() || w.since.Before(l.Oldest) {
				l.Oldest = w.since
			}
		}
		for _, e := range w.entries {
			if e.ID() == jobID {
				l.Timeout = w.timeout
			}
		}
		w.run.mu.Unlock()
	}
	return l
}
