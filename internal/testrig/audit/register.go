package audit

// register is one column of a row, as the audit knows it: all that may have been written to it, by whom and when. It
// does not know the order of writes whose times overlap, so a read may have several right answers; all others are wrong.
type register []write

// write is one write, made at some time from its begin to its end.
type write struct {
	low, high  int64 // the value is from low to high
	from, till int64 // nanoseconds
	sure       bool  // it was made; else it may have been
	hand       bool  // by SQL
}

// forever is the end of what may still happen at any time.
const forever = 1<<63 - 1

// allows tells whether a read that was made at some time from its begin to its end may have given the value. What a
// hand wrote less than slack before counts as not seen yet.
func (r register) allows(value, from, till, slack int64) bool {
	for _, w := range r {
		if w.low <= value && value <= w.high && w.from <= till && !r.overwritten(w, from, slack) {
			return true
		}
	}
	return false
}

// allowsUpTo tells whether such a read may have given a value up to the given one.
func (r register) allowsUpTo(value, from, till, slack int64) bool {
	for _, w := range r {
		if w.low <= value && w.from <= till && !r.overwritten(w, from, slack) {
			return true
		}
	}
	return false
}

// overwritten tells whether another write came after this one, and before the time.
func (r register) overwritten(w write, by, slack int64) bool {
	for _, later := range r {
		if !later.sure || later.from <= w.till {
			continue
		}
		if later.hand && later.till < by-slack || !later.hand && later.till < by {
			return true
		}
	}
	return false
}

// last is the write that surely was made before the time, and of those the one that began last.
func (r register) last(before, slack int64) (last write, ok bool) {
	for _, w := range r {
		if w.sure && (!w.hand && w.till < before || w.hand && w.till < before-slack) && (!ok || w.from > last.from) {
			last, ok = w, true
		}
	}
	return last, ok
}
