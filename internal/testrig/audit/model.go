package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// The contract of one task, as a program that has no concurrency: a row, and one method for each thing that may be done to it.
// A center keeps the contract if all requests for a task, and all silent steps of the center, can be put in one order such that
//
//   - each call takes effect at one instant between its begin and its end, and
//   - the row, changed in that order, explains each answer.
//
// That is linearizability (Herlihy and Wing). Package porcupine searches for the order; calls.go says which calls there were.
//
// The row is what users see: pending at a time, running, leased, processed, dead or cancelled, with action_time, attempts and
// attribute. Honest cancel, for example, needs no rule: start takes a pending row, a cancel that is answered takes one that is
// pending and not running, and it leaves one that cannot start.
//
// Some steps have several outcomes, because nobody saw which it was, so each gives a set of rows; none means that the call is
// impossible there. These are all of the model's liberties:
//
//   - A call without an answer has taken effect at any time since, or never has.
//   - A run that a fault hit may be off the record: its outcome may be written later, or not at all, and another run may start
//     since the fault began. Its own start is none of these liberties: it starts from a row that was pending and due.
//   - The center reads the row some time before the run starts (Windows.Hand, and faults that hit the node then). A hand that
//     writes after that comes too late. Callers of the API do not: they ask the node that is about to start the run.
//   - A clock that is wrong moves what follows from it: when a run may start, and when a task is due after a failed run.
//   - The center ends tasks in silent steps: by coalescing, expiry, cuts, operations of operators, and leases that reached
//     no consumer.
//   - After a fault the center may mark the row of a due task before it starts: no tag from before holds any longer.
//
// The model allows events and requires none: a task that is late, or still pending in the end, breaks no order. Separate rules
// check for such tasks.
type model struct {
	bizType configs.BizType
	ahead   int64    // by how many milliseconds clocks may have been wrong
	cut     int64    // since when the task may be dead of its cuts
	marked  int64    // since when a start may be marked
	steps   []silent // that the center may have taken
	unheard []lostLease
	reads   map[*Change]uint64 // the bit of a change's tag
}

// forever is the end of what may still happen at any time.
const forever = 1<<63 - 1

// row is a task as it stands.
type row struct {
	status    task.Status
	stored    bool
	low, high int64 // action_time, in milliseconds, is from low to high
	promised  span  // the promised time, where action_time is another
	attempts  int64 // anyAttempts: unknown
	attribute uint64
	before    uint64 // the attribute before a hand's edit, which was over at edited
	edited    int64
	read      uint64 // the runs that were handed this row and have not started, a bit each
	running   int    // the run that is under way; runs and leases count from 1, 0 is none
	lease     int    // the lease that a consumer has
	tags      uint64 // the tags that still hold
	discarded bool   // an operation cancelled it, and nobody has written it since
	since     int64  // when it came to stand like this, at the earliest
	over      bool   // it was read in the end
}

// span is a time in milliseconds that is not known exactly; the zero span is none.
type span struct{ low, high int64 }

const anyAttempts = -1

// unknownLease is a lease that reached no consumer.
const unknownLease = -1

// silent is a step that an operator's operation, or a policy, may take with the task at some time.
type silent struct {
	from, till int64
	is         func(r row) bool
	do         func(r row) row
}

// lostLease is a request for leases without an answer.
type lostLease struct {
	from, till  int64
	countsSince int64 // since then its lease may end as a failed run, for its answer may be lost; else the center takes it back
}

// wrote is a row after a write.
func (r row) wrote() row {
	r.tags, r.read, r.discarded = 0, 0, false
	return r
}

// keepsPromise is a row whose action_time will be another than the promised one. Only the end of a lease asks for that.
func (m *model) keepsPromise(r row) row {
	if m.bizType.Processor == configs.ProcessorPull && r.promised == (span{}) {
		r.promised = span{r.low, r.high}
	}
	return r
}

// leaseEnds is a row without its lease. A task that has ended gets its promised time back.
func (r row) leaseEnds() row {
	if r.lease = 0; r.status != task.Pending && r.promised != (span{}) {
		r.low, r.high = r.promised.low, r.promised.high
	}
	return r
}

