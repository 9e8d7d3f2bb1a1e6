package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/memnet"
)

// redisBubble is a client of the redis engine and its server.
type redisBubble struct {
	*testing.T
	memnet.Net
	client *redis.Client
}

const redisAt = "redis:6379"

// withRedis runs a test in a bubble.
func withRedis(t *testing.T, f func(*redisBubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &redisBubble{T: t}
		stop := b.serve("old")
		defer stop()
		b.client = redisClient(configs.Redis{Addrs: []string{redisAt}, Mode: configs.RedisSingle}, nil, nil).(*redis.Client)
		defer b.client.Close()
		b.client.AddHook(b)
		f(b)
	})
}

// serve starts a server whose key "name" is its name.
func (b *redisBubble) serve(name string) (stop func()) {
	server := miniredis.NewMiniRedis()
	first, err := server.Dial() // starts it
	require.NoError(b, err)
	require.NoError(b, first.Close())
	require.NoError(b, server.Set("name", name))
	l := b.Listen(redisAt)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			server.Server().ServeConn(conn)
		}
	}()
	return func() {
		_ = l.Close()
		server.Close()
	}
}

// DialHook makes the client dial in the network of the bubble.
func (b *redisBubble) DialHook(redis.DialHook) redis.DialHook { return b.Dial }

func (b *redisBubble) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *redisBubble) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ask asks the server for its name, for as long as a call of a slot timer lasts.
func (b *redisBubble) ask() (name string, err error) {
	ctx, cancel := context.WithTimeout(b.Context(), redisTimeout)
	defer cancel()
	return b.client.Get(ctx, "name").Result()
}

// connect makes n connections that are idle then.
func (b *redisBubble) connect(n int) {
	conns := make([]*redis.Conn, n)
	for i := range conns {
		conns[i] = b.client.Conn()
		require.NoError(b, conns[i].Ping(b.Context()).Err())
	}
	for _, c := range conns {
		require.NoError(b, c.Close())
	}
	require.Equal(b, n, b.Open())
}

// All connections fall silent, while new ones work: each of them fails one call.
func TestSilentConnectionsToRedisAreLeft(t *testing.T) {
	withRedis(t, func(b *redisBubble) {
		const connections = 5
		b.connect(connections)
		b.Silence()
		for range connections {
			began := time.Now()
			_, err := b.ask()
			require.Error(b, err)
			require.Equal(b, redisTimeout, time.Since(began))
		}
		began := time.Now()
		name, err := b.ask()
		require.NoError(b, err)
		require.Equal(b, "old", name)
		require.Zero(b, time.Since(began))
		require.Equal(b, 1, b.Open(), "the silent ones are closed")

		b.Silence()
		began = time.Now()
		_, err = b.client.Get(b.Context(), "name").Result()
		require.NoError(b, err, "a call without an end of its own is made again")
		require.InDelta(b, redisTimeout, time.Since(began), float64(redisTimeout/2))
	})
}

// A server that takes connections and is silent on each: a call fails, whether it has an end of its own or not.
func TestASilentRedisFailsCalls(t *testing.T) {
	withRedis(t, func(b *redisBubble) {
		mute := b.Listen(redisAt)
		defer mute.Close()
		go func() {
			for {
				if _, err := mute.Accept(); err != nil {
					return
				}
			}
		}()
		began := time.Now()
		_, err := b.ask()
		require.Error(b, err)
		require.Equal(b, redisTimeout, time.Since(began))
		began = time.Now()
		require.Error(b, b.client.Get(b.Context(), "name").Err())
		require.Less(b, time.Since(began), 3*redisTimeout, "it is made twice")
	})
}

// The name of the server gets a new one, while the old one still answers.
func TestARedisWithANewAddressIsFollowed(t *testing.T) {
	withRedis(t, func(b *redisBubble) {
		name := func() string {
			name, err := b.ask()
			require.NoError(b, err)
			time.Sleep(100 * time.Millisecond)
			return name
		}
		require.Equal(b, "old", name())
		defer b.serve("new")()
		moved := time.Now()
		for name() == "old" {
			require.LessOrEqual(b, time.Since(moved), redisAge)
		}
		require.GreaterOrEqual(b, time.Since(moved), redisAge*2/3-time.Second, "connections are reused until then")
		require.Equal(b, 2, b.Dialed())
	})
}

// An idle connection is not used again, and calls close it.
func TestAnIdleConnectionToRedisIsNotUsed(t *testing.T) {
	withRedis(t, func(b *redisBubble) {
		b.connect(5)
		time.Sleep(redisIdle - time.Millisecond)
		_, err := b.ask()
		require.NoError(b, err)
		require.Equal(b, 5, b.Dialed(), "one is used until then")
	})
	withRedis(t, func(b *redisBubble) {
		b.connect(5)
		time.Sleep(redisIdle + time.Millisecond)
		b.Silence() // a firewall has forgotten them
		began := time.Now()
		_, err := b.ask()
		require.NoError(b, err)
		require.Zero(b, time.Since(began))
		require.Equal(b, 6, b.Dialed())
		for range int(redisAge / time.Second) {
			time.Sleep(time.Second)
			_, err = b.ask()
			require.NoError(b, err)
		}
		require.Equal(b, 1, b.Open())
	})
}
