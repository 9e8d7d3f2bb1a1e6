package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/internal/logqueue"
)

// fault is a kind of fault that the center reports. /readyz, toc_degraded, the console and the log are views of the list that
// faultKinds makes; a test holds the table of docs/operating.md to it.
type fault struct {
	code  string // the reason in toc_degraded
	title string // what breaks
	after string // how long until it is shown

	stops bool // while it lasts the node is not ready, and the faults after it in the list are not shown
	hides bool // while it lasts the faults after it in the list are not shown of the same database

	component    string     // writes begins and ends into the log; empty: the part of the center that notices the fault does so
	level        slog.Level // of begins
	begins, ends string     // lines of the log
	again        bool       // begins comes again when the text has changed
	metric       string     // that shows it besides toc_degraded

	find func(s *state) []trouble // returns what there is of it

	check  func(ctx context.Context)       // looks for it at an interval; nil: the state has all that find needs
	every  time.Duration                   // the interval
	gauges func(s *state, set metrics.Set) // nil: it has none
}

// trouble is a fault that there is.
type trouble struct {
	*fault
	database int // −1: it concerns none alone
	text     string
	facts    []any // of its line in the log
}

// in returns what there is of a fault.
func (f *fault) in(s *state) []trouble {
	found := f.find(s)
	for i := range found {
		found[i].fault = f
	}
	return found
}

// textIf formats a text; without the fault it is empty.
func textIf(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// one makes the find of a fault of the whole node. An empty text is no fault, here and below.
func one(text func(s *state) string) func(s *state) []trouble {
	return func(s *state) []trouble { return each([]*state{s}, text) }
}

// each finds a fault of single elements of a list.
func each[T any](list []T, text func(T) string) (found []trouble) {
	for _, element := range list {
		if text := text(element); text != "" {
			found = append(found, trouble{database: -1, text: text})
		}
	}
	return found
}

// ofDatabases makes the find of a fault of single databases; facts are those of its line in the log.
func ofDatabases(text func(d *database) (text string, facts []any)) func(s *state) []trouble {
	return func(s *state) (found []trouble) {
		for i := range s.databases {
			if text, facts := text(&s.databases[i]); text != "" {
				found = append(found, trouble{database: i, text: text, facts: facts})
			}
		}
		return found
	}
}

// troubles lists the faults that there are and that no other fault hides. ready reports whether at least one database works.
func (s *state) troubles() (list []trouble, ready bool) {
	hidden := make(map[int]bool) // by database
	for _, f := range s.app.faults {
		found := f.in(s)
		for _, t := range found {
			if !hidden[t.database] {
				list = append(list, t)
			}
			hidden[t.database] = hidden[t.database] || f.hides
		}
		if f.stops && len(found) > 0 {
			return list, false
		}
	}
	return list, slices.ContainsFunc(s.databases, func(d database) bool { return d.Usable() && d.held })
}

// checks are the services that look for faults.
func (a *App) checks() (list []service) {
	for _, f := range a.faults {
		if f.check != nil {
			list = append(list, service{f.code, true, finding, end, every(0, f.every, func(ctx context.Context) {
				f.check(ctx)
				a.logFaults()
			})})
		}
	}
	return list
}

// faultLog is the faults of which the log has the begin and not the end.
type faultLog struct {
	mu   logqueue.Mutex
	open []trouble
}

// logFaults logs the faults that have begun or ended since the last call.
func (a *App) logFaults() {
	l := &a.faultLog
	l.mu.Lock()
	defer l.mu.Unlock()
	s, before := status{a}.state(), l.open
	l.open = nil
	for _, f := range a.faults {
		if f.component != "" {
			l.open = append(l.open, f.in(s)...)
		}
	}
	for _, t := range l.open {
		if !slices.ContainsFunc(before, func(b trouble) bool { return t.line() == b.line() && (t.text == b.text || !t.again) }) {
			l.mu.Log(t.logger(a), t.level, t.begins, t.facts...)
		}
	}
	for _, t := range before {
		if !slices.ContainsFunc(l.open, func(o trouble) bool { return t.line() == o.line() }) {
			l.mu.Log(t.logger(a), slog.LevelInfo, t.ends)
		}
	}
}

// line is what the log has one begin and one end of.
func (t *trouble) line() string { return t.begins + " " + strconv.Itoa(t.database) }

func (t *trouble) logger(a *App) *slog.Logger {
	log := a.component(t.component)
	if t.database >= 0 {
		log = log.With("database", t.database)
	}
	return log
}
