package redistimer

import (
	"context"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// claimer claims the tasks that are about to be due, loads their rows, and offers them to the queue.
type claimer struct {
	*node
	loads []*groupcommit.Group[claim] // by loader
}

func newClaimer(n *node) *claimer {
	cl := &claimer{node: n}
	for range loaders * n.cfg.Layout.Databases {
		cl.loads = append(cl.loads, groupcommit.New(1000, 1, cl.flushLoads))
	}
	return cl
}

// claim is a claimed task whose row must be loaded. Without a slot it is a task that may not be claimed: its row is read to bring
// it to its place.
type claim struct {
	biz    *BizType // at the time of the claim
	slot   *slotState
	member slots.Member
	at     time.Time // of the claim

	isRemoved bool // there is no claim: the task was removed from its slot before
}

// longestWait is the time after which the next plan is made at the latest: the clock may have been set meanwhile.
const longestWait = time.Second

// rounds claims the tasks that are about to be due, in one pipeline for all slots of a server, and sleeps until
// the next head is due.
func (cl *claimer) rounds(ctx context.Context) error {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for ctx.Err() == nil {
		most, roused := cl.pace.Slowed(longestWait)
		rounds, next := cl.planner.plan(cl.cfg.Now())
		for _, r := range rounds {
			underWay.Go(func() { cl.round(ctx, r) })
		}
		if await(ctx, min(max(next, 100*time.Microsecond), most), cl.planner.replan, roused) {
			cl.mu.Lock()
			cl.placement.placeSoon(cl.cfg.Now())
			cl.mu.Unlock()
		}
	}
	return ctx.Err()
}

// await waits for d, until wake receives, or until ctx ends. isRoused: roused has received.
func await(ctx context.Context, d time.Duration, wake wait.Signal, roused <-chan struct{}) (isRoused bool) {
	select {
	case <-time.After(d):
	case <-wake:
	case <-roused:
		return true
	case <-ctx.Done():
	}
	return false
}

// round polls the slots of one server and loads the tasks that it claimed.
func (cl *claimer) round(ctx context.Context, r round) {
	start := cl.cfg.Now()
	// The end of ctx must not interrupt a claim, or its tasks would be unknown.
	answers := cl.slots.Claim(context.WithoutCancel(ctx), r.claims)
	now := cl.cfg.Now()
	cl.cfg.Observer.RoundTrip(now.Sub(start))
	loads := cl.applyAnswers(r, answers, start, now)
	cl.load(loads)
	cl.recover(r.slots)

	cl.mu.Lock()
	cl.endRound(r)
	cl.mu.Unlock()
}

// endRound allows the slots of a round to be polled again, after its recovery. The lock is held.
func (cl *claimer) endRound(r round) {
	r.server.inRound = false
	for _, s := range r.slots {
		s.phase = idle
		s.partition.busy--
		cl.planner.update(s)
	}
	cl.notifyIdle()
	cl.planner.replan.Set()
}

// applyAnswers records the answers of a round, and returns the claims to load.
func (cl *claimer) applyAnswers(r round, answers []slots.ClaimResult, start, now time.Time) (loads []claim) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	answered, failure, members := false, error(nil), 0
	for i := range answers {
		members += len(answers[i].Members)
	}
	loads = make([]claim, 0, members)
	for i := range answers {
		a, s := &answers[i], r.slots[i]
		s.pollNow, s.lastPoll = false, now
		answered = answered || slots.IsAnswer(a.Err)
		cl.health.recordWrite(r.server, a.Err)
		if a.Err != nil || r.server.writeErr != nil || s.refusesRows {
			cl.health.recordFailure(s, start)
		} else {
			cl.health.recordReachable(s)
		}
		if a.Err != nil {
			failure = a.Err
			continue
		}
		r.server.setSkew(start.Sub(a.Now), now.Sub(a.Now))
		loads = cl.applySlotAnswer(r.slots[i], a, now, loads)
	}
	recordBacklogs(r, answers, now)
	cl.health.recordCall(r.server, start, answered, failure)
	return loads
}

