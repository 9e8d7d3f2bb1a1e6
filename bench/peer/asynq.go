package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/timeoutcenter/toc/bench/server"
)

// asynqPeer is hibiken/asynq: tasks in Redis, found by polling.
type asynqPeer struct {
	driver
	check  time.Duration // 0: the library's default
	opts   asynq.RedisClientOpt
	client *asynq.Client
	look   *asynq.Inspector
}

func newAsynq(check time.Duration) *asynqPeer { return &asynqPeer{check: check} }

func (p *asynqPeer) Info() Info {
	i := Info{
		Name: "asynq", Parts: everything&^Batches | Restarts,
		Settings: "Concurrency 64, DelayedTaskCheckInterval 5 s (default)",
		Durable:  "Redis AOF everysec: up to a second is lost",
		Precise:  "whole seconds; tasks are made due at the next one",
	}
	if p.check > 0 {
		i.Name = fmt.Sprintf("asynq/%s", p.check)
		i.Settings = fmt.Sprintf("Concurrency 64, DelayedTaskCheckInterval and TaskCheckInterval %s", p.check)
	}
	return i
}

func (p *asynqPeer) Version(ctx context.Context, _ Env) (string, error) {
	v, err := server.Redis.Version(ctx)
	return "asynq " + moduleVersion("github.com/hibiken/asynq") + ", MIT; " + v, err
}

const asynqKind = "bench"

func (p *asynqPeer) Up(ctx context.Context, env Env) error {
	s, err := p.start(ctx, server.Redis, env)
	if err != nil {
		return err
	}
	p.opts = asynq.RedisClientOpt{Addr: s.Addr, PoolSize: 128}
	p.client = asynq.NewClient(p.opts)
	p.onDown(p.client.Close)
	p.look = asynq.NewInspector(p.opts)
	p.onDown(p.look.Close)
	p.put = func(ctx context.Context, _ int, jobs []job) error {
		for _, j := range jobs {
			due := ceil(j.due, time.Second)
			payload := binary.LittleEndian.AppendUint64([]byte(Attribute), uint64(due.UnixNano()))
			payload = binary.LittleEndian.AppendUint64(payload, j.biz)
			t := asynq.NewTask(asynqKind, payload, asynq.ProcessAt(due), asynq.MaxRetry(16), asynq.Timeout(30*time.Second))
			if _, err := p.client.EnqueueContext(ctx, t); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func (p *asynqPeer) Work(context.Context) error {
	s := asynq.NewServer(p.opts, asynq.Config{
		Concurrency: 64, DelayedTaskCheckInterval: p.check, TaskCheckInterval: p.check, LogLevel: asynq.FatalLevel,
	})
	err := s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		b := t.Payload()[len(Attribute):]
		p.fired(time.Unix(0, int64(binary.LittleEndian.Uint64(b))), binary.LittleEndian.Uint64(b[8:]))
		return nil
	}))
	if err == nil {
		p.onDown(func() error { s.Shutdown(); return nil })
	}
	return err
}

func (p *asynqPeer) Done(context.Context) (int, error) {
	q, err := p.look.GetQueueInfo("default")
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return q.ProcessedTotal, nil
}
