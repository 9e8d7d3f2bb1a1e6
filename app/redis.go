package app

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/task"
)

const redisSection = "redis.tls"

// The times of a connection to Redis; docs/production.md lists them.
const (
	redisTimeout   = 2 * time.Second // of a connect, and of each read and write
	redisIdle      = 30 * time.Second
	redisAge       = time.Minute // at most; later the name may mean another server
	redisAgeJitter = 10 * time.Second
)

// redisClient makes the client of the redis engine. It connects at its first use: a center without redis-mode
// types needs no Redis.
func redisClient(cfg configs.Redis, client *tlsclient.Client, dial outside.Dial) redis.UniversalClient {
	opts := &redis.UniversalOptions{
		Addrs: cfg.Addrs, Username: cfg.Username, Password: cfg.Password, DB: cfg.DB,
		DialTimeout: redisTimeout, DialerRetries: 1, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
		ConnMaxLifetime: redisAge - redisAgeJitter, ConnMaxLifetimeJitter: redisAgeJitter, ConnMaxIdleTime: redisIdle,
		MaxRetries: 1, PoolSize: 16, ContextTimeoutEnabled: true,
		IsClusterMode:            cfg.Mode == configs.RedisCluster,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	opts.Dialer = client.Dialer(opts.DialTimeout, dial)
	switch {
	case isEmbedded(cfg):
		e := &embedded{}
		opts.Addrs, opts.Username, opts.Password, opts.Dialer = []string{configs.RedisEmbedded}, "", "", e.dial
		e.Client = redis.NewClient(opts.Simple())
		return e
	case cfg.Mode == configs.RedisSentinel:
		opts.MasterName = cfg.Master
	case opts.IsClusterMode:
		cluster := opts.Cluster()
		// Every command names its key. With policies the client first asks some node for COMMAND: if that node
		// is silent, commands to all other nodes wait, too.
		cluster.DisableRoutingPolicies = true
		return redis.NewClusterClient(cluster)
	}
	return redis.NewUniversalClient(opts)
}

// isEmbedded reports whether the Redis runs inside this process.
func isEmbedded(cfg configs.Redis) bool {
	return slices.Equal(cfg.Addrs, []string{configs.RedisEmbedded})
}

// embedded is a Redis inside this process, and its client. The first connection starts it, Close ends it. It
// listens nowhere, so no other process can reach it.
type embedded struct {
	*redis.Client

	mu     sync.Mutex
	server *miniredis.Miniredis
	closed bool
}

// Close closes the client and ends the Redis.
func (e *embedded) Close() error {
	err := e.Client.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.server != nil {
		e.server.Close()
	}
	return err
}

func (e *embedded) dial(context.Context, string, string) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, redis.ErrClosed
	}
	if e.server == nil {
		e.server = miniredis.NewMiniRedis()
	}
	conn, err := e.server.Dial()
	if err != nil {
		return nil, err
	}
	return &buffered{Conn: conn}, nil
}

// buffered is a connection whose Write does not wait for the reader, like a socket of the kernel. Both ends of
// a net.Pipe would wait for each other when a pipeline is answered before it is sent completely.
type buffered struct {
	net.Conn

	mu      sync.Mutex
	pending []byte
	sending bool
	err     error // of sending
}

func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.pending = append(b.pending, p...)
	if !b.sending {
		b.sending = true
		go b.send()
	}
	return len(p), nil
}

// send writes until nothing is pending.
func (b *buffered) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) > 0 && b.err == nil {
		batch := b.pending
		b.pending = nil
		b.mu.Unlock()
		_, err := b.Conn.Write(batch)
		b.mu.Lock()
		b.err = err
	}
	b.sending = false
}

// redisBizTypes lists the business types of mode redis.
func redisBizTypes(cfg configs.Config) []redistimer.BizType {
	var list []redistimer.BizType
	for _, b := range cfg.BizTypes {
		if task.Mode(b.Mode) == task.ModeRedis {
			list = append(list, redistimer.BizType{BizType: bizType(b), Topic: b.Topic, Horizon: b.Horizon, Visibility: b.Visibility})
		}
	}
	return list
}
