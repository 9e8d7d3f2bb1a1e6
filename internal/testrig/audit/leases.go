package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// Leases is the record of a center's consumers: the leases that they got, and the outcome of each. All share one clock, so
// the end of a lease, which comes with it, shows when it was given.
type Leases struct {
	// Patience is for how long after its request was given up a node may still give leases.
	Patience time.Duration
	// MaxRetries is that of all business types.
	MaxRetries int

	sync.Mutex
	tasks   map[uint64]*leasedTask
	unheard []unheard           // requests for leases without an answer
	Broken  map[string][]string // what is not as it should be, by rule

	Submitted, Lost, Unavailable, Left, RefusedCancels int

	ExtendedRuns int // of Workers, that lasted longer than two leases
}

// leasedTask is what is known of a task.
type leasedTask struct {
	due            time.Time // of the tries to submit it the earliest
	holds          []*Hold
	mayBeCancelled bool // a cancel got no answer: a node that stood still may have done it once the lease was over
}

// Hold is a lease, as its consumer sees it.
type Hold struct {
	Lease   string
	Attempt int
	Given   time.Time // by the node, up to a millisecond earlier
	Expires time.Time
	Settled time.Time // when the first settlement that could end it was sent; zero: none was
	Do      string    // of that
	Again   time.Duration
	Result  string // ok, lost, or Unsure
	Acks    int    // that were answered ok

	shifted    time.Duration // how much later than written Expires is, for a wrong clock; or the answer was slow
	first      time.Time     // Expires as its node has written it, before it was extended
	Asked, Got time.Time     // when the request was sent, and when it had its answer
	Attribute  string
	Settles    []Settle // all of them, in the order in which they were answered
}

// Settle is a settlement of a lease.
type Settle struct {
	client.Settlement
	Sent, Answered time.Time
	Result         string   // that of package client; SettledUnavailable also stands for no answer
	By             *Process // whose answer it is; nil: nobody's
}

// unheard is a request for leases that had no answer.
type unheard struct {
	bizType    string
	at         *Process // that was asked
	from, till time.Time
	left       bool // its caller had gone away
}

// Unsure is the result of a settlement without an answer.
const Unsure = "unsure"

