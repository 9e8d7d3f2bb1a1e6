package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// addPolicies adds what a business type does to tasks that wait for long: rules of their own ask whether it was right.
func (v *Verdict) addPolicies(s *story) {
	b := v.Types[s.BizType]
	may := func(status task.Status) {
		s.status = append(s.status, write{low: int64(status), high: int64(status), from: s.Submits[0].Sent.UnixNano(), till: forever})
	}
	if b.Coalesce == configs.CoalesceBizID {
		may(task.Cancelled)
	}
	if b.ExpireAfter > 0 && b.OnExpire == configs.OnExpireSkip {
		may(task.Cancelled)
	}
	if b.ExpireAfter > 0 && b.OnExpire == configs.OnExpireDead {
		may(task.Dead)
	}
}

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

// askCoalesced: only a task that has a later one is cancelled for it. Later is what was promised for later; leases, retries
// and redrives do not count.
func (v *Verdict) askCoalesced(s *story) string {
	if s.row.Status != task.Cancelled || !strings.HasPrefix(s.row.Error, "coalesced") {
		return ""
	}
	for _, other := range v.rivals[rival{s.BizType, s.BizID}] {
		if other.JobID == s.JobID {
			continue
		}
		for _, mine := range s.promises() {
			for _, theirs := range other.promises() {
				if theirs.After(mine) || theirs.Equal(mine) && other.JobID > s.JobID {
					return ""
				}
			}
		}
	}
	return "coalesced, but no other task of its biz_id was promised for later"
}

// coalesced is the rule of askCoalesced.
const coalesced = "the newest tasks were coalesced"

// rivalsOf tells of the others of a task's biz_id.
func (v *Verdict) rivalsOf(s *story) (list []Told) {
	for _, h := range v.rivals[rival{s.BizType, s.BizID}] {
		if h.JobID != s.JobID {
			list = append(list, v.tell(h).told())
		}
	}
	return list
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
