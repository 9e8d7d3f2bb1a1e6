package app

import (
	"math"
	"net/http"
	"syscall"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/server/rest"
)

// httpServer serves the HTTP API: the service and this node's status.
func (a *App) httpServer() *http.Server {
	log := a.component("http")
	var pages http.Handler
	if a.console != nil {
		pages = a.console
	}
	handler := rest.New(rest.Config{
		Console: pages,
		Center:  a.service, Status: status{a}, Nodes: nodes{a}, Tokens: a.secrets.httpTokens,
		Peers: a.proof, Alone: a.forward == nil, Metrics: a.metrics.Handler(), Observer: a.metrics,
		Logger: log, Version: a.opts.version,
	})
	server := rest.Server(a.cfg.HTTP.Listen, handler, log)
	limit, accepted := maxDescriptors(), a.cfg.HTTP.MaxConnections
	if accepted == 0 { // half of them are reserved for the center's own connections
		accepted = min(10_000, max(16, limit/2))
	}
	if needed := accepted + connections(a.cfg); needed > limit {
		log.Warn("the process may run out of file descriptors; raise its limit (ulimit -n), or lower http.max_connections or the biz_types' workers",
			"limit", limit, "needed", needed)
	}
	rest.LimitConnections(server, accepted)
	return server
}

// maxDescriptors is the limit of open files and connections of the process.
func maxDescriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// connections is the maximum number of files and connections that a node opens: one per worker, and the ones of its
// databases. It leaves out accepted connections.
func connections(cfg configs.Config) int {
	each := cfg.Store.MySQL.MaxOpenConns + 5 // to ping, and to hold it
	if cfg.Store.Driver == configs.DriverSQLite {
		each = 5 * 3 // a writer and four readers, each with its journal and index
	}
	open := cfg.Store.Databases * each
	for _, b := range cfg.BizTypes {
		if b.Processor != configs.ProcessorLog {
			open += b.Workers
		}
	}
	return open
}
