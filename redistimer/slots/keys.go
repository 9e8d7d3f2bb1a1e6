package slots

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Slot is one topic's tasks of one partition: a store queue, a prepare queue, a
// dead queue and a marker in Redis.
type Slot struct {
	Topic     string
	Partition int
}

// slotKeys is the names of a slot's keys, and its parts as scripts take them.
// Commands point into it, so that no call spells a name again.
type slotKeys struct {
	store, prepare, dead, marker string
	partition, topic             string
}

// newSlotKeys names a slot's keys. The store queue's name is the hash tag of the
// others, so the four lie on one node of a cluster, in reach of one script; for
// that the prefix must not have braces.
//
// The names are stored in Redis and known to operators. If you change them, the
// slots of before are dead weight: drain them first.
func newSlotKeys(prefix string, slot Slot) *slotKeys {
	partition := strconv.Itoa(slot.Partition)
	store := prefix + slot.Topic + "_" + partition
	return &slotKeys{
		store:     store,
		prepare:   "prepare_{" + store + "}",
		dead:      "dead_{" + store + "}",
		marker:    "marker_{" + store + "}",
		partition: partition,
		topic:     slot.Topic,
	}
}

// keyring keeps the names of all slots that were asked for.
type keyring struct {
	prefix string
	mu     sync.RWMutex
	slots  map[Slot]*slotKeys
}

func (r *keyring) of(slot Slot) *slotKeys {
	r.mu.RLock()
	keys := r.slots[slot]
	r.mu.RUnlock()
	if keys != nil {
		return keys
	}
	keys = newSlotKeys(r.prefix, slot)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots[slot] = keys
	return keys
}

// StoreKey is the sorted set of the slot's tasks that wait for their time:
// "<prefix><topic>_<partition>".
func (s *Slots) StoreKey(slot Slot) string { return s.keys.of(slot).store }

// PrepareKey is the sorted set of the slot's claimed tasks.
func (s *Slots) PrepareKey(slot Slot) string { return s.keys.of(slot).prepare }

// DeadKey is the sorted set of the slot's dead tasks, by the time of their death
// in milliseconds.
func (s *Slots) DeadKey(slot Slot) string { return s.keys.of(slot).dead }

// MarkerKey is the string by which a slot is known to be complete: Redis lost
// the slot if it lost that.
func (s *Slots) MarkerKey(slot Slot) string { return s.keys.of(slot).marker }

// TryWrite writes something that is of no account on the server of a slot.
func (s *Slots) TryWrite(ctx context.Context, slot Slot) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.client.Set(ctx, s.MarkerKey(slot)+"_tried", "1", time.Minute).Err()
}

// WakeChannel is where scripts publish that a slot's head became earlier.
func (s *Slots) WakeChannel() string { return s.wakeChannel }

// parseWake reads what the scripts publish: "<partition> <ms> <topic>".
func parseWake(payload string) (slot Slot, at time.Time, ok bool) {
	first, rest, _ := strings.Cut(payload, " ")
	second, topic, ok := strings.Cut(rest, " ")
	partition, err := strconv.Atoi(first)
	ms, err2 := strconv.ParseInt(second, 10, 64)
	if !ok || err != nil || err2 != nil || topic == "" {
		return Slot{}, time.Time{}, false
	}
	return Slot{Topic: topic, Partition: partition}, time.UnixMilli(ms).UTC(), true
}
