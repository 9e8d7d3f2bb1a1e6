package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
)

// picture is the center as a whole.
type picture struct {
	At      time.Time
	Nodes   []NodePulse
	Faults  []faultLine
	Silent  int // nodes that do not answer
	Minutes []minute
	Types   []typeLoad // with work, the most overdue first
	Waiting int
	Running int
	Overdue int
	Oldest  float64 // seconds
	Paused  []api.BizType

	Retrying int      // tasks that have failed and run again, of types that are not paused
	failing  typeLoad // the one with the oldest promise of them
}

// faultLine is what is wrong, and where that was noticed.
type faultLine struct {
	Text  string
	Nodes []string
	Type  string // the business type whose page has the button against it; empty: there is none
}

// minute is what all nodes did in a minute.
type minute struct {
	At                      time.Time
	Submitted, Runs, Failed int
	Late                    lateness
}

// lateness counts runs by the least bound above their lateness, in seconds.
type lateness map[float64]int

func (l lateness) add(more lateness) {
	for bound, n := range more {
		l[bound] += n
	}
}

func (l lateness) count() (n int) {
	for _, m := range l {
		n += m
	}
	return n
}

// quantile estimates a quantile: linear between the bound before and the bound. Without runs it is not a number.
func (l lateness) quantile(q float64) float64 {
	total := l.count()
	if total == 0 {
		return math.NaN()
	}
	rank, below, seen := q*float64(total), 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(l)) {
		n := float64(l[bound])
		if seen+n >= rank {
			if math.IsInf(bound, 1) {
				return below
			}
			below = max(below, bound*.6) // no two bounds are further apart
			return below + (bound-below)*(rank-seen)/n
		}
		seen, below = seen+n, bound
	}
	return below
}

// typeLoad is the work of a business type on all nodes.
type typeLoad struct {
	Name                      string
	Waiting, Running, Overdue int
	Oldest                    float64
	Paused                    *api.Pause

	Retrying  int     // tasks that have failed and run again
	Promise   float64 // seconds since the oldest of them was promised
	LastError string
}

// IsFailing reports whether tasks have failed and wait for their next run.
func (l *typeLoad) IsFailing() bool { return l.Retrying > 0 && l.Paused == nil }

// pictures keeps the last one for all who look at the same time.
type pictures struct {
	mu   wait.Mutex
	last *picture
}

// look returns a picture that is no older than half a tick.
func (c *Console) look(ctx context.Context) (*picture, error) {
	c.picture.mu.Lock()
	defer c.picture.mu.Unlock()
	if last := c.picture.last; last != nil && time.Since(last.At) < c.cfg.Tick/2 { // At has a monotonic reading
		return last, nil
	}
	types, err := c.cfg.Status.BizTypes(ctx)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	p := summarize(c.cfg.Status.Pulses(ctx), types)
	p.At = at
	c.picture.last = p
	return p, nil
}

// summarize sums up what the nodes say.
func summarize(nodes []NodePulse, types []api.BizType) *picture {
	p := &picture{Nodes: nodes}
	minutes, loads, faults := make(map[time.Time]*minute), make(map[string]*typeLoad), make(map[string]int)
	for i := range nodes {
		n := &nodes[i]
		if n.Err != nil {
			p.Silent++
			p.Faults = append(p.Faults, faultLine{Text: "does not answer: " + n.Err.Error(), Nodes: []string{n.Name}})
			continue
		}
		for _, text := range n.Degraded {
			if at, ok := faults[text]; ok {
				p.Faults[at].Nodes = append(p.Faults[at].Nodes, n.Name)
				continue
			}
			faults[text] = len(p.Faults)
			p.Faults = append(p.Faults, faultLine{Text: text, Nodes: []string{n.Name}})
		}
		p.Waiting, p.Running, p.Overdue = p.Waiting+n.Waiting, p.Running+n.Running, p.Overdue+n.Overdue
		addMinutes(minutes, n.Minutes)
		addLoads(loads, n.BizTypes)
	}
	for _, b := range types {
		l := loads[b.Name]
		if l == nil {
			l = &typeLoad{Name: b.Name}
		}
		l.Paused, l.Retrying, l.Promise, l.LastError = b.Paused, b.Retrying, b.OldestRetry, b.LastError
		if b.Paused != nil {
			p.Paused = append(p.Paused, b)
		}
		if l.IsFailing() {
			loads[b.Name] = l
			p.addFailing(l)
		}
	}
	for _, l := range loads {
		p.Types = append(p.Types, *l)
		if l.Paused == nil {
			p.Oldest = max(p.Oldest, l.Oldest)
		}
	}
	slices.SortFunc(p.Types, func(a, b typeLoad) int {
		return cmp.Or(b.Overdue-a.Overdue, cmp.Compare(b.Oldest, a.Oldest), b.Running-a.Running, cmp.Compare(a.Name, b.Name))
	})
	for _, at := range slices.SortedFunc(maps.Keys(minutes), time.Time.Compare) {
		p.Minutes = append(p.Minutes, *minutes[at])
	}
	return p
}

func (p *picture) addFailing(l *typeLoad) {
	p.Retrying += l.Retrying
	if l.Promise >= p.failing.Promise {
		p.failing = *l
	}
	text := fmt.Sprintf("Runs of %s fail: %s to run again, the oldest one promised %s ago.", l.Name,
		plural(l.Retrying, "task waits", "tasks wait"), seconds(l.Promise))
	if l.LastError != "" {
		text += " The last error: " + l.LastError
	}
	p.Faults = append(p.Faults, faultLine{Text: text, Type: l.Name})
}

