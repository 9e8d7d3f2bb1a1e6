package redistimer

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/redistimer/slots"
	"github.com/timeoutcenter/toc/sharding"
)

// marker is the lease of a slot in Redis. It says that its owner serves the slot and has armed all tasks that
// are due up to a time. The owner renews it at its polls. So a slot that was not served for a while has none,
// and is filled again.
//
// It is stored as "toc/2 <store> <layout> <state> <owner> <milliseconds>", and slots/lua/ reads the store's id.
// If you change the format, increment the 2 here and there. A marker of another version is not trusted, and
// does not count as another store's.
type marker struct {
	store   string // id of the task store, or UnknownStore
	layout  string // "<databases>x<tables>x<partitions>"
	state   string
	owner   string    // name of the owner's process
	covered time.Time // all tasks that are due until then are in the slot
}

// States of a marker.
const (
	stateFilling = "filling" // the owner is filling the slot
	stateServing = "serving" // the slot is complete and served
	stateHanded  = "handed"  // the slot is complete, and its owner has just handed it over
)

const (
	markerVersion = "toc/2"
)

const (
	// markerTTL is how long a slot without an owner looks served. It is several times pollEvery.
	markerTTL = 15 * time.Second
	// handedTTL is how long the next owner may trust the marker of the previous one. In a longer time tasks may
	// have been stored without being armed.
	handedTTL = 2 * time.Second
	// renewEvery is the interval at which a marker is renewed.
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

// isForeign reports whether a marker belongs to another store than ours.
func (m *marker) isForeign(ours string) bool {
	return m.store != ours && m.store != slots.UnknownStore && ours != slots.UnknownStore
}

// processName names this process in markers, also for operators.
func processName() string {
	host, _ := os.Hostname()
	host = strings.Join(strings.Fields(host), "_")
	return fmt.Sprintf("%s:%d:%s", cmp.Or(host, "host"), os.Getpid(), rand.Text()[:8])
}

func layoutName(layout sharding.Layout) string {
	return fmt.Sprintf("%dx%dx%d", layout.Databases, layout.TablesPerDatabase, layout.Partitions)
}

// newMarker returns a marker of this process.
func (t *Timer) newMarker(state string, covered time.Time) string {
	m := marker{t.slots.Store(), layoutName(t.cfg.Layout), state, t.name, covered}
	return m.String()
}

// trustsMarker reports whether a slot with this marker has all tasks that are due up to the marker's time. The
// marker must be our own, or its owner must just have handed the slot over.
func (t *Timer) trustsMarker(s *slotState, text string) (m marker, ok bool) {
	t.mu.Lock()
	own := text == s.marker && !s.covered.IsZero()
	t.mu.Unlock()
	m, ok = parseMarker(text)
	return m, ok && (own || m.state == stateHanded &&
		m.store == t.slots.Store() && m.store != slots.UnknownStore && m.layout == layoutName(t.cfg.Layout))
}

// mark sets the marker of a slot that this node fills or has filled. expect is the marker that it replaces; "":
// any but that of another store.
func (t *Timer) mark(ctx context.Context, s *slotState, expect, value string) error {
	got := t.slots.Mark(ctx, []slots.MarkRequest{{Slot: s.slot, Expect: expect, Value: value, TTL: t.markerTTL()}})[0]
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

// renewFor is ttl, the new TTL of the slot's marker and queues, or 0: they need not be renewed now. The lock is held.
func (s *slotState) renewFor(now time.Time, ttl time.Duration) time.Duration {
	each := renewEvery
	if s.marker == "" {
		each = quietRenew
	}
	if now.Sub(s.markerRenewed) < each {
		return 0
	}
	return ttl
}

// markerTTL is the TTL of a marker that is polled at the pace of now.
func (t *Timer) markerTTL() time.Duration { return markerTTL + t.pollEvery() - pollEvery }

// applyMarker updates the slot from the marker in an answer of Redis, before the slot's head is updated. The
// lock is held.
func (t *Timer) applyMarker(bt *bizTimer, s *slotState, request slots.ClaimRequest, a *slots.ClaimResult, now time.Time) {
	if request.Renew > 0 && a.Marker == request.Marker {
		s.markerRenewed = now
	}
	if !s.answered {
		s.answered, s.group.needsRepair = true, true
		t.repairNeeded.Set()
	}
	m, ok := parseMarker(a.Marker)
	switch foreign := ok && m.isForeign(t.slots.Store()); {
	case foreign && !s.foreign:
		s.foreign, s.marker, s.covered, s.repairReason, s.vanishedHead = true, "", time.Time{}, "", time.Time{}
		t.fallbacks.Set() // the scan engine serves it from now on
		if now.Sub(t.foreignLogged) > time.Minute {
			t.foreignLogged = now
			t.mu.Log(t.cfg.Logger, slog.LevelError,
				"another center has these slots in Redis; ours are scanned. Give each center its own redis.prefix",
				"biz_type", bt.Name, "key", t.slots.MarkerKey(s.slot), "store", m.store, "process", m.owner)
		}
		return
	case foreign:
		return
	case s.foreign:
		s.foreign = false
		s.markLost()
		t.repairNeeded.Set()
	case a.Marker == "" && request.Marker != "" && s.repairReason != ReasonLost && !s.covered.IsZero():
		t.markTypeLost(bt, s)
	}
	switch missing := s.displacedHeadVanished(a); {
	case s.covered.IsZero() || !s.vanishedHead.IsZero():
	case missing != (time.Time{}):
		s.vanishedHead, s.group.needsRepair = missing, true
	case headVanished(s, a):
		s.vanishedHead, s.group.needsRepair = s.head, true
	}
}

// displacedHeadVanished returns when the displaced head was due, if it is missing in Redis and was not claimed.
// That shows once no earlier task is left.
func (s *slotState) displacedHeadVanished(a *slots.ClaimResult) time.Time {
	displaced := s.displacedHead
	if displaced.IsZero() || !a.Next.IsZero() && a.Next.Before(displaced) {
		return time.Time{}
	}
	s.displacedHead = time.Time{}
	isDisplaced := func(m slots.Member) bool { return m.At.Equal(displaced) }
	if a.Next.Equal(displaced) || slices.ContainsFunc(a.Members, isDisplaced) {
		return time.Time{}
	}
	return displaced
}

// headVanished reports whether the head of the slot is missing in Redis and was not claimed. The task may have
// been cancelled or moved, or Redis has evicted the queue.
func headVanished(s *slotState, a *slots.ClaimResult) bool {
	head := s.head
	if head.IsZero() || !s.announcedHead.IsZero() || len(a.Members) > 0 && !a.Members[0].At.After(head) {
		return false
	}
	return a.Next.IsZero() || a.Next.After(head)
}

// detectRestart checks whether a server was restarted or replaced. Then it may lack the last writes, although
// its slots have their markers. The lock is held.
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
		t.mu.Log(t.cfg.Logger, slog.LevelWarn,
			"Redis was restarted or replaced, or forgot its scripts: its slots are armed again from the store", "server", srv.addr)
		t.repairNeeded.Set()
		if srv.addr == "" {
			t.background.Go(t.slots.ForgetServers)
		}
	}
}

// handOver marks the complete slots of a partition as handed over to the next owner. This node does not own the
// partition any more.
func (t *Timer) handOver(ctx context.Context, partition int) {
	var list, quiet []slots.MarkRequest
	var at, quietAt []*server // by index of list and quiet
	t.mu.Lock()
	until := t.cfg.Now()
	for _, bt := range t.bizTimers {
		s := &bt.slots[partition]
		if s.covered.IsZero() || s.repairReason != "" || s.unarmed || t.cfg.Ownership.Term(partition) != 0 {
			continue
		}
		covered := s.covered
		if most := bt.coverUntil(until); covered.After(most) {
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
	// The next owner fills the slots that cannot be marked. A quiet slot has no marker that would show a loss,
	// so it counts as intact only if all others at its server are.
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

// handOverTimeout is how long a hand-over waits for a Redis that does not answer.
const handOverTimeout = 500 * time.Millisecond
