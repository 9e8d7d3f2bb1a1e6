package peer

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// redisScripts is a floor: the product's scripts on Redis and nothing else. Tasks
// are armed, claimed and settled as the product does it, 256 slots in one
// pipeline; there are no rows.
type redisScripts struct {
	driver
	lua    string // where the scripts are
	client *redis.Client
	slots  *slots.Slots
	done   atomic.Int64
}

const (
	scriptSlots = 256
	scriptClaim = 256 // of a slot at once
	scriptRest  = time.Millisecond
)

func (p *redisScripts) Info() Info {
	return Info{
		Name: "redis-scripts", Parts: Batches | Fires | Scripts,
		Settings: "floor: arm, claim and settle by toc's scripts, 256 slots in a pipeline, 1 ms between empty claims; no rows",
		Durable:  "Redis AOF everysec: up to a second is lost",
		Precise:  "milliseconds",
	}
}

func (p *redisScripts) Version(ctx context.Context, _ Env) (string, error) {
	return server.Redis.Version(ctx)
}

func (p *redisScripts) Up(ctx context.Context, env Env) error {
	s, err := p.start(ctx, server.Redis, env)
	if err != nil {
		return err
	}
	p.lua = filepath.Join(env.Repo, "redistimer", "slots", "lua")
	p.client = redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 16})
	p.onDown(p.client.Close)
	p.slots = slots.New(p.client, "")
	p.put = p.arm
	return nil
}

func slotOf(n uint64) slots.Slot {
	return slots.Slot{Topic: bizName, Partition: int(n % scriptSlots)}
}

func (p *redisScripts) arm(ctx context.Context, _ int, jobs []job) error {
	var bySlot [scriptSlots][]slots.Member
	for _, j := range jobs {
		id := j.biz >> 1 // 63 bits
		bySlot[id%scriptSlots] = append(bySlot[id%scriptSlots], slots.Member{JobID: id, At: j.due})
	}
	var list []slots.ArmRequest
	for i, members := range bySlot {
		if len(members) > 0 {
			list = append(list, slots.ArmRequest{Slot: slotOf(uint64(i)), Members: members})
		}
	}
	for _, a := range p.slots.Arm(ctx, list) {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}

func (p *redisScripts) Work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = p.loop(ctx) })
	p.onDown(func() error { cancel(); wg.Wait(); return failed })
	return nil
}

func (p *redisScripts) loop(ctx context.Context) error {
	claims := make([]slots.ClaimRequest, scriptSlots)
	for i := range claims {
		claims[i] = slots.ClaimRequest{Slot: slotOf(uint64(i)), Limit: scriptClaim, Visibility: time.Minute}
	}
	for ctx.Err() == nil {
		var settles []slots.SettleRequest
		n := 0
		for i, c := range p.slots.Claim(ctx, claims) {
			if c.Err != nil {
				return ended(ctx, c.Err)
			}
			if len(c.Members) == 0 {
				continue
			}
			s := slots.SettleRequest{Slot: claims[i].Slot}
			for _, m := range c.Members {
				p.fired(m.At, m.JobID)
				s.Done = append(s.Done, m.JobID)
			}
			n += len(s.Done)
			settles = append(settles, s)
		}
		if n == 0 {
			time.Sleep(scriptRest)
			continue
		}
		for _, a := range p.slots.Settle(ctx, settles) {
			if a.Err != nil {
				return ended(ctx, a.Err)
			}
		}
		p.done.Add(int64(n))
	}
	return nil
}

// ended ignores an error after the context has ended: the stop may be its cause.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("scripts: %w", err)
}

func (p *redisScripts) Done(context.Context) (int, error) { return int(p.done.Load()), nil }