func addMinutes(sum map[time.Time]*minute, more []api.PulseMinute) {
	for _, m := range more {
		at := m.At.Time()
		one := sum[at]
		if one == nil {
			one = &minute{At: at, Late: lateness{}}
			sum[at] = one
		}
		one.Submitted, one.Runs, one.Failed = one.Submitted+m.Submitted, one.Runs+m.Runs, one.Failed+m.Failed
		for _, l := range m.Late {
			bound := l.Under
			if bound <= 0 {
				bound = math.Inf(1)
			}
			one.Late[bound] += l.Runs
		}
	}
}

func addLoads(sum map[string]*typeLoad, more []api.PulseType) {
	for _, t := range more {
		one := sum[t.Name]
		if one == nil {
			one = &typeLoad{Name: t.Name}
			sum[t.Name] = one
		}
		one.Waiting, one.Running, one.Overdue = one.Waiting+t.Waiting, one.Running+t.Running, one.Overdue+t.Overdue
		one.Oldest = max(one.Oldest, t.Oldest)
	}
}

// since sums up the minutes from a moment on.
func (p *picture) since(from time.Time) (sum minute) {
	sum.Late = lateness{}
	for _, m := range p.Minutes {
		if !m.At.Before(from) {
			sum.Submitted, sum.Runs, sum.Failed = sum.Submitted+m.Submitted, sum.Runs+m.Runs, sum.Failed+m.Failed
			sum.Late.add(m.Late)
		}
	}
	return sum
}

// lateFrom is the lateness from which on tasks are called late, in seconds.
const lateFrom = 1.0

// overdueFrom is how long a task may be overdue before its type is called late, in seconds: by then a tick has passed.
const overdueFrom = 10.0

// verdict says whether tasks are on time, and whether their runs fail. mood is ok, warn, bad or idle.
func (p *picture) verdict() (mood, text string) {
	minuteNow := p.At.UTC().Truncate(time.Minute)
	recent := p.since(minuteNow.Add(-4 * time.Minute)) // and the minute under way
	mood, text = p.punctuality(&recent)
	many, waits := recent.manyFail(), p.failing.Promise > overdueFrom
	if !many && !waits {
		return mood, text
	}
	var fail []string
	if waits {
		fail = append(fail, fmt.Sprintf("%s to run again, the oldest one, of %s, promised %s ago",
			plural(p.Retrying, "task waits", "tasks wait"), p.failing.Name, seconds(p.failing.Promise)))
	}
	if recent.Failed > 0 {
		fail = append(fail, fmt.Sprintf("%s of the %s that ended in the last five minutes failed", num(recent.Failed),
			plural(recent.Runs, "run", "runs")))
	}
	says := "Runs fail: "
	last := p.since(minuteNow.Add(-time.Minute))
	healed := !waits && last.Runs > 0 && !last.manyFail()
	if healed {
		says = "Runs succeed again: "
	}
	says += strings.Join(fail, "; ") + "."
	if mood == "bad" {
		return mood, text + " " + says
	}
	mood = "warn"
	if many && !healed {
		mood = "bad"
	}
	return mood, says
}

// manyFail reports whether so many runs failed that the verdict says so.
func (m *minute) manyFail() bool { return m.Failed > 0 && m.Failed*failingFrom >= m.Runs }

// failingFrom is the part of the runs, one in so many, from which on their failures make the verdict bad.
const failingFrom = 4

// punctuality is the verdict on time alone.
func (p *picture) punctuality(recent *minute) (mood, text string) {
	p99, started := recent.Late.quantile(.99), recent.Late.count()
	// A task that runs is still pending, so it counts as overdue even if it started on time.
	wait := func(l typeLoad) int { return l.Overdue - l.Running }
	late := func(l typeLoad) bool { return l.Paused == nil && wait(l) > 0 && l.Oldest > overdueFrom }
	tasks, first := 0, typeLoad{}
	for _, l := range p.Types {
		if late(l) {
			if tasks += wait(l); l.Oldest > first.Oldest {
				first = l
			}
		}
	}
	switch {
	case p.Silent > 0 && p.Silent == len(p.Nodes):
		return "bad", "No node answers."
	case tasks > 0:
		return "bad", fmt.Sprintf("Tasks are late: %s overdue, the oldest one, of %s, for %s.", plural(tasks, "task is", "tasks are"),
			first.Name, seconds(first.Oldest))
	case started > 0 && p99 >= lateFrom:
		return "warn", fmt.Sprintf("Tasks start late: of the last five minutes' %s, %s started %s or more after its time.",
			plural(started, "run", "runs"), few(started, "the most late one", "one in 100"), seconds(p99))
	case started > 0:
		return "ok", fmt.Sprintf("Tasks are on time: of the last five minutes' %s, %s started within %s of their time.",
			plural(started, "run", "runs"), few(started, "all", "99 in 100"), seconds(max(p99, .0005)))
	default:
		return "idle", "Tasks are on time: nothing is overdue, and nothing was due in the last five minutes."
	}
}

// few chooses how to speak of the last hundredth: of a few runs that is the last one.
func few(runs int, few, many string) string {
	if runs < 100 {
		return few
	}
	return many
}

// hour is the last hour by the minute, up to the one that is under way. A minute that no node reports is zero.
func (p *picture) hour() (list []minute) {
	known := make(map[time.Time]minute)
	for _, m := range p.Minutes {
		known[m.At] = m
	}
	end := p.At.UTC().Truncate(time.Minute).Add(time.Minute)
	for at := end.Add(-60 * time.Minute); at.Before(end); at = at.Add(time.Minute) {
		m, ok := known[at]
		if !ok {
			m = minute{At: at, Late: lateness{}}
		}
		list = append(list, m)
	}
	return list
}
