package soak_test

import (
	"time"

	"github.com/timeoutcenter/toc/task"
)

// story is all that is known of a task: what was asked, what ran, and how its row stands in the end.
type story struct {
	*history
	runs []run
	row  row
	// What may stand in the columns of its row, at each time.
	status, action, attempts, attribute register
}

// row is a task as the store has it in the end.
type row struct {
	seen
	status task.Status
	there  bool
}

// tell puts a task's story together.
func (v *verdict) tell(h *history) *story {
	s := &story{history: h, runs: v.runs[h.jobID], row: v.rows[h.jobID]}
	for _, try := range h.submits {
		sent, answered := try.sent.UnixNano(), min(try.answered.UnixNano(), h.known.UnixNano()) // stored by then, whichever try it was
		put := func(r *register, value int64) {
			*r = append(*r, write{low: value, high: value, from: sent, till: answered, sure: len(h.submits) == 1})
		}
		put(&s.status, int64(task.Pending))
		put(&s.action, try.due.UnixMilli())
		put(&s.attempts, 0)
		put(&s.attribute, int64(textHash(h.attribute)))
	}
	for _, c := range h.inTurn() {
		s.addChange(c)
	}
	for i := range s.runs {
		v.addOutcome(s, i)
	}
	s.addCuts(v)
	return s
}

func (s *story) addChange(c *change) {
	if c.done == refused {
		return
	}
	put := func(r *register, low, high int64) {
		w := write{low: low, high: high, from: c.sent.UnixNano(), till: c.answered.UnixNano(), sure: c.done == made, hand: c.hand}
		if !w.sure {
			w.till = c.answered.Add(undecided).UnixNano()
		}
		*r = append(*r, w)
	}
	if c.set.status != nil {
		put(&s.status, int64(*c.set.status), int64(*c.set.status))
	}
	if !c.set.low.IsZero() {
		put(&s.action, c.set.low.UnixMilli(), c.set.high.UnixMilli())
	}
	if c.set.attempts != nil {
		put(&s.attempts, int64(*c.set.attempts), int64(*c.set.attempts))
	}
	if c.set.hasAttribute {
		put(&s.attribute, int64(c.set.attribute), int64(c.set.attribute))
	}
}

// addOutcome adds what the product writes at the end of a run. It surely does so, unless a fault kept it from that, or
// somebody may have edited the row since it was read. A column that a hand surely edited during the run stays as edited.
func (v *verdict) addOutcome(s *story, i int) {
	r := s.runs[i]
	if r.span.till == 0 { // it ended with its process
		return
	}
	sure := r.span.end != endStopped
	by := v.recordedBy(r)
	for _, f := range v.explanations(r) {
		sure, by = false, max(by, f.whole.UnixNano()+int64(within.record))
	}
	if i+1 < len(s.runs) && sure && s.runs[i+1].span.from > r.span.till { // no run begins before that
		by = min(by, s.runs[i+1].span.from-1)
	}
	perhaps := s.edits(func(c *change) bool {
		end := c.answered
		if c.done == unknown {
			end = end.Add(undecided)
		}
		return (c.hand || c.done == unknown) && c.sent.UnixNano() <= by && end.UnixNano() >= r.span.from-v.slack(r)
	})
	surely := s.edits(func(c *change) bool {
		return c.hand && c.done == made && c.sent.UnixNano() > r.span.from && c.answered.UnixNano() < r.span.till
	})
	if surely.status {
		return
	}
	put := func(to *register, sure bool, low, high int64) {
		*to = append(*to, write{low: low, high: high, from: r.span.till, till: by, sure: sure && !perhaps.status})
	}
	if r.span.end == endOK {
		put(&s.status, sure, int64(task.Processed), int64(task.Processed))
		return
	}
	n, end := r.span.seen.attempts+1, r.span.till/int64(time.Millisecond)
	if !surely.attempts {
		put(&s.attempts, sure && !perhaps.attempts, n, n)
	}
	late := 2 * time.Second
	if !sure {
		late = time.Minute
	}
	low, high := pauses(n)
	if n > maxRetries && !surely.attempts && !surely.action {
		put(&s.status, sure && !perhaps.attempts && !perhaps.action, int64(task.Dead), int64(task.Dead))
		sure, late = false, time.Minute // it does not move, or was edited and did not die
	}
	if n > maxRetries {
		low, high = backoffMin, backoffMax // by attempts that were edited
	}
	if !surely.action {
		put(&s.action, sure && !perhaps.action, end+low.Milliseconds(), end+(high+late).Milliseconds())
	}
}

// pauses is how long a task waits after its n-th failed run.
func pauses(n int64) (low, high time.Duration) {
	base := backoffMin << (n - 1)
	if base >= backoffMax {
		return backoffMax * 3 / 4, backoffMax
	}
	return base, min(base*5/4, backoffMax)
}

// columns are some of a row's.
type columns struct{ status, action, attempts bool }

// edits tells which columns the changes of a kind write, those included of which nobody knows.
func (s *story) edits(match func(*change) bool) (all columns) {
	for _, c := range s.changes {
		if c.done == refused || !match(c) {
			continue
		}
		all.status = all.status || c.set.status != nil
		all.attempts = all.attempts || c.set.attempts != nil
		all.action = all.action || !c.set.low.IsZero()
	}
	return all
}

// mostCuts is how many starts without an end a task survives, less one: a biz_type's `cuts`.
const mostCuts = 3

// addCuts lets a task be dead whose runs had no end, as far as the product can know, often enough. Ends of processes that
// fell between its time and its start, or between two starts, are laid to it, too: one on suspicion, as if it had been
// started unseen, and one that came when its start was written down and had not begun. But never without a start of its own.
func (s *story) addCuts(v *verdict) {
	own := map[*fault]bool{}
	for _, r := range s.runs {
		for _, f := range v.explanations(r) {
			own[f] = true
		}
	}
	cuts, suspected := 0, map[*fault]bool{}
	die := func(at int64) {
		if cuts+min(len(suspected), mostCuts-1) >= mostCuts {
			s.status = append(s.status, write{low: int64(task.Dead), high: int64(task.Dead), from: at, till: forever})
		}
	}
	for i, r := range s.runs {
		if r.span.till != 0 && len(v.explanations(r)) == 0 {
			continue
		}
		for _, f := range v.faults {
			if f.explains && !own[f] && f.end.UnixMilli() >= r.span.seen.action && f.begin.UnixNano() <= r.span.from {
				suspected[f] = true
			}
		}
		cuts++
		die(r.span.from)
		next := int64(forever)
		if i+1 < len(s.runs) {
			next = s.runs[i+1].span.from
		}
		for _, f := range v.faults {
			if at := f.begin.UnixNano(); f.process != nil && f.explains && !own[f] && at > r.span.from && at < next {
				suspected[f] = true
				die(at)
				break // the process after that would have started it
			}
		}
	}
}

// slack is how much earlier than its start a run's row may have been read: windows.hand, and the faults that hit the node
// in that time.
func (v *verdict) slack(r run) int64 {
	since := r.span.from - int64(within.hand)
	for again := true; again; {
		again = false
		for _, f := range v.faults {
			begin := f.begin.UnixNano() - int64(within.hand)
			if f.hits(r.by) && f.begin.UnixNano() <= r.span.from && f.whole.UnixNano() >= since && begin < since {
				since, again = begin, true
			}
		}
	}
	return r.span.from - since
}
