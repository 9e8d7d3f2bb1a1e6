package virtual

import (
	"github.com/alicebob/miniredis/v2"
	lua "github.com/yuin/gopher-lua"
)

// miniredis makes a machine for each script. Its stack and its registers, which are empty at first, cost more than all that our
// scripts do, so they are as large as these need them.
func init() { lua.CallStackSize, lua.RegistrySize = 32, 2040 }

// serveRedis puts a miniredis into the network.
func (w *World) serveRedis() {
	w.redis = miniredis.NewMiniRedis()
	// It makes its server, without a port, at the first Dial.
	first, err := w.redis.Dial()
	if err != nil {
		w.t.Fatalf("redis: %v", err)
	}
	_ = first.Close()
	srv := w.redis.Server()
	listener := w.net.Listen(redisAddr)
	w.net.Prompt(redisHost) // the client connects under a mutex
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			srv.ServeConn(conn)
		}
	}()
	w.stopServers = append(w.stopServers, func() {
		_ = listener.Close()
		<-done
		w.redis.Close()
	})
}
