package redistimer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Slots is what is done to slots in Redis: one atomic script per act, one
// pipeline for the acts of many slots. A call for many slots answers each of them
// in its place and with its own error: of a cluster of which one master is down,
// the others serve.
//
// Redis is an index that may be lost at any time; nothing here knows the store.
// All methods may be called from many goroutines, also for one slot.
type Slots struct {
	client redis.UniversalClient
	keys   keyring
	wake   string
}

// NewSlots makes the slots of a Redis server, a Sentinel group or a cluster. The
// prefix stands before each topic in the names of the keys; it must not have
// braces. The client remains the caller's, to close.
func NewSlots(client redis.UniversalClient, prefix string) *Slots {
	return &Slots{
		client: client,
		keys:   keyring{prefix: prefix, slots: make(map[Slot]*slotKeys)},
		wake:   prefix + "toc:wake",
	}
}

// Found is where a slot had a task.
type Found int

const (
	Absent   Found = iota // nowhere
	Stored                // in the store queue
	Prepared              // in the prepare queue: it is claimed, and may be running
)

// Cancel takes a task out of the store queue. A claimed one is left alone.
func (s *Slots) Cancel(ctx context.Context, slot Slot, id uint64) (Found, error) {
	keys := s.keys.of(slot)
	runs := newRuns(cancelScript, 1, 1)
	runs.begin(0, &keys.store, &keys.prepare)
	runs.ids([]uint64{id})
	runs.exec(ctx, s.client)
	return s.found("cancel a task of", slot, runs)
}

// Reschedule puts a task into the store queue, or moves it there. A claimed one
// is left alone. A wake-up is published if the slot's head became earlier.
func (s *Slots) Reschedule(ctx context.Context, slot Slot, m Member) (Found, error) {
	keys := s.keys.of(slot)
	runs := newRuns(rescheduleScript, 1, 1)
	runs.begin(0, &keys.store, &keys.prepare)
	runs.texts(&s.wake, &keys.partition, &keys.topic)
	runs.members([]Member{m})
	runs.exec(ctx, s.client)
	return s.found("reschedule a task of", slot, runs)
}

func (s *Slots) found(act string, slot Slot, runs *runs) (Found, error) {
	run := &runs.list[0]
	if run.err != nil {
		return Absent, s.failed(act, slot, run.err)
	}
	found, _ := strconv.Atoi(run.reply[0])
	return Found(found), nil
}

// Mark sets the markers of slots: they are complete.
func (s *Slots) Mark(ctx context.Context, slots []Slot, value string) []error {
	return s.each(ctx, "mark", slots, func(pipe redis.Pipeliner, keys *slotKeys) {
		pipe.Set(ctx, keys.marker, value, 0)
	})
}

// Remark changes the marker of a slot, and tells whether there was one: a slot
// that has been lost meanwhile must not look complete.
func (s *Slots) Remark(ctx context.Context, slot Slot, value string) (marked bool, err error) {
	marked, err = s.client.SetXX(ctx, s.MarkerKey(slot), value, 0).Result()
	if err != nil {
		return false, s.failed("mark", slot, err)
	}
	return marked, nil
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

// Depth is how many members the queues of a slot have.
type Depth struct {
	Store, Prepared, Dead int64
	Err                   error
}

// Depths counts the members of slots.
func (s *Slots) Depths(ctx context.Context, slots []Slot) []Depth {
	depths := make([]Depth, len(slots))
	cards := make([]*redis.IntCmd, 0, 3*len(slots))
	errs := s.each(ctx, "count", slots, func(pipe redis.Pipeliner, keys *slotKeys) {
		cards = append(cards, pipe.ZCard(ctx, keys.store), pipe.ZCard(ctx, keys.prepare), pipe.ZCard(ctx, keys.dead))
	})
	for i := range slots {
		if depths[i].Err = errs[i]; errs[i] == nil {
			depths[i].Store, depths[i].Prepared, depths[i].Dead = cards[3*i].Val(), cards[3*i+1].Val(), cards[3*i+2].Val()
		}
	}
	return depths
}

// each sends the same commands for every slot in one pipeline.
func (s *Slots) each(ctx context.Context, act string, slots []Slot, commands func(redis.Pipeliner, *slotKeys)) []error {
	errs := make([]error, len(slots))
	if len(slots) == 0 {
		return errs
	}
	pipe := s.client.Pipeline()
	for _, slot := range slots {
		commands(pipe, s.keys.of(slot))
	}
	cmds, _ := pipe.Exec(ctx) // each command has its own error
	perSlot := len(cmds) / len(slots)
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			slot := i / perSlot
			errs[slot] = cmp.Or(errs[slot], s.failed(act, slots[slot], err))
		}
	}
	return errs
}

// errors is what went wrong, per element of the caller's list.
func (s *Slots) errors(act string, runs *runs, n int, slot func(int) Slot) []error {
	errs := make([]error, n)
	for i := range runs.list {
		if run := &runs.list[i]; run.err != nil {
			errs[run.of] = cmp.Or(errs[run.of], s.failed(act, slot(run.of), run.err))
		}
	}
	return errs
}

func (s *Slots) failed(act string, slot Slot, err error) error {
	return fmt.Errorf("%s slot %s: %w", act, s.StoreKey(slot), err)
}

// Identity names the servers that hold the slots at this moment: it is another
// one when a server was started again or replaced, and may have lost something.
// A Redis inside this process is "embedded".
func (s *Slots) Identity(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var ids []string
	ask := func(ctx context.Context, server redis.Cmdable) error {
		id, err := runID(ctx, server)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, id)
		return nil
	}
	var err error
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return ask(ctx, master) })
	} else {
		err = ask(ctx, s.client)
	}
	if err != nil {
		return "", fmt.Errorf("identify redis: %w", err)
	}
	slices.Sort(ids)
	return strings.Join(ids, " "), nil
}

func runID(ctx context.Context, server redis.Cmdable) (string, error) {
	info, err := server.Info(ctx, "server").Result()
	if err != nil && !strings.Contains(err.Error(), "is not supported") { // miniredis's words
		return "", err
	}
	if _, rest, ok := strings.Cut(info, "\nrun_id:"); ok {
		id, _, _ := strings.Cut(rest, "\r\n")
		return id, nil
	}
	return "embedded", nil
}

// Wakes calls f for every wake-up of any slot until ctx ends, whose error it
// returns; at is when the slot's head is due now. f is called by one goroutine
// and must be quick. After a lost connection the client subscribes again by
// itself; what is published meanwhile is lost.
func (s *Slots) Wakes(ctx context.Context, f func(slot Slot, at time.Time)) error {
	sub := s.client.Subscribe(ctx, s.wake)
	messages := sub.Channel(redis.WithChannelSize(1000))
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
			if slot, at, ok := parseWake(m.Payload); ok {
				f(slot, at)
			}
		}
	}
}
