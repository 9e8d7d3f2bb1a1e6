package slots_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/redistimer/slots"
)

func newSlots(t testing.TB, prefix string) *slots.Slots {
	return slots.New(dial(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}), prefix) // nothing is sent
}

// try.lua calls each command of the scripts, so a right that one of them lacks shows.
func TestATryCallsEachCommand(t *testing.T) {
	t.Parallel()
	commands := func(path string) map[string]bool {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found := make(map[string]bool)
		for _, match := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = true
		}
		return found
	}
	tried := commands("lua/try.lua")
	paths, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	for _, path := range paths {
		for command := range commands(path) {
			require.True(t, tried[command], "%s calls %s, and try.lua does not", path, command)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefix                             string
		slot                               slots.Slot
		store, prepare, dead, center, wake string
	}{
		{"", slots.Slot{Topic: "order_close", Partition: 0},
			"order_close_0", "prepare_{order_close_0}", "dead_{order_close_0}", "toc:center{3}", "toc:wake"},
		{"shop:", slots.Slot{Topic: "order.close:v2-x", Partition: 8191},
			"shop:order.close:v2-x_8191", "prepare_{shop:order.close:v2-x_8191}", "dead_{shop:order.close:v2-x_8191}", "shop:toc:center{3}", "shop:toc:wake"},
	} {
		s := newSlots(t, c.prefix)
		for range 2 { // built, then cached
			require.Equal(t, c.store, s.StoreKey(c.slot))
			require.Equal(t, c.prepare, s.PrepareKey(c.slot))
			require.Equal(t, c.dead, s.DeadKey(c.slot))
			require.Equal(t, c.center, s.CenterKey(3))
			require.Equal(t, c.wake, s.WakeChannel())
		}
	}
}

// Different slots never share a key, and a slot's hash tag is its store key.
func TestKeysAreTheSlotsOwn(t *testing.T) {
	t.Parallel()
	s := newSlots(t, "p:")
	slot := rapid.Custom(func(t *rapid.T) slots.Slot {
		return slots.Slot{Topic: rapid.StringMatching(`[a-z0-9_.:-]{1,4}`).Draw(t, "topic"), Partition: rapid.IntRange(0, 20).Draw(t, "partition")}
	})
	keys := func(slot slots.Slot) []string {
		return []string{s.StoreKey(slot), s.PrepareKey(slot), s.DeadKey(slot)}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := slot.Draw(t, "a"), slot.Draw(t, "b")
		all := append(keys(a), s.WakeChannel())
		if a != b {
			all = append(all, keys(b)...)
		}
		seen := make(map[string]bool)
		for _, key := range all {
			require.False(t, seen[key], "%s is the key of two things", key)
			seen[key] = true
		}
		for _, key := range keys(a) {
			require.Equal(t, s.StoreKey(a), hashTag(key))
		}
	})
}

// hashTag is the part of a key that a cluster hashes, by its specification.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
