package slots

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Arming is tasks that are to be in a slot's store queue.
type ArmRequest struct {
	Slot    Slot
	Members []Member
}

// Armed is how an Arming went.
type ArmResult struct {
	Known int // members that were in the slot already, stored or claimed
	Err   error
}

// Arm puts tasks into the store queues of their slots; for those that are there
// it brings up to date when they run and how often they have failed. A claimed
// task is left alone. In a slot that is another store's nothing is armed. A dead one leaves the dead queue. A wake-up is published
// for each slot whose head became earlier.
func (s *Slots) Arm(ctx context.Context, list []ArmRequest) []ArmResult {
	return s.arm(ctx, list, &armAll)
}

// ArmNew is Arm that leaves alone what is in the store queue: that was armed after
// its commit, and is fresher than rows that were read some time ago.
func (s *Slots) ArmNew(ctx context.Context, list []ArmRequest) []ArmResult {
	return s.arm(ctx, list, &armNew)
}

// ErrForeign is the answer of a slot whose marker names another store.
var ErrForeign = errors.New("another center has the slot; give each its own redis.prefix")

// Queues that nobody uses are gone after a while: those of a topic that was renamed,
// say. The dead queue keeps the newest.
var (
	queueTTL = "86400"  // seconds since its slot was last served
	deadTTL  = "604800" // seconds since the last death
	maxDead  = "10000"
)

// tooLong is a member that makes a sorted set a skiplist (zset-max-listpack-value
// is 64 bytes). No script leaves it there.
var longMember = "listpack" + strings.Repeat(" ", 64)

// How arm.lua takes members that are in the store queue.
var armAll, armNew = "all", "new"

