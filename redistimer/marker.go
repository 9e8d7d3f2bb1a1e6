package redistimer

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
)

// marker is the lease of a slot in Redis: its owner serves it, and has armed all that
// is due up to a time. The owner renews it while it looks at the slot, so what was
// not served for a while has none, and is filled again.
//
// It is stored as "toc/2 <store> <layout> <state> <owner> <milliseconds>", and slots/lua/
// reads the store's id. If you change that, count the 2 up, here and there: a marker
// of another version is neither believed nor anybody else's.
type marker struct {
	store   string // id of the task store; UnknownStore
	layout  string // "<databases>x<tables>x<partitions>"
	state   string
	owner   string    // process
	covered time.Time // all that is due until then is in the slot
}

// States of a slot that has a marker.
const (
	stateFilling = "filling" // its owner fills it
	stateServing = "serving" // it is complete, and served
	stateHanded  = "handed"  // it is complete, and its owner has just handed it over
)

const (
	markerVersion = "toc/2"
)

const (
	// markerLasts is how long a slot without an owner looks served. It is some times
	// poll, in which a slot is looked at.
	markerTTL = 15 * time.Second
	// handedLasts is how long the next owner may take to believe the one before. What
	// is longer may hide a time in which nobody armed.
	handedTTL = 2 * time.Second
	// renewEach is how often a marker is renewed.
	renewEvery = 3 * time.Second
)

func (m *marker) String() string {
	return strings.Join([]string{markerVersion, m.store, m.layout, m.state, m.owner, strconv.FormatInt(m.covered.UnixMilli(), 10)}, " ")
}

func parseMarker(text string) (m marker, ok bool) {
	words := strings.Split(text, " ")
	if len(words) != 6 || words[0] != markerVersion {
		return marker{}, false
	}
	ms, err := strconv.ParseInt(words[5], 10, 64)
	if err != nil {
		return marker{}, false
	}
	return marker{store: words[1], layout: words[2], state: words[3], owner: words[4], covered: time.UnixMilli(ms).UTC()}, true
}

// isStranger tells whether a marker is of another store than ours.
func (m *marker) isForeign(ours string) bool {
	return m.store != ours && m.store != slots.UnknownStore && ours != slots.UnknownStore
}

// processName names this process in markers, for operators, too.
func processName() string {
	host, _ := os.Hostname()
	host = strings.Join(strings.Fields(host), "_")
	return fmt.Sprintf("%s:%d:%s", cmp.Or(host, "host"), os.Getpid(), rand.Text()[:8])
}

func layoutName(l sharding.Layout) string {
	return fmt.Sprintf("%dx%dx%d", l.Databases, l.TablesPerDatabase, l.Partitions)
}

// marker is ours in a state.
func (t *Timer) newMarker(state string, covered time.Time) string {
	m := marker{t.slots.Store(), layoutName(t.cfg.Layout), state, t.name, covered}
	return m.String()
}

// believes tells whether a slot that has this marker has all tasks that are due up to
// the marker's time. The marker is our own, or its owner has just handed the slot over.
func (t *Timer) trustsMarker(s *slotState, text string) (m marker, ok bool) {
	t.mu.Lock()
	own := text == s.marker && !s.covered.IsZero()
	t.mu.Unlock()
	m, ok = parseMarker(text)
	return m, ok && (own || m.state == stateHanded &&
		m.store == t.slots.Store() && m.store != slots.UnknownStore && m.layout == layoutName(t.cfg.Layout))
}

// mark sets the marker of a slot that we fill or have filled: over the one that we set
// last, or over any but a stranger's.
func (t *Timer) mark(ctx context.Context, s *slotState, over, value string) error {
	got := t.slots.Mark(ctx, []slots.MarkRequest{{Slot: s.slot, Expect: over, Value: value, TTL: markerTTL}})[0]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordWrite(s.server, got.Err)
	if got.Err != nil {
		return got.Err
	}
	if !got.Set {
		return errLostAgain
	}
	s.marker, s.markerRenewed = value, t.cfg.Now()
	return nil
}

// renewal is for how long the marker of a slot is renewed now, and its queues with it; 0: that need not be.
// The lock is held.
func (s *slotState) renewFor(now time.Time) time.Duration {
	each := renewEvery
	if s.marker == "" {
		each = quietRenew
	}
	if now.Sub(s.markerRenewed) < each {
		return 0
	}
	return markerTTL
}

