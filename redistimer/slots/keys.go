package slots

import (
	"context"
	_ "embed" // the script
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Slot is the part of a topic that belongs to one partition. In Redis it has a store queue, a prepare queue and a
// dead queue.
type Slot struct {
	Topic     string
	Partition int
}

// slotKeys has the names of a slot's keys and its parts as scripts take them. Commands point into it, so that
// no call builds a name again.
type slotKeys struct {
	store, prepare, dead string
	partition, topic     string
}

// newSlotKeys names a slot's keys. The store queue's name is the hash tag of the others. So all three are on one
// node of a cluster, and one script can use them. For that the prefix must not contain braces.
//
// The names are stored in Redis and known to operators. If you change them, the old slots are no longer used:
// drain them first.
func newSlotKeys(prefix string, slot Slot) *slotKeys {
	partition := strconv.Itoa(slot.Partition)
	store := prefix + slot.Topic + "_" + partition
	return &slotKeys{
		store:     store,
		prepare:   "prepare_{" + store + "}",
		dead:      "dead_{" + store + "}",
		partition: partition,
		topic:     slot.Topic,
	}
}

// mostNames bounds the cached names, which take about 300 bytes a slot.
const mostNames = 1 << 14

// keyring caches the names of the slots that were used lately.
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
	if len(r.slots) >= mostNames {
		clear(r.slots)
	}
	r.slots[slot] = keys
	return keys
}

// StoreKey is the sorted set of the slot's waiting tasks: "<prefix><topic>_<partition>".
func (s *Slots) StoreKey(slot Slot) string { return s.keys.of(slot).store }

// PrepareKey is the sorted set of the slot's claimed tasks.
func (s *Slots) PrepareKey(slot Slot) string { return s.keys.of(slot).prepare }

// DeadKey is the sorted set of the slot's dead tasks, by the time of death in milliseconds.
func (s *Slots) DeadKey(slot Slot) string { return s.keys.of(slot).dead }

//go:embed lua/try.lua
var tryText string

var tryScript = redis.NewScript(tryText)

// TryWrite calls each command of the scripts on the server of a key, on keys without meaning.
func (s *Slots) TryWrite(ctx context.Context, key string) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return tryScript.Run(ctx, s.client, []string{key + "_try", key + "_tried"}, s.wakeChannel).Err()
}

// TryAll tries the needs of the engine: on the servers of that many partitions each command, and the wake channel. The keys
// that it writes have no meaning, and expire.
func (s *Slots) TryAll(ctx context.Context, partitions int) error {
	for p := range partitions {
		if err := s.TryWrite(ctx, s.PrepareKey(Slot{Topic: "toc-check", Partition: p})); err != nil {
			return err
		}
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	sub := s.client.Subscribe(ctx, s.wakeChannel)
	defer sub.Close()
	if _, err := sub.ReceiveTimeout(ctx, s.Timeout); err != nil {
		return err
	}
	return s.client.Publish(ctx, s.wakeChannel, "").Err()
}

// WakeChannel is the channel on which scripts publish that a slot's head became earlier.
func (s *Slots) WakeChannel() string { return s.wakeChannel }

// parseWake reads a message of the wake channel: "<partition> <ms> <topic>".
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