// at is a row whose action_time is between two times, by clocks that may be wrong.
func (m *model) at(r row, low, high int64) row {
	r.low, r.high = low-m.ahead, high+m.ahead
	return r
}

// hasAttempts and isAt report whether a column may have a value.
func (r row) hasAttempts(n int64) bool { return r.attempts == n || r.attempts == anyAttempts }
func (r row) isAt(action int64) bool   { return r.low <= action && action <= r.high }

// expand returns the row, and the rows that silent steps of the center may have made of it until a time. Two such rows that differ
// in their times alone become one, with the span of both: else each operation and each request would double them.
func (m *model) expand(r row, till int64) []row {
	all, work := []row{r}, []int{0}
	add := func(one row) {
		for i, old := range all {
			if old == one {
				return
			}
			if i == 0 || !old.differsInTimes(one) {
				continue
			}
			if wide := old.spanning(one); wide != old {
				all[i], work = wide, append(work, i)
			}
			return
		}
		all, work = append(all, one), append(work, len(all))
	}
	for ; len(work) > 0 && r.stored; work = work[1:] {
		r := all[work[0]]
		idle := r.status == task.Pending && r.running == 0 && r.lease == 0
		if idle && m.cut <= till {
			dead := r.wrote()
			dead.status = task.Dead
			add(dead)
		}
		if r.status == task.Pending && m.marked <= till && r.low <= till/int64(time.Millisecond)+m.ahead {
			marked := r
			marked.tags = 0
			add(marked)
		}
		for _, s := range m.steps {
			if s.from <= till && s.till >= r.since && s.is(r) && (idle || r.status != task.Pending) {
				add(s.do(r.wrote()))
			}
		}
		if idle {
			m.addUnheard(r, till, add)
		} else if r.status == task.Pending && r.lease == unknownLease { // a hand has ended the task, and made it pending again
			m.addOver(r, till, add)
		}
	}
	return all
}

// differsInTimes reports whether two rows have all but action_time and the promised time in common.
func (r row) differsInTimes(other row) bool {
	if (r.promised == span{}) != (other.promised == span{}) {
		return false
	}
	other.low, other.high, other.promised = r.low, r.high, r.promised
	return r == other
}

// spanning is a row that may have the times of both.
func (r row) spanning(other row) row {
	r.low, r.high = min(r.low, other.low), max(r.high, other.high)
	r.promised = span{min(r.promised.low, other.promised.low), max(r.promised.high, other.promised.high)}
	return r
}

// addUnheard adds the rows that leases may have made of a row, if these leases reached no consumer.
func (m *model) addUnheard(r row, till int64, add func(row)) {
	n := r.attempts
	for _, u := range m.unheard {
		if u.from > till || u.till < r.since || r.low > u.till/int64(time.Millisecond)+m.ahead {
			continue
		}
		back := m.keepsPromise(r.wrote())
		back.low, back.high = min(back.low, u.from/int64(time.Millisecond)-m.ahead), max(back.high, u.till/int64(time.Millisecond)+longestLease.Milliseconds()+m.ahead)
		held := back
		held.lease = unknownLease
		add(held)
		if add(back); u.countsSince > till || n == anyAttempts || n > int64(m.bizType.MaxRetries) {
			continue
		}
		n++
		add(m.counted(back, n))
	}
}

// addOver adds the rows that may follow from the end of a lease that reached no consumer.
func (m *model) addOver(r row, till int64, add func(row)) {
	over := r.wrote()
	over.lease = 0
	add(over)
	if r.attempts != anyAttempts && slices.ContainsFunc(m.unheard, func(u lostLease) bool { return u.countsSince <= till }) {
		add(m.counted(over, r.attempts+1))
	}
}

// counted is a row whose lease has ended as a failed run.
func (m *model) counted(r row, attempts int64) row {
	if r.attempts = attempts; attempts > int64(m.bizType.MaxRetries) {
		r.status = task.Dead
	}
	return r.leaseEnds()
}

