package virtual

import (
	"io"
	"net"

	"github.com/alicebob/miniredis/v2"
)

// serveRedis puts a miniredis into the network.
func (w *World) serveRedis() {
	w.redis = miniredis.NewMiniRedis()
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
			inner, err := w.redis.Dial()
			if err != nil {
				_ = conn.Close()
				continue
			}
			go relay(conn, inner)
			go relay(inner, conn)
		}
	}()
	w.stopServers = append(w.stopServers, func() {
		_ = listener.Close()
		<-done
		w.redis.Close()
	})
}

// relay copies until one side closes.
func relay(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
