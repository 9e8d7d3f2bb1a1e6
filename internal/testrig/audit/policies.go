package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// promises are the times for which a task may have been promised: by its submit, or by somebody who moved or redrove it.
func (v *Verdict) promises(h *History) (list []promise) {
	add := func(low, high time.Time) { list = append(list, promise{low, high}) }
	for _, try := range h.Submits {
		add(try.Due, try.Due)
	}
	for _, c := range h.InTurn() {
		if c.Done != Refused && !c.Set.Low.IsZero() {
			add(c.Set.Low, c.Set.High)
		}
	}
	for _, o := range v.Operations {
		if o.Kind == "redrive" && (o.BizType == "" || o.BizType == h.BizType) {
			add(o.Sent, latest(o.Answered.Add(Undecided), o.Ended))
		}
	}
	return list
}

// promise is a promised time, of which only a span may be known.
type promise struct{ low, high time.Time }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// askCoalesced: only a task that has a later one is cancelled for it. Later is what was promised for later, and for no later than the
// moment of the cancel; leases and retries do not count.
func (v *Verdict) askCoalesced(s *story) string {
	if s.row.Status != task.Cancelled || !strings.HasPrefix(s.row.Error, "coalesced") {
		return ""
	}
	then := s.row.Modified.Add(time.Duration(v.ahead()) * time.Millisecond)
	for _, other := range v.rivals[rival{s.BizType, s.BizID}] {
		if other.JobID == s.JobID {
			continue
		}
		for _, mine := range v.promises(s.History) {
			for _, theirs := range v.promises(other) {
				if !theirs.low.After(then) && (theirs.high.After(mine.low) || theirs.high.Equal(mine.low) && other.JobID > s.JobID) {
					return ""
				}
			}
		}
	}
	return "coalesced, but no other task of its biz_id was promised for later and due by then"
}

// rival is what tasks have in common that may be coalesced.
type rival struct {
	bizType string
	bizID   uint64
}

// askExpired: only a task that is late is too late.
func (v *Verdict) askExpired(s *story) string {
	b := v.Types[s.BizType]
	if !s.row.There || !strings.HasPrefix(s.row.Error, "expired") {
		return ""
	}
	if b.ExpireAfter == 0 {
		return "expired, but its business type has no expire_after"
	}
	promised := v.promises(s.History)
	if len(s.runs) == 0 && len(s.Changes) == 0 && len(promised) == 1 &&
		v.faultBetween(s.BizType, promised[0].low.UnixNano(), promised[0].low.Add(b.ExpireAfter).UnixNano()) == nil {
		return fmt.Sprintf("expired without a run, though no fault held it up for %s", b.ExpireAfter)
	}
	return ""
}
