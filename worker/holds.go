package worker

import "time"

// Holds are what keeps a task from starting, or the outcome of its run from being recorded.
type Holds struct {
	Unwritten  error     // why outcomes cannot be recorded in its database
	Journal    error     // why starts cannot be recorded there
	TableFull  bool      // so many outcomes of its table or database wait that its tasks do not start
	WaitsSince time.Time // since when the task's own outcome waits; zero: it does not
	TableErr   error     // why it waits: its table cannot be written; nil: another transaction has locked the row
}

// Holds returns what holds a task of a database.
func (r *Runner) Holds(jobID uint64, database int) (h Holds) {
	if why := r.finisher.failing[database].Load(); why != nil {
		h.Unwritten = *why
	}
	if why := r.journal.dbs[database].failing.Load(); why != nil {
		h.Journal = *why
	}
	l := r.finisher.locked
	h.TableFull = l.isOverLimit(jobID, database)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.byDatabase[database] {
		if d := &l.byDatabase[database][i]; d.entry.ID() == jobID {
			h.WaitsSince, h.TableErr = d.waitsSince, d.tableErr
		}
	}
	return h
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
