// Package slots has the operations of the redis engine in Redis. A slot is three sorted sets, and each operation on
// it is one atomic script in lua/.
//
// Ids of tasks come in with their times. Due tasks go out as claims, which the caller settles later. The package uses
// Redis, but not the task store.
package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timeoutcenter/toc/internal/wait"
)

// Slots operates on the slots of one Redis. A call takes many slots and sends them in one pipeline. Each slot
// has its own result and error: if one master of a cluster is down, the slots of the others still work.
//
// Redis is an index that may be lost at any time. All methods may be called concurrently, also for the same
// slot.
type Slots struct {
	client      redis.UniversalClient
	keys        keyring
	wakeChannel string
	Timeout     time.Duration // bounds each call; 0: only its context does
}

// New makes the Slots of a Redis server, a Sentinel group or a cluster. The prefix stands before each topic in
// the names of the keys, and must not contain braces. The caller closes the client.
func New(client redis.UniversalClient, prefix string) *Slots {
	return &Slots{
		client:      client,
		keys:        keyring{prefix: prefix, slots: make(map[Slot]*slotKeys)},
		wakeChannel: prefix + "toc:wake",
	}
}

// UnknownStore is the id of a store whose id is not known yet.
const UnknownStore = "-"

// Drop removes slots, except their dead queues.
func (s *Slots) Drop(ctx context.Context, slots []Slot) []error {
	return s.each(ctx, "drop", slots, func(pipe redis.Pipeliner, keys *slotKeys) {
		pipe.Unlink(ctx, keys.store)
		pipe.Unlink(ctx, keys.prepare)
	})
}

// PurgeDead removes from the dead queues of slots what died before a time.
func (s *Slots) PurgeDead(ctx context.Context, slots []Slot, before time.Time) []error {
	until := "(" + strconv.FormatInt(before.UnixMilli(), 10)
	return s.each(ctx, "purge the dead queue of", slots, func(pipe redis.Pipeliner, keys *slotKeys) {
		pipe.ZRemRangeByScore(ctx, keys.dead, "-inf", until)
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

func (s *Slots) wrapError(act string, slot Slot, err error) error {
	return fmt.Errorf("%s slot %s: %w", act, s.StoreKey(slot), err)
}

// Memory is the memory state of a server.
type Memory struct {
	Policy    string // maxmemory-policy; "": the user may not read it
	Used, Max int64  // bytes; Max 0: no limit, or the user may not read it
}

// Evicts reports whether a server may evict keys of ours.
func (m Memory) Evicts() bool { return m.Policy != "" && m.Policy != "noeviction" }

// IsFull reports whether a server refuses commands that need memory.
func (m Memory) IsFull() bool { return m.Max > 0 && m.Used >= m.Max && !m.Evicts() }

// Memories asks all servers. all reports whether each of them gave complete information.
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
	config, err := server.ConfigGet(ctx, "maxmemory-policy").Result() // some users may call this, but not INFO
	m.Policy = config["maxmemory-policy"]
	return m, false, err
}

// Listen calls f for every wake-up of any slot until ctx ends, and returns ctx's error. at is the time of the
// slot's new head. It subscribes at the server with an address; "": at any server. It calls begun after each
// subscription. One goroutine makes all calls, so f and begun must be quick. After a lost connection the client
// subscribes again; wake-ups in between are lost.
func (s *Slots) Listen(ctx context.Context, addr string, f func(slot Slot, at time.Time), begun func()) error {
	subscribe := s.client.Subscribe
	if cluster, ok := s.client.(*redis.ClusterClient); ok && addr != "" {
		tag, _ := s.TagAt(addr, 0)
		master, err := cluster.MasterForKey(ctx, s.CenterKey(tag))
		if err != nil {
			return fmt.Errorf("hear wake-ups: %w", err)
		}
		subscribe = master.Subscribe
	}
	sub := subscribe(ctx, s.wakeChannel)
	pingEvery, _ := wait.Slowed(ctx, 3*time.Second)
	messages := sub.ChannelWithSubscriptions(redis.WithChannelSize(1000), redis.WithChannelHealthCheckInterval(pingEvery))
	defer func() {
		_ = sub.Close()
		for range messages { // until its goroutine has ended
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

// Find returns when a task is to run that is in the store queue of its slot, and whether it is claimed. Without either the
// slot lacks it.
func (s *Slots) Find(ctx context.Context, slot Slot, jobID uint64) (at time.Time, claimed bool, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	pipe, id := s.client.Pipeline(), strconv.FormatUint(jobID, 10)
	store, prepare := pipe.ZScore(ctx, s.StoreKey(slot), id), pipe.ZScore(ctx, s.PrepareKey(slot), id)
	_, _ = pipe.Exec(ctx)
	if store.Err() == nil {
		at, _ = splitScore(wholeScore(store.Val()))
	}
	for _, cmd := range []*redis.FloatCmd{store, prepare} {
		if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
			return at, false, s.wrapError("read", slot, cmd.Err())
		}
	}
	return at, prepare.Err() == nil, nil
}

// scoreText is the least score of a time.
func scoreText(at time.Time) string { return strconv.FormatInt(millis(at)*1000, 10) }
