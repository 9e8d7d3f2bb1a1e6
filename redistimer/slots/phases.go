package slots

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ArmRequest lists tasks that are to be in a slot's store queue.
type ArmRequest struct {
	Slot    Slot
	Members []Member
	// KeepUntil, if not zero: they are rows that were read some time ago. So a task of the store queue becomes no later:
	// it was armed after its commit, and may be newer. If it is too early, its claim finds out. A task that is due there by
	// then does not change.
	KeepUntil time.Time
}

// ArmResult is the result of an ArmRequest.
type ArmResult struct {
	Known   int // members that were in the slot already, stored or claimed
	Claimed int // those of them that were claimed
	Err     error
}

// Unused queues expire, for example those of a topic that was renamed. The dead queue keeps the latest deaths.
var (
	queueTTL = "86400"  // seconds since its slot was last served
	deadTTL  = "604800" // seconds since the last death
	maxDead  = "10000"
)

// longMember is a member that turns a sorted set into a skiplist (zset-max-listpack-value is 64 bytes). No
// script leaves it in the set.
var longMember = "listpack" + strings.Repeat(" ", 64)

// keepNone is the argument of arm.lua by which all tasks get their new time.
var keepNone = ""

// Arm puts tasks into the store queues of their slots. For tasks that are there it updates their time and
// attempts; see KeepUntil. A claimed task does not change. A dead task leaves the dead queue. Arm publishes a wake-up for each
// slot whose head became earlier.
func (s *Slots) Arm(ctx context.Context, list []ArmRequest) []ArmResult {
	members := 0
	for i := range list {
		members += len(list[i].Members)
	}
	runs := newRuns(armScript, len(list), members)
	for i := range list {
		keys, keep := s.keys.of(list[i].Slot), &keepNone
		if !list[i].KeepUntil.IsZero() {
			keep = new(scoreText(list[i].KeepUntil))
		}
		for chunk := range slices.Chunk(list[i].Members, perRun) {
			runs.begin(i, &keys.store, &keys.prepare, &keys.dead)
			runs.texts(&s.wakeChannel, &keys.partition, &keys.topic, &longMember, keep, &queueTTL)
			runs.members(chunk)
		}
	}
	s.exec(ctx, runs)

	answers := make([]ArmResult, len(list))
	for i := range runs.list {
		run := &runs.list[i]
		a := &answers[run.index]
		if run.err != nil {
			a.Err = cmp.Or(a.Err, s.wrapError("arm", list[run.index].Slot, run.err))
			continue
		}
		known, _ := strconv.Atoi(run.reply[0])
		claimed, _ := strconv.Atoi(run.reply[1])
		a.Known += known
		a.Claimed += claimed
	}
	return answers
}

// ClaimRequest asks one slot for its due tasks.
type ClaimRequest struct {
	Slot       Slot
	Limit      int           // at most so many; 0: only report the slot's state
	Ahead      time.Duration // claim tasks so long before their time
	Visibility time.Duration // how long the claims last unless they are settled
	Overdue    time.Duration // claim only tasks that are overdue by at most so much; 0: all
}

// ClaimResult is the state of a slot after a ClaimRequest.
type ClaimResult struct {
	Members []Member  // the claims, earliest first; At: when they are to run
	Next    time.Time // time of the head of the store queue; zero: it is empty
	Claims  int       // number of all claimed tasks in the slot, of any process, these included
	Now     time.Time // Redis's clock, to the microsecond
	Err     error     // the outcome is unknown; claims may still have been made, and will expire
}

// Claim moves due tasks to the prepare queues of their slots: tasks whose time is at most Redis's clock +
// Ahead.
func (s *Slots) Claim(ctx context.Context, list []ClaimRequest) []ClaimResult {
	runs := newRuns(claimScript, len(list), 0)
	for i := range list {
		c := &list[i]
		keys := s.keys.of(c.Slot)
		left := max(c.Limit, 0)
		for {
			limit := min(left, perRun)
			runs.begin(i, &keys.store, &keys.prepare)
			runs.number(int64(limit))
			runs.number(c.Ahead.Microseconds())
			runs.number(c.Visibility.Microseconds())
			runs.number(maxMillis)
			runs.texts(&longMember, &queueTTL)
			runs.number(c.Overdue.Microseconds())
			if left -= limit; left == 0 {
				break
			}
		}
	}
	s.exec(ctx, runs)

	answers := make([]ClaimResult, len(list))
	for i := range runs.list {
		run := &runs.list[i]
		c := &answers[run.index]
		if run.err != nil {
			c.Err = cmp.Or(c.Err, s.wrapError("claim", list[run.index].Slot, run.err))
			continue
		}
		c.Members = appendMembers(c.Members, run.reply[0])
		if now := parseTime(run.reply[3], run.reply[4]); !now.Before(c.Now) {
			c.Next, c.Now = parseAt(run.reply[1]), now
			c.Claims, _ = strconv.Atoi(run.reply[2])
		}
	}
	for i := range answers {
		if c := &answers[i]; !c.Now.IsZero() {
			c.Err = nil // one of several runs succeeded; the next call claims what the others would have claimed
		}
	}
	return answers
}

