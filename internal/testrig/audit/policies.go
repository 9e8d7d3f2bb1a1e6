package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// promises are the times for which a task may have been promised: by its submit, or by somebody who moved it.
func (h *History) promises() (list []time.Time) {
	for _, try := range h.Submits {
		list = append(list, try.Due)
	}
	for _, c := range h.InTurn() {
		if c.Done != Refused && !c.Set.Low.IsZero() && c.Kind != Redriven {
			list = append(list, c.Set.Low)
		}
	}
	return list
}

// askCoalesced: only a task that has a later one is cancelled for it. Later is what was promised for later, and for no later than the
// moment of the cancel; leases, retries and redrives do not count.
func (v *Verdict) askCoalesced(s *story) string {
	if s.row.Status != task.Cancelled || !strings.HasPrefix(s.row.Error, "coalesced") {
		return ""
	}
	then := s.row.Modified.Add(time.Duration(v.ahead()) * time.Millisecond)
	for _, other := range v.rivals[rival{s.BizType, s.BizID}] {
		if other.JobID == s.JobID {
			continue
		}
		for _, mine := range s.promises() {
			for _, theirs := range other.promises() {
				if !theirs.After(then) && (theirs.After(mine) || theirs.Equal(mine) && other.JobID > s.JobID) {
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
	promised := s.promises()
	if len(s.runs) == 0 && len(s.Changes) == 0 && len(promised) == 1 && len(v.Operations) == 0 &&
		v.faultBetween(s.BizType, promised[0].UnixNano(), promised[0].Add(b.ExpireAfter).UnixNano()) == nil {
		return fmt.Sprintf("expired without a run, though no fault held it up for %s", b.ExpireAfter)
	}
	return ""
}
