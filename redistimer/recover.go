package redistimer

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

// orphansEvery is the interval at which a slot with more claims than this node holds is looked at.
const orphansEvery = 3 * time.Second

// recover rolls back the orphaned claims of slots: those of a process that died, or whose settling was lost. It
// runs at the end of a round, when no claim is under way. It stops at the first failure, because the next round
// must soon notice a silent Redis. The other slots keep their mark.
func (cl *claimer) recover(polled []*slotState) {
	found := make(map[*BizType]int)
	for _, s := range polled {
		cl.mu.Lock()
		skip, b := !s.hasOrphans || !cl.health.isUsable(s.group.bizTimer, s.slot.Partition), s.group.bizTimer.BizType
		s.hasOrphans = s.hasOrphans && skip
		cl.mu.Unlock()
		if skip {
			continue
		}
		n, err := cl.recoverSlot(s)
		if n > 0 {
			found[b] += n
		}
		if err != nil {
			cl.mu.Lock()
			s.hasOrphans = true
			cl.mu.Unlock()
			break
		}
	}
	for b, n := range found {
		cl.cfg.Observer.ClaimsExpired(b.BizType, n)
		cl.cfg.Logger.Info("claims that nobody settled were rolled back", "biz_type", b.Name, "tasks", n)
	}
}

// recoverPage is the number of claims in a page.
const recoverPage = 500

// recoverSlot rolls back the claims that this node does not hold, whenever they expire: a clock may have been wrong when they
// were made, or visibility was longer.
func (cl *claimer) recoverSlot(s *slotState) (n int, err error) {
	ctx, now := context.Background(), cl.cfg.Now()
	for skip := 0; ; {
		page, err := cl.slots.Prepared(ctx, s.slot, skip, recoverPage)
		if err != nil {
			return n, err
		}
		var orphans []slots.Member
		cl.mu.Lock()
		for _, m := range page {
			if _, held := s.inflight[m.JobID]; held {
				skip++
			} else {
				orphans = append(orphans, slots.Member{JobID: m.JobID, At: now, Attempts: m.Attempts})
			}
		}
		cl.mu.Unlock()
		if len(orphans) > 0 {
			got := cl.slots.Settle(ctx, []slots.SettleRequest{{Slot: s.slot, GiveBack: orphans}})[0]
			if got.Err != nil {
				return n, got.Err
			}
			n += got.GivenBack
			cl.mu.Lock()
			cl.planner.advanceHead(s.group.bizTimer, s.slot.Partition, now)
			cl.mu.Unlock()
		}
		if len(page) < recoverPage {
			return n, nil
		}
	}
}