// applySlotAnswer records the answer of one slot and appends its claims to loads. The lock is held.
func (cl *claimer) applySlotAnswer(s *slotState, a *slots.ClaimResult, now time.Time, loads []claim) []claim {
	bt := s.group.bizTimer
	if r := s.partition; s.headVanished(a) && s.isOwned() {
		if r.till.IsZero() || s.head.Before(r.from) {
			r.from = s.head
		}
		r.till = later(r.till, s.head)
		cl.reader.request(s.slot.Partition, headsOnly)
	}
	s.head = a.Next
	if !s.announcedHead.IsZero() && (s.head.IsZero() || s.announcedHead.Before(s.head)) {
		s.head = s.announcedHead
	}
	for _, m := range a.Members {
		if cl.addInflight(s, m, bt.CatchUp > 0 && now.Sub(m.At) > limits.LateAfter) {
			loads = append(loads, claim{biz: bt.BizType, slot: s, member: m, at: now})
		}
	}
	// Redis has more claims than this node: an earlier call that timed out here has reached Redis. (Or some claims
	// were settled since the answer. Then no orphan is found.)
	if a.Claims <= len(s.inflight) {
		s.hasOrphans = false
	} else {
		cl.planner.countOrphans(s, now)
	}
	if s.backlogLeft && (a.Next.IsZero() || a.Next.After(now)) {
		s.backlogLeft = false
		cl.reader.request(s.slot.Partition, wholeWindow)
	}
	return loads
}

// headVanished reports whether the head of the slot is missing in Redis and was not claimed. The task may have
// been cancelled or moved, or Redis has evicted the queue.
func (s *slotState) headVanished(a *slots.ClaimResult) bool {
	head := s.head
	if head.IsZero() || !s.announcedHead.IsZero() || len(a.Members) > 0 && !a.Members[0].At.After(head) {
		return false
	}
	return a.Next.IsZero() || a.Next.After(head)
}

// recordBacklogs records which groups have a backlog. The slots of a group are adjacent in a round.
func recordBacklogs(r round, answers []slots.ClaimResult, now time.Time) {
	for i := 0; i < len(answers); {
		g, slotsClaimed, tasksClaimed := r.slots[i].group, 0, 0
		for ; i < len(answers) && r.slots[i].group == g; i++ {
			if answers[i].Err == nil && r.claims[i].Limit > 0 {
				slotsClaimed++
				tasksClaimed += len(answers[i].Members)
			}
		}
		g.countClaims(tasksClaimed, now)
		if slotsClaimed == 0 {
			continue
		}
		if g.backlogged = tasksClaimed/slotsClaimed >= minClaim/2; !g.backlogged {
			g.lastSparse = now
		}
	}
}

// countClaims counts the tasks of a round, to find out whether the group is dense.
func (g *group) countClaims(tasks int, now time.Time) {
	if g.claimed.Add(tasks); g.claimed.Update(now, time.Second, 0) {
		g.isDense = g.claimed.PerSecond >= denseFrom
	}
}

// addInflight adds a claimed task. It returns false if this node has the task already: then Redis had lost the
// claim, and the task was armed again. The lock is held.
func (cl *claimer) addInflight(s *slotState, m slots.Member, late bool) bool {
	h := s.inflight[m.JobID]
	if h.claims > h.settling {
		return false
	}
	h.claims++
	h.unread = m.At
	if late && !h.late {
		h.late = true
		s.group.bizTimer.late++
	}
	if s.inflight == nil {
		s.inflight = make(map[uint64]inflightTask)
	}
	s.inflight[m.JobID] = h
	s.count(1)
	return true
}

// count adds to the numbers of claims in flight.
func (s *slotState) count(claims int) {
	s.inflightClaims += claims
	s.group.inflight += claims
	s.group.bizTimer.inflight += claims
	s.partition.busy += claims
}

// removeInflight removes a settled task. The lock is held.
func (cl *claimer) removeInflight(s *slotState, jobID uint64) {
	bt, h := s.group.bizTimer, s.inflight[jobID]
	h.claims--
	h.settling--
	if s.inflight[jobID] = h; h.claims == 0 {
		delete(s.inflight, jobID)
		if h.late {
			bt.late--
		}
		if h.recheckRow {
			cl.load([]claim{{member: slots.Member{JobID: jobID}}})
		}
	}
	s.count(-1)
	if (bt.inflight < maxInflight*3/4 || bt.inflight == 0) && bt.waitsForRoom() {
		cl.planner.replan.Set()
	}
}
