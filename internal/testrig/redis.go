package testrig

import (
	"context"
	"testing"
	"time"
)

// RedisServer is a Redis server as one test sees it: an address and a prefix for its keys.
type RedisServer struct {
	addr, prefix string
}

// Redis gives the test the shared server, with a unique key prefix. When the test ends every key that has the
// prefix anywhere in its name is removed. The test fails when there is no server to be had.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	needsServer(t)
	addr, err := ofThisProcess.redis.addr(t.Context())
	if err != nil {
		t.Fatalf("testrig: this test needs a Redis server: %v", err)
	}
	r := &RedisServer{addr: addr, prefix: uniquePrefix()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if _, err := redisCall(ctx, addr, "EVAL", unlinkMatching, "0", "*"+r.prefix+"*"); err != nil {
			t.Errorf("testrig: remove the keys *%s*: %v", r.prefix, err)
		}
	})
	return r
}

// unlinkMatching removes the keys that match the pattern ARGV[1].
const unlinkMatching = `
local cursor = "0"
repeat
	local page = redis.call("SCAN", cursor, "MATCH", ARGV[1], "COUNT", 1000)
	for _, key in ipairs(page[2]) do redis.call("UNLINK", key) end
	cursor = page[1]
until cursor == "0"
return 0`

// Addr is host:port.
func (r *RedisServer) Addr() string { return r.addr }

// Prefix stands in the name of every key that the test makes: "toc_k3m9x2pa_". It has no braces, so it may stand inside
// or before a hash tag.
func (r *RedisServer) Prefix() string { return r.prefix }
