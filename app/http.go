package app

import (
	"math"
	"net/http"
	"syscall"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/httpapi"
)

// httpServer is the door: the HTTP API over the desk and this node's status.
func (a *App) httpServer() *http.Server {
	log := a.component("http")
	handler := httpapi.New(httpapi.Config{
		Desk: a.service, Status: status{a}, Tokens: a.httpTokens, Peers: a.proof, Metrics: a.metrics.Handler(), Observer: a.metrics,
		Logger: log, Version: a.opts.version,
	})
	server := httpapi.Server(a.cfg.HTTP.Listen, handler, log)
	limit, accepted := maxDescriptors(), a.cfg.HTTP.MaxConnections
	if accepted == 0 { // half of them is left to what the center itself connects to
		accepted = min(10_000, max(16, limit/2))
	}
	if needed := accepted + connections(a.cfg); needed > limit {
		log.Warn("the process may run out of file descriptors; raise its limit (ulimit -n), or lower http.max_connections or the biz_types' workers",
			"limit", limit, "needed", needed)
	}
	httpapi.LimitConnections(server, accepted)
	return server
}

// maxDescriptors is how many files and connections the process may have open.
func maxDescriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// connections is how many files and connections a node may have open at once, but for those that it accepts: one a
// worker, and those to its databases.
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
