// Package slots is what the redis engine does in Redis: a slot is three sorted sets
// and a marker, and each act on it is one atomic script in lua/.
//
// Ids of tasks with their times come in; what is due goes out as claims, which are
// settled, released or recovered later. It knows Redis, and no task store.
package slots

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Slots works on the slots of one Redis: one pipeline for the acts on many slots. A call for many slots answers each of them
// in its place and with its own error: of a cluster of which one master is down,
// the others serve.
//
// Redis is an index that may be lost at any time.
// All methods may be called from many goroutines, also for one slot.
type Slots struct {
	client      redis.UniversalClient
	keys        keyring
	wakeChannel string
	Timeout     time.Duration          // bounds each call; 0: only its context does
	claimScript atomic.Pointer[script] // claim.lua as nobody else sends it: a server that lacks it is new to us
	StoreID     func() string          // "": not known yet
}

// New makes the slots of a Redis server, a Sentinel group or a cluster. The
// prefix stands before each topic in the names of the keys; it must not have
// braces. The client remains the caller's, to close.
func New(client redis.UniversalClient, prefix string) *Slots {
	s := &Slots{
		client:      client,
		keys:        keyring{prefix: prefix, slots: make(map[Slot]*slotKeys)},
		wakeChannel: prefix + "toc:wake",
		StoreID:     func() string { return "" },
	}
	s.claimScript.Store(newClaimScript())
	return s
}

func newClaimScript() *script { return newScript(claimText+"-- "+rand.Text()+"\n", 6, true) }

// Rename makes every server new to us but the one that is asked now: the server before
// it may come back, and lack what was written meanwhile.
func (s *Slots) ForgetServers() {
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	if sc := newClaimScript(); s.client.ScriptLoad(ctx, sc.text).Err() == nil {
		s.claimScript.Store(sc)
	}
}

// UnknownStore is the id of a store that is not known yet: it may be anybody's.
const UnknownStore = "-"

// Store is the id of our task store, as markers have it.
func (s *Slots) Store() string { return cmp.Or(s.StoreID(), UnknownStore) }

// Marking is a change of a slot's marker.
type MarkRequest struct {
	Slot   Slot
	Expect string // the marker that must be there; "": any but another store's, or none
	Value  string
	TTL    time.Duration
}

// Marked is how a Marking went.
type MarkResult struct {
	Set bool // false: another marker is there, or none that had to be
	Err error
}

// Mark changes the markers of slots.
func (s *Slots) Mark(ctx context.Context, list []MarkRequest) []MarkResult {
	runs := newRuns(markScript, len(list), 0)
	store := s.Store()
	for i := range list {
		m := &list[i]
		runs.begin(i, &s.keys.of(m.Slot).marker)
		runs.texts(&m.Expect, &store, &m.Value)
		runs.number(m.TTL.Milliseconds())
	}
	s.exec(ctx, runs)

	answers := make([]MarkResult, len(list))
	for i := range runs.list {
		run := &runs.list[i]
		if a := &answers[run.index]; run.err != nil {
			a.Err = s.wrapError("mark", list[run.index].Slot, run.err)
		} else {
			a.Set = run.reply[0] == "1"
		}
	}
	return answers
}

// Marker is the marker of a slot; "": it has none.
func (s *Slots) Marker(ctx context.Context, slot Slot) (string, error) {
	texts, err := s.Markers(ctx, []Slot{slot})
	if err != nil {
		return "", err
	}
	return texts[0], nil
}

// Markers reads the markers of many slots; "": a slot has none.
func (s *Slots) Markers(ctx context.Context, list []Slot) ([]string, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	texts := make([]string, len(list))
	cmds := make([]*redis.StringCmd, len(list))
	_, _ = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, slot := range list {
			cmds[i] = pipe.Get(ctx, s.MarkerKey(slot))
		}
		return nil
	})
	for i, cmd := range cmds {
		text, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, s.wrapError("read the marker of", list[i], err)
		}
		texts[i] = text
	}
	return texts, nil
}

// Drop removes slots, but for their dead queues. The marker goes first, so that a
// slot that is half dropped is known as lost.
func (s *Slots) Drop(ctx context.Context, slots []Slot) []error {
	return s.each(ctx, "drop", slots, func(pipe redis.Pipeliner, keys *slotKeys) {
		pipe.Unlink(ctx, keys.marker)
		pipe.Unlink(ctx, keys.store)
		pipe.Unlink(ctx, keys.prepare)
	})
}

