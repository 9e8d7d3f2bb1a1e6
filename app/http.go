package app

import (
	"net/http"
	"syscall"

	"github.com/timeoutcenter/toc/httpapi"
)

// httpServer is the door: the HTTP API over the desk and this node's status.
func (a *App) httpServer() *http.Server {
	log := a.component("http")
	handler := httpapi.New(httpapi.Config{
		Desk: a.desk, Status: status{a}, Tokens: a.httpTokens, Peers: a.proof, Metrics: a.metrics.Handler(), Observer: a.metrics,
		Logger: log, Version: a.opts.version,
	})
	server := httpapi.Server(a.cfg.HTTP.Listen, handler, log)
	httpapi.LimitConnections(server, maxConnections(a.cfg.HTTP.MaxConnections))
	return server
}

// maxConnections leaves half of the descriptors to what the center itself connects to.
func maxConnections(configured int) int {
	const most = 10_000
	var limit syscall.Rlimit
	switch {
	case configured > 0:
		return configured
	case syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil:
		return most
	}
	return int(min(most, max(16, limit.Cur/2)))
}