// looked learns from an answer of Redis how a slot stands, before its new head is noted. The lock is held.
func (t *Timer) applyMarker(l *bizTimer, s *slotState, asked slots.ClaimRequest, a *slots.ClaimResult, now time.Time) {
	if asked.Renew > 0 && a.Marker == asked.Marker {
		s.markerRenewed = now
	}
	if !s.answered {
		s.answered, s.group.needsRepair = true, true
		signal(t.repairNeeded)
	}
	m, ok := parseMarker(a.Marker)
	switch foreign := ok && m.isForeign(t.slots.Store()); {
	case foreign && !s.foreign:
		s.foreign, s.marker, s.covered, s.repairReason, s.vanishedHead = true, "", time.Time{}, "", time.Time{}
		signal(t.fallbacks) // the scan engine serves it from now on
		if now.Sub(t.foreignLogged) > time.Minute {
			t.foreignLogged = now
			t.cfg.Logger.Error("another center has these slots in Redis; ours are scanned. Give each center its own redis.prefix",
				"biz_type", l.Name, "key", t.slots.MarkerKey(s.slot), "store", m.store, "process", m.owner)
		}
		return
	case foreign:
		return
	case s.foreign:
		s.foreign = false
		s.markLost()
		signal(t.repairNeeded)
	case a.Marker == "" && asked.Marker != "" && s.repairReason != ReasonLost && !s.covered.IsZero():
		t.markTypeLost(l, s)
	}
	switch gone := s.displacedHeadVanished(a); {
	case s.covered.IsZero() || !s.vanishedHead.IsZero():
	case gone != (time.Time{}):
		s.vanishedHead, s.group.needsRepair = gone, true
	case headVanished(s, a):
		s.vanishedHead, s.group.needsRepair = s.head, true
	}
}

// parkedVanished tells when the task was due that was the head before an earlier one came, if it is gone and was not
// claimed. That shows once nothing earlier is there.
func (s *slotState) displacedHeadVanished(a *slots.ClaimResult) time.Time {
	parked := s.displacedHead
	if parked.IsZero() || !a.Next.IsZero() && a.Next.Before(parked) {
		return time.Time{}
	}
	s.displacedHead = time.Time{}
	isIt := func(m slots.Member) bool { return m.At.Equal(parked) }
	if a.Next.Equal(parked) || slices.ContainsFunc(a.Members, isIt) {
		return time.Time{}
	}
	return parked
}

// headVanished tells whether the task that was next to run is not in a slot any more,
// and was not claimed. It may be cancelled or moved; or Redis has evicted the queue.
func headVanished(s *slotState, a *slots.ClaimResult) bool {
	head := s.head
	if head.IsZero() || !s.announcedHead.IsZero() || len(a.Members) > 0 && !a.Members[0].At.After(head) {
		return false
	}
	return a.Next.IsZero() || a.Next.After(head)
}

// noticeNew finds out that a server does not know us any more: it was started again, or
// is another one, and may lack what was written last, although its slots have their
// markers. The lock is held.
func (t *Timer) detectRestart(srv *server, answers []slots.ClaimResult) {
	if !slices.ContainsFunc(answers, func(a slots.ClaimResult) bool { return a.NewServer }) {
		return
	}
	known := false // or it is asked for the first time
	for _, g := range srv.groups {
		for _, s := range g.slots {
			if s.answered {
				known = true
				s.markLost()
			}
		}
	}
	if known {
		t.cfg.Logger.Warn("Redis was restarted or replaced, or forgot its scripts: its slots are armed again from the store", "server", srv.addr)
		signal(t.repairNeeded)
		if srv.addr == "" {
			t.background.Go(t.slots.ForgetServers)
		}
	}
}

// handOver leaves a partition's slots to their next owner as complete, those that are.
// The partition is not ours any more.
func (t *Timer) handOver(ctx context.Context, partition int) {
	var list, quiet []slots.MarkRequest
	var at, quietAt []*server // of list and quiet
	t.mu.Lock()
	until := t.cfg.Now()
	for _, l := range t.bizTimers {
		s := &l.slots[partition]
		if s.covered.IsZero() || s.repairReason != "" || s.unarmed || t.cfg.Ownership.Term(partition) != 0 {
			continue
		}
		covered := s.covered
		if most := l.coverUntil(until); covered.After(most) {
			covered = most
		}
		m := slots.MarkRequest{Slot: s.slot, Expect: s.marker, Value: t.newMarker(stateHanded, covered), TTL: handedTTL}
		if s.marker != "" {
			list, at = append(list, m), append(at, s.server)
		} else {
			quiet, quietAt = append(quiet, m), append(quietAt, s.server)
		}
		s.marker, s.covered = "", time.Time{}
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	// What cannot be marked is filled by the next owner. Whether Redis has lost the quiet ones only the others can tell.
	intact := make(map[*server]bool)
	for i, a := range t.slots.Mark(ctx, list) {
		was, seen := intact[at[i]]
		intact[at[i]] = a.Set && (was || !seen)
	}
	var sure []slots.MarkRequest
	for i := range quiet {
		if intact[quietAt[i]] {
			sure = append(sure, quiet[i])
		}
	}
	t.slots.Mark(ctx, sure)
}

// handOverPatience is how long the next owner of a partition waits for a Redis that
// does not answer.
const handOverTimeout = 500 * time.Millisecond