func (s *Slots) arm(ctx context.Context, list []ArmRequest, mode *string) []ArmResult {
	members := 0
	for i := range list {
		members += len(list[i].Members)
	}
	runs := newRuns(armScript, len(list), members)
	store := s.Store()
	for i := range list {
		keys := s.keys.of(list[i].Slot)
		for chunk := range slices.Chunk(list[i].Members, perRun) {
			runs.begin(i, &keys.store, &keys.prepare, &keys.dead, &keys.marker)
			runs.texts(&s.wakeChannel, &keys.partition, &keys.topic, &longMember, mode, &store, &queueTTL)
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
		if known < 0 {
			a.Err = s.wrapError("arm", list[run.index].Slot, ErrForeign)
			continue
		}
		a.Known += known
	}
	return answers
}

// Claiming is a wish for a slot's due tasks.
type ClaimRequest struct {
	Slot       Slot
	Limit      int           // at most so many; 0: only look
	Ahead      time.Duration // claims tasks as much ahead of their time
	Visibility time.Duration // how long the claims last, unless settled
	Marker     string        // the marker that we have set; "": none
	Renew      time.Duration // for so long it is renewed, if it is there still; 0: it is not
}

// Claimed is a slot after a Claiming.
type ClaimResult struct {
	Members []Member  // the claims, earliest first; At: when they were to run
	Next    time.Time // of the head of the store queue; zero: it is empty
	Claims  int       // how many tasks are claimed now, by anyone, these included
	Marker  string    // "": there is none, the slot was lost or nobody serves it
	Now     time.Time // Redis's clock, to the microsecond
	// NewServer: the server does not know these Slots. It was never asked before, or
	// it was started again or replaced, and may lack what was written last.
	NewServer bool
	Err       error // nothing is known, and nothing was claimed that is known of
}

// Claim moves due tasks to the prepare queues of their slots: those whose time is
// not after Redis's clock + Ahead. Of a slot whose marker names another store
// nothing is claimed.
func (s *Slots) Claim(ctx context.Context, list []ClaimRequest) []ClaimResult {
	runs := newRuns(s.claimScript.Load(), len(list), 0)
	store := s.Store()
	for i := range list {
		c := &list[i]
		keys := s.keys.of(c.Slot)
		left := max(c.Limit, 0)
		for {
			limit := min(left, perRun)
			runs.begin(i, &keys.store, &keys.prepare, &keys.marker)
			runs.number(int64(limit))
			runs.number(c.Ahead.Microseconds())
			runs.number(c.Visibility.Microseconds())
			runs.number(maxMillis)
			runs.texts(&longMember, &c.Marker, &store)
			runs.number(c.Renew.Milliseconds())
			runs.texts(&queueTTL)
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
		c.NewServer = c.NewServer || run.isNew
		if run.err != nil {
			c.Err = cmp.Or(c.Err, s.wrapError("claim", list[run.index].Slot, run.err))
			continue
		}
		c.Members = appendMembers(c.Members, run.reply[0])
		if now := parseTime(run.reply[4], run.reply[5]); !now.Before(c.Now) {
			c.Next, c.Marker, c.Now = parseAt(run.reply[1]), run.reply[3], now
			c.Claims, _ = strconv.Atoi(run.reply[2])
		}
	}
	for i := range answers {
		if c := &answers[i]; !c.Now.IsZero() {
			c.Err = nil // of several runs one was made: what the others would have claimed is there for the next call
		}
	}
	return answers
}

// Settling is what became of a slot's tasks.
type SettleRequest struct {
	Slot Slot
	Done []uint64 // are over
	Dead []Member // are over, and known as dead; At: time of death
	Back []Member // are to run again at At, with these Attempts
}

// Settle ends claims: tasks that are over leave the slot, tasks that are to run
// again go into the store queue, and out of the dead queue, whether or not they
// were claimed. A wake-up is published for each slot whose head became earlier.
func (s *Slots) Settle(ctx context.Context, list []SettleRequest) []error {
	members := 0
	for i := range list {
		members += len(list[i].Done) + len(list[i].Dead) + len(list[i].Back)
	}
	runs := newRuns(settleScript, len(list), members)
	for i := range list {
		keys := s.keys.of(list[i].Slot)
		rest := list[i]
		for len(rest.Done)+len(rest.Dead)+len(rest.Back) > 0 {
			space := perRun
			done := takeFront(&rest.Done, &space)
			dead := takeFront(&rest.Dead, &space)
			back := takeFront(&rest.Back, &space)
			runs.begin(i, &keys.store, &keys.prepare, &keys.dead)
			runs.texts(&s.wakeChannel, &keys.partition, &keys.topic)
			runs.number(int64(len(done)))
			runs.number(int64(len(dead)))
			runs.texts(&queueTTL, &deadTTL, &maxDead)
			runs.ids(done)
			for k := range dead {
				runs.number(millis(dead[k].At))
				runs.args = append(runs.args, &dead[k].JobID)
			}
			runs.members(back)
		}
	}
	s.exec(ctx, runs)
	return s.errors("settle", runs, len(list), func(i int) Slot { return list[i].Slot })
}

// cut takes from the front of a list what there is space for.
func takeFront[T any](list *[]T, space *int) []T {
	n := min(len(*list), *space)
	front := (*list)[:n]
	*list = (*list)[n:]
	*space -= n
	return front
}

// Releasing is claims that are to be given back.
type ReleaseRequest struct {
	Slot    Slot
	Members []Member
}

// Release gives claims back: each goes into the store queue with the At and the
// Attempts given. Those that are claimed no more are left alone. A wake-up is
// published for each slot whose head became earlier.
func (s *Slots) Release(ctx context.Context, list []ReleaseRequest) []error {
	members := 0
	for i := range list {
		members += len(list[i].Members)
	}
	runs := newRuns(releaseScript, len(list), members)
	for i := range list {
		keys := s.keys.of(list[i].Slot)
		for chunk := range slices.Chunk(list[i].Members, perRun) {
			runs.begin(i, &keys.store, &keys.prepare)
			runs.texts(&s.wakeChannel, &keys.partition, &keys.topic, &queueTTL)
			runs.members(chunk)
		}
	}
	s.exec(ctx, runs)
	return s.errors("release", runs, len(list), func(i int) Slot { return list[i].Slot })
}

// Recovering is claims that are to be rolled back.
type RecoverRequest struct {
	Slot Slot
	IDs  []uint64
}

// Recovered is how a Recovering went.
type RecoverResult struct {
	Members []Member // as they are in the store queue now
	Err     error    // what was rolled back all the same is not in Members
}

// Recover rolls claims back into the store queue: nobody settled them. Each task is
// due at once and keeps its attempts. What is not claimed is left alone. A wake-up is
// published for each slot whose head became earlier.
func (s *Slots) Recover(ctx context.Context, list []RecoverRequest) []RecoverResult {
	members := 0
	for i := range list {
		members += len(list[i].IDs)
	}
	runs := newRuns(recoverScript, len(list), members)
	for i := range list {
		keys := s.keys.of(list[i].Slot)
		for chunk := range slices.Chunk(list[i].IDs, perRun) {
			runs.begin(i, &keys.store, &keys.prepare)
			runs.texts(&s.wakeChannel, &keys.partition, &keys.topic, &queueTTL)
			runs.ids(chunk)
		}
	}
	s.exec(ctx, runs)

	answers := make([]RecoverResult, len(list))
	for i := range runs.list {
		run := &runs.list[i]
		r := &answers[run.index]
		if run.err != nil {
			r.Err = cmp.Or(r.Err, s.wrapError("recover", list[run.index].Slot, run.err))
			continue
		}
		r.Members = appendMembers(r.Members, run.reply[0])
	}
	return answers
}

// Prepared is a page of a slot's claims, the first to expire first; At: when they
// expire.
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
			continue // somebody's hand
		}
		m := Member{JobID: jobID}
		m.At, m.Attempts = splitScore(wholeScore(c.Score))
		members = append(members, m)
	}
	return members, nil
}