// Blame writes down what must not be. The caller holds the lock.
func (c *Leases) Blame(broken, format string, args ...any) {
	if c.Broken == nil {
		c.Broken = map[string][]string{}
	}
	c.Broken[broken] = append(c.Broken[broken], time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// Submit writes down that a task is stored, which is due at the earliest then.
func (c *Leases) Submit(jobID uint64, due time.Time) {
	c.Lock()
	defer c.Unlock()
	c.task(jobID).due = due
	c.Submitted++
}

// Unheard writes down a request for leases that had no answer.
func (c *Leases) Unheard(bizType string, at *Process, from, till time.Time, left bool) {
	c.Lock()
	defer c.Unlock()
	c.unheard = append(c.unheard, unheard{bizType, at, from, till, left})
}

// MayBeCancelled writes down that a cancel had no answer.
func (c *Leases) MayBeCancelled(jobID uint64) {
	c.Lock()
	defer c.Unlock()
	c.task(jobID).mayBeCancelled = true
}

// Add writes down a lease. The caller holds the lock.
func (c *Leases) Add(jobID uint64, h *Hold) {
	h.first = h.Expires
	t := c.task(jobID)
	t.holds = append(t.holds, h)
}

// bySight makes leases begin when their consumers got them: since then the clocks of the nodes that gave them may be wrong.
func (c *Leases) bySight(since time.Time) {
	for _, t := range c.tasks {
		for _, h := range t.holds {
			if h.Got.Before(since) {
				continue
			}
			if h.Expires.Equal(h.first) { // else the consumer has extended it, by its own clock
				h.shifted = h.Got.Sub(h.Given)
				h.Expires = h.Expires.Add(h.shifted)
			}
			h.Given = h.Got
		}
	}
}

// holds are the leases of a task.
func (c *Leases) holds(jobID uint64) []*Hold {
	if t := c.tasks[jobID]; t != nil {
		return t.holds
	}
	return nil
}

// task is what is known of a task. The caller holds the lock.
func (c *Leases) task(jobID uint64) *leasedTask {
	if c.tasks == nil {
		c.tasks = map[uint64]*leasedTask{}
	}
	if c.tasks[jobID] == nil {
		c.tasks[jobID] = &leasedTask{}
	}
	return c.tasks[jobID]
}

// Settled writes down the answer to a settlement, which is that of a process; nil: none came. The caller holds the lock.
func (c *Leases) Settled(h *Hold, s client.Settlement, result string, by *Process, sent, answered time.Time) {
	h.Settles = append(h.Settles, Settle{s, sent, answered, result, by})
	ends := s.Do != client.Extend
	tried := h.Result != "" || !h.Settled.IsZero()
	switch result {
	case client.SettledOK:
		if !ends {
			h.Expires = sent.Add(time.Duration(s.TTR))
			return
		}
		if s.Do == client.Ack {
			h.Acks++
		}
		if h.Result == client.SettledOK {
			c.Blame("leases were settled ok twice", "%s", h.Lease)
		}
		h.Result = client.SettledOK
	case client.SettledLost:
		c.Lost++
		if !tried && answered.Before(h.Expires) {
			c.Blame("leases were called lost before their end", "%s by %s, %s before", h.Lease, s.Do, h.Expires.Sub(answered))
		}
		if h.Result == "" && tried {
			h.Result = Unsure
		}
	case client.SettledUnavailable:
		c.Unavailable++
		if ends {
			h.Result = cmp.Or(h.Result, Unsure)
		} else {
			h.Result = cmp.Or(h.Result, "") // extended or not: it ends at the earlier time, at least
		}
	default:
		c.Blame("leases were called invalid", "%s: %s", h.Lease, result)
	}
	if ends && h.Settled.IsZero() && result != client.SettledLost {
		h.Settled, h.Do = sent, string(s.Do)
	}
}

// Judge compares the records of the consumers with the rows. It returns a summary in words.
func (c *Leases) Judge(rows map[uint64]Row, faults []*Fault) (summary string) {
	c.Lock()
	defer c.Unlock()
	ends, holds, gaps := map[task.Status]int{}, 0, 0
	for id, one := range c.tasks {
		r, there := rows[id]
		if !there {
			c.Blame("tasks are lost", "%d is not in the store", id)
			continue
		}
		ends[r.Status]++
		holds += len(one.holds)
		gaps += c.check(id, one, r, faults)
	}
	for id, r := range rows {
		if c.tasks[id] == nil {
			c.Blame("tasks are in the store that nobody submitted", "%d (%s)", id, r.Status)
		}
	}
	return fmt.Sprintf("%d tasks: %d processed, %d cancelled, %d dead, %d pending; %d leases, %d attempts of which nobody heard, explained by %d requests without an answer (%d consumers left); "+
		"%d settlements lost, %d unavailable; %d cancels of leased tasks refused; %d long runs of Workers", len(c.tasks), ends[task.Processed], ends[task.Cancelled], ends[task.Dead], ends[task.Pending],
		holds, gaps, len(c.unheard), c.Left, c.Lost, c.Unavailable, c.RefusedCancels, c.ExtendedRuns)
}

// check applies all rules to one task. It returns the number of attempts that reached no consumer.
func (c *Leases) check(id uint64, one *leasedTask, r Row, faults []*Fault) (gaps int) {
	slices.SortFunc(one.holds, func(a, b *Hold) int { return a.Given.Compare(b.Given) })
	blame := func(broken string) { c.Blame(broken, "%s", c.story(id, one, r)) }
	const ceil = time.Millisecond   // the end of a lease is rounded up
	acks, last, back := 0, 0, false // back: the last one may have been given back unbegun, which is no attempt
	free := one.due                 // when it may be handed out next
	for _, h := range one.holds {
		acks += h.Acks
		if h.Given.Add(ceil).Before(free) {
			blame("tasks were handed out early, or to two at a time")
		}
		switch {
		case h.Attempt < last || h.Attempt == last && !back && !c.explained(free, h.Given, faults) && !changesHands(free, h.Given, faults):
			blame("attempts were handed out twice")
		case h.Attempt > last+1:
			gaps += h.Attempt - last - 1
			// A lease whose answer gets lost counts as a failed run.
			if !c.explained(free, h.Given, faults) {
				blame("attempts are counted that nobody has had")
			}
		}
		last, free = h.Attempt, h.Expires
		back = h.Do == client.Release
		if h.Settled.IsZero() {
			continue
		}
		if h.Result == client.SettledOK && h.Do != client.Nack && h.Do != client.Release {
			free = time.Now().Add(time.Hour)
		} else if h.Settled.Before(free) {
			if free = h.Settled; h.Result == client.SettledOK {
				free = free.Add(h.Again)
			}
		}
	}
	if acks > 1 {
		blame("tasks were acknowledged ok twice")
	}
	checkRow(one, r, acks, last, c.MaxRetries, blame)
	return gaps
}

// checkRow compares the row with the leases.
func checkRow(one *leasedTask, r Row, acks, last, maxRetries int, blame func(string)) {
	switch r.Status {
	case task.Processed, task.Cancelled:
		do := map[task.Status]string{task.Processed: client.Ack, task.Cancelled: client.Reject}[r.Status]
		var by *Hold // the lease that may have ended it: for certain, or else the one that fits the attempts
		for _, h := range one.holds {
			if h.Do == do && (h.Result == client.SettledOK || h.Result == Unsure && (by == nil || by.Result == Unsure && int64(h.Attempt) == r.Attempts+1)) {
				by = h
			}
		}
		switch {
		case by == nil && r.Status == task.Cancelled && one.mayBeCancelled:
		case by == nil:
			blame("tasks ended without a settlement")
		case int64(by.Attempt) != r.Attempts+1:
			blame("attempts are counted wrong")
		}
	case task.Dead:
		if int(r.Attempts) != maxRetries+1 || last > maxRetries+1 {
			blame("tasks died with another number of attempts")
		}
	default:
		blame("tasks are lost")
	}
	if acks > 0 && r.Status != task.Processed {
		blame("acknowledged tasks are not processed")
	}
}

// explained reports whether a lease that reached no consumer may have been given between two times.
func (c *Leases) explained(from, till time.Time, faults []*Fault) bool {
	for _, u := range c.unheard {
		if u.from.Before(till) && u.till.Add(c.Patience).After(from) {
			return true
		}
	}
	for _, f := range faults {
		if f.Begin.Before(till) && f.Whole.After(from) {
			return true
		}
	}
	return false
}

// changesHands reports whether a partition may have changed hands between two times, because a node that is well again takes its share.
// A lease that ends before the next owner has its partition is no attempt.
func changesHands(from, till time.Time, faults []*Fault) bool {
	const share = 3 * time.Second
	return slices.ContainsFunc(faults, func(f *Fault) bool { return f.Begin.Before(till) && f.Whole.Add(share).After(from) })
}

func (c *Leases) story(id uint64, one *leasedTask, r Row) string {
	var text strings.Builder
	fmt.Fprintf(&text, "task %d due %s, now %s, attempts %d", id, Clock(one.due.UnixNano()), r.Status, r.Attempts)
	for _, h := range one.holds {
		fmt.Fprintf(&text, "; attempt %d from %s to %s", h.Attempt, Clock(h.Given.UnixNano()), Clock(h.Expires.UnixNano()))
		if !h.Settled.IsZero() {
			fmt.Fprintf(&text, ", %s at %s: %s", h.Do, Clock(h.Settled.UnixNano()), h.Result)
		}
	}
	return text.String()
}