// change makes a change, if the row is one that it applies to.
func (m *model) change(r row, c *Change) (row, bool) {
	low, high := c.Set.Low.UnixMilli(), c.Set.High.UnixMilli()
	moves := !c.Set.Low.IsZero()
	switch {
	case !r.stored || r.status != c.From,
		!c.Hand && (r.running != 0 || c.From == task.Pending && r.lease != 0),
		!c.Read.IsZero() && r.tags&m.reads[c] == 0,
		c.Kind == Lowered && r.attempts == 0,
		c.Hand && moves && c.Kind != Redriven && r.low == low && r.high == low: // there is nothing to change
		return r, false
	}
	fresh := r.read
	if r = r.wrote(); c.Hand {
		r.read = fresh
	}
	if c.Set.Status != nil {
		if r.status = *c.Set.Status; !c.Hand { // a hand leaves the lease in the row: if it is pending again, so is the lease
			r.lease = 0
		}
	}
	if moves { // also by hand: that ends a lease at once
		r.lease, r.promised = 0, span{}
		if r.low, r.high = low, high; c.Kind == Redriven && !c.Hand { // to now, by the clock of the node
			r = m.at(r, low, high)
		}
	}
	if c.Set.Attempts != nil {
		r.attempts = int64(*c.Set.Attempts)
	}
	if c.Set.HasAttribute {
		r.before, r.edited = 0, 0
		if c.Hand {
			r.before, r.edited = r.attribute, c.Answered.UnixNano()
		}
		r.attribute = c.Set.Attribute
	}
	return r, true
}

// refuses reports whether the row explains why a change was refused.
func (m *model) refuses(r row, c *Change) bool {
	switch {
	case c.Mismatch:
		return r.tags&m.reads[c] == 0
	case c.Conflict == task.ConflictRunning:
		// A due task may be about to start, or to be ended, and may not get that far.
		return r.running != 0 || r.lease != 0 || r.read != 0 || r.status == task.Pending && r.low <= c.Answered.UnixMilli()+m.ahead
	case c.Conflict != "":
		return r.status != c.From && c.Conflict == task.ConflictOf(r.status)
	}
	_, applies := m.change(r, c)
	return !applies
}

// hadAttribute reports whether the row, as it was read at a time or later, may have had an attribute. When the center writes an
// outcome, it keeps the attribute of the last reading.
func (r row) hadAttribute(value uint64, since int64) bool {
	return r.attribute == value || r.before == value && r.edited >= since
}

// handed is a run being handed the row, which the center has read since a time.
func (m *model) handed(r row, n int, seen Seen, since int64) (row, bool) {
	if r.status != task.Pending || !r.isAt(seen.Action) || !r.hasAttempts(seen.Attempts) || !r.hadAttribute(seen.Attribute, since) {
		return r, false
	}
	r.low, r.high, r.attempts, r.read = seen.Action, seen.Action, seen.Attempts, r.read|1<<n
	return r, true
}

// starts is the run that was handed the row starting. Beside another one it starts only if a fault hit it.
func (m *model) starts(r row, n int, hit bool) (row, bool) {
	if r.read&(1<<n) == 0 || r.running != 0 && !hit {
		return r, false
	}
	r.read &^= 1 << n
	if r.running == 0 {
		r.running = n
	}
	return r, true
}

// leaves is a run ending without a record.
func (r row) leaves(n int) row {
	if r.running == n {
		r.running = 0
	}
	return r
}

// ends is the outcome of a run being recorded. What a hand has changed since the run was handed the row stays.
func (m *model) ends(r row, n int, s Span, unsure bool) row {
	r = r.leaves(n)
	if r.status != task.Pending {
		return r
	}
	if s.End == EndOK {
		r = r.wrote()
		r.status = task.Processed
		return r
	}
	late := 2 * time.Second // until the outcome is decided
	if unsure {
		late = time.Minute
	}
	over := s.Till / int64(time.Millisecond)
	return m.fails(r, s.Seen, r.isAt(s.Seen.Action), func(low, high time.Duration) (int64, int64) {
		return over + low.Milliseconds(), over + (high + late).Milliseconds()
	})
}

// fails is a failed run being recorded, whose task is due again after a pause.
func (m *model) fails(r row, seen Seen, unmoved bool, pause func(low, high time.Duration) (int64, int64)) row {
	r = r.wrote()
	n, retries := seen.Attempts+1, int64(m.bizType.MaxRetries)
	counted := r.hasAttempts(seen.Attempts)
	if counted {
		r.attempts = n
	}
	if n > retries && counted && unmoved {
		r.status = task.Dead
		return r
	}
	if unmoved {
		r = m.keepsPromise(r)
		low, high := pauses(m.bizType.Backoff, min(n, 8))
		if n > retries { // by attempts that were edited
			low, high = m.bizType.Backoff.Min, m.bizType.Backoff.Max
		}
		low64, high64 := pause(low, high)
		r = m.at(r, low64, high64)
	}
	return r
}