// each sends the same commands for every slot in one pipeline.
func (s *Slots) each(ctx context.Context, act string, slots []Slot, commands func(redis.Pipeliner, *slotKeys)) []error {
	errs := make([]error, len(slots))
	if len(slots) == 0 {
		return errs
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	pipe := s.client.Pipeline()
	for _, slot := range slots {
		commands(pipe, s.keys.of(slot))
	}
	cmds, _ := pipe.Exec(ctx) // each command has its own error
	perSlot := len(cmds) / len(slots)
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			slot := i / perSlot
			errs[slot] = cmp.Or(errs[slot], s.wrapError(act, slots[slot], err))
		}
	}
	return errs
}

// errors is what went wrong, per element of the caller's list.
func (s *Slots) errors(act string, runs *runs, n int, slot func(int) Slot) []error {
	errs := make([]error, n)
	for i := range runs.list {
		if run := &runs.list[i]; run.err != nil {
			errs[run.index] = cmp.Or(errs[run.index], s.wrapError(act, slot(run.index), run.err))
		}
	}
	return errs
}

func (s *Slots) wrapError(act string, slot Slot, err error) error {
	return fmt.Errorf("%s slot %s: %w", act, s.StoreKey(slot), err)
}

// Memory is what a server says of its memory.
type Memory struct {
	Policy    string // maxmemory-policy; "": the user may not know it
	Used, Max int64  // bytes; Max 0: no limit, or it may not be known
}

// Evicts tells whether a server may throw away what we keep there.
func (m Memory) Evicts() bool { return m.Policy != "" && m.Policy != "noeviction" }

// IsFull tells whether a server refuses what needs memory.
func (m Memory) IsFull() bool { return m.Max > 0 && m.Used >= m.Max && !m.Evicts() }

// Memories asks the servers. all: each of them has told all of it.
func (s *Slots) Memories(ctx context.Context) (list []Memory, all bool) {
	var mu sync.Mutex
	all = true
	ask := func(ctx context.Context, server redis.Cmdable) error {
		m, whole, err := memory(ctx, server)
		mu.Lock()
		defer mu.Unlock()
		if all = all && whole; err == nil {
			list = append(list, m)
		}
		return nil
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return ask(ctx, master) })
		all = all && err == nil
	} else {
		_ = ask(ctx, s.client)
	}
	return list, all
}

func memory(ctx context.Context, server redis.Cmdable) (m Memory, whole bool, err error) {
	info, err := server.InfoMap(ctx, "memory").Result()
	if err == nil {
		facts := info["Memory"]
		m.Policy = facts["maxmemory_policy"]
		m.Used, _ = strconv.ParseInt(facts["used_memory"], 10, 64)
		m.Max, _ = strconv.ParseInt(facts["maxmemory"], 10, 64)
		return m, true, nil
	}
	config, err := server.ConfigGet(ctx, "maxmemory-policy").Result() // some may use this, and not INFO
	m.Policy = config["maxmemory-policy"]
	return m, false, err
}

// Hear calls f for every wake-up of any slot until ctx ends, whose error it
// returns; at is when the slot's head is due now. It hears them by the server of the slot via, nil: any. f is
// called by one goroutine and must be quick; so must be begun, which is called whenever it is subscribed, for the
// first time or again. After a lost connection the client subscribes again by itself; what is published meanwhile is lost.
func (s *Slots) Listen(ctx context.Context, via *Slot, f func(slot Slot, at time.Time), begun func()) error {
	subscribe := s.client.Subscribe
	if cluster, ok := s.client.(*redis.ClusterClient); ok && via != nil {
		master, err := cluster.MasterForKey(ctx, s.StoreKey(*via))
		if err != nil {
			return fmt.Errorf("hear wake-ups: %w", err)
		}
		subscribe = master.Subscribe
	}
	sub := subscribe(ctx, s.wakeChannel)
	messages := sub.ChannelWithSubscriptions(redis.WithChannelSize(1000))
	defer func() {
		_ = sub.Close()
		for range messages { // until its goroutine is gone
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, ok := <-messages:
			if !ok {
				return redis.ErrClosed
			}
			switch m := m.(type) {
			case *redis.Subscription:
				begun()
			case *redis.Message:
				if slot, at, ok := parseWake(m.Payload); ok {
					f(slot, at)
				}
			}
		}
	}
}
