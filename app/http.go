package app

import (
	"net/http"

	"github.com/timeoutcenter/toc/httpapi"
)

// httpServer is the door: the HTTP API over the desk and this node's status.
func (a *App) httpServer() *http.Server {
	log := a.room("http")
	handler := httpapi.New(httpapi.Config{
		Desk: a.desk, Status: status{a}, Tokens: a.cfg.HTTP.Tokens, Metrics: a.metrics.Handler(),
		Logger: log, Version: a.opts.version,
	})
	return httpapi.Server(a.cfg.HTTP.Listen, handler, log)
}