// leased is a consumer getting the task by a row that the center has read since a time.
func (m *model) leased(r row, n int, h *Hold, due, since int64) (row, bool) {
	if r.status != task.Pending || r.running != 0 || r.lease != 0 || r.low > due ||
		!r.hasAttempts(int64(h.Attempt-1)) || !r.hadAttribute(TextHash(h.Attribute), since) {
		return r, false
	}
	r = m.keepsPromise(r.wrote())
	r.lease, r.attempts = n, int64(h.Attempt-1)
	r.low, r.high = h.first.UnixMilli(), h.first.UnixMilli()
	return r, true
}

// settled is a settlement being made.
func (m *model) settled(r row, n int, h *Hold, s Settle) (row, bool) {
	if r.status != task.Pending || r.lease != n {
		return r, false
	}
	sent, answered := s.Sent.UnixMilli(), s.Answered.UnixMilli()+1
	if s.Result != client.SettledOK {
		answered += Undecided.Milliseconds()
	}
	r = r.wrote()
	if s.Do == client.Extend {
		ttr := time.Duration(s.TTR).Milliseconds()
		return m.at(r, sent+ttr, answered+ttr), true
	}
	switch s.Do {
	case client.Ack:
		r.status = task.Processed
	case client.Reject:
		r.status = task.Cancelled
	case client.Release:
		r = m.at(r, sent, answered)
	case client.Nack:
		r = m.fails(r, Seen{Attempts: int64(h.Attempt - 1)}, true, func(low, high time.Duration) (int64, int64) {
			if s.RetryAfter != nil {
				low = time.Duration(*s.RetryAfter)
				high = low
			}
			return sent + low.Milliseconds(), answered + (high + 2*time.Second).Milliseconds()
		})
	}
	return r.leaseEnds(), true
}

// isLost reports whether the answer to a settlement may be that its lease is over.
func (m *model) isLost(r row, n int, s Settle) bool {
	return r.status != task.Pending || r.lease != n || r.low <= s.Answered.UnixMilli()+1+m.ahead
}

// runsOut is the end of a lease that nobody has settled. It is a failed run, or no run if the node has ended that gave the lease or
// passed it on. If the center has received its release, it is no failed run.
func (m *model) runsOut(r row, n int, h *Hold, gone, returned bool, from int64) (list []row) {
	if r.status != task.Pending || r.lease != n {
		return nil
	}
	if gone {
		again := m.at(r.wrote(), from/int64(time.Millisecond), never)
		list = append(list, again.leaseEnds())
	}
	if returned {
		return list
	}
	for _, before := range []int64{int64(h.Attempt - 1), r.attempts} { // as its node has it in memory, or as the node reads it
		list = append(list, m.fails(r, Seen{Attempts: before}, true, func(time.Duration, time.Duration) (int64, int64) {
			return from / int64(time.Millisecond), never
		}).leaseEnds())
		if before == r.attempts || r.attempts == anyAttempts {
			break
		}
	}
	return list
}

// never is an action_time after all others, in milliseconds.
const never = forever / int64(time.Millisecond) / 2

// stands reports whether the store may have the row in the end.
func (r row) stands(end Row) bool {
	return r.status == end.Status && r.isAt(end.Action) && r.hasAttempts(end.Attempts) && r.attribute == end.Attribute
}

func (r row) String() string {
	if !r.stored {
		return "not stored"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s at %s", r.status, Clock(r.low*int64(time.Millisecond)))
	if r.high > r.low {
		text.WriteString(" or later")
	}
	fmt.Fprintf(&text, ", attempts %d", r.attempts)
	for _, one := range []struct {
		name string
		n    int
	}{{"run", r.running}, {"lease", r.lease}} {
		if one.n != 0 {
			fmt.Fprintf(&text, ", %s %d", one.name, one.n)
		}
	}
	return text.String()
}