// SettleRequest reports the outcomes of a slot's tasks.
type SettleRequest struct {
	Slot Slot
	Done []uint64 // finished; they leave the dead queue, too
	Dead []Member // finished as dead; At: time of death
	Back []Member // run again at At, with these Attempts
	// GiveBack: claims that end without an outcome. The tasks go back with this At and these Attempts. Tasks that are not
	// claimed any more do not change.
	GiveBack []Member
}

// SettleResult is the result of a SettleRequest.
type SettleResult struct {
	GivenBack int // of GiveBack, how many were claimed
	Err       error
}

// Settle ends claims. Finished tasks leave the slot. Tasks that are to run again leave the dead queue and go
// into the store queue. Except for GiveBack, all of this holds whether or not the tasks were claimed. Settle publishes a
// wake-up for each slot whose head became earlier.
func (s *Slots) Settle(ctx context.Context, list []SettleRequest) []SettleResult {
	members := 0
	for i := range list {
		members += len(list[i].Done) + len(list[i].Dead) + len(list[i].Back) + len(list[i].GiveBack)
	}
	runs := newRuns(settleScript, len(list), members)
	for i := range list {
		keys := s.keys.of(list[i].Slot)
		rest := list[i]
		for len(rest.Done)+len(rest.Dead)+len(rest.Back)+len(rest.GiveBack) > 0 {
			space := perRun
			done := takeFront(&rest.Done, &space)
			dead := takeFront(&rest.Dead, &space)
			back := takeFront(&rest.Back, &space)
			given := takeFront(&rest.GiveBack, &space)
			runs.begin(i, &keys.store, &keys.prepare, &keys.dead)
			runs.texts(&s.wakeChannel, &keys.partition, &keys.topic)
			runs.number(int64(len(done)))
			runs.number(int64(len(dead)))
			runs.number(int64(len(back)))
			runs.texts(&queueTTL, &deadTTL, &maxDead, &longMember)
			runs.ids(done)
			for k := range dead {
				runs.number(millis(dead[k].At))
				runs.args = append(runs.args, &dead[k].JobID)
			}
			runs.members(back)
			runs.members(given)
		}
	}
	s.exec(ctx, runs)

	answers := make([]SettleResult, len(list))
	for i := range runs.list {
		run := &runs.list[i]
		a := &answers[run.index]
		if run.err != nil {
			a.Err = cmp.Or(a.Err, s.wrapError("settle", list[run.index].Slot, run.err))
			continue
		}
		given, _ := strconv.Atoi(run.reply[0])
		a.GivenBack += given
	}
	return answers
}

// takeFront takes as many elements from the front of a list as there is space for.
func takeFront[T any](list *[]T, space *int) []T {
	n := min(len(*list), *space)
	front := (*list)[:n]
	*list = (*list)[n:]
	*space -= n
	return front
}

// Prepared returns a page of a slot's claims, the first to expire first. At is the time of expiry.
func (s *Slots) Prepared(ctx context.Context, slot Slot, offset, limit int) ([]Member, error) {
	if limit <= 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	claims, err := s.client.ZRangeWithScores(ctx, s.PrepareKey(slot), int64(offset), int64(offset+limit-1)).Result()
	if err != nil {
		return nil, s.wrapError("list the claims of", slot, err)
	}
	members := make([]Member, 0, len(claims))
	for _, c := range claims {
		text, _ := c.Member.(string)
		jobID, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			continue // added by hand
		}
		m := Member{JobID: jobID}
		m.At, m.Attempts = splitScore(wholeScore(c.Score))
		members = append(members, m)
	}
	return members, nil
}
