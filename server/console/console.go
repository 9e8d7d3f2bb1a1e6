// Package console serves the web console at /console/: pages that show the state of the center, and forms that do what the API does.
//
// Requests of browsers come in. They go to the same services as those of the API, in process, and HTML goes out. Each act is written into
// the audit under the name intake.ByConsole.
//
// The pages are made on the server by html/template, with charts as SVG, and work without script. Nothing is loaded from elsewhere, and
// the Content-Security-Policy lets nothing in. A GET changes nothing. A form that changes something is a POST from the same site, or it is
// refused (package rest does that). An act that destroys asks first, on a separate page.
//
//	console.go   configuration and routes
//	session.go   login by one of the tokens, and the cookie after it
//	page.go      an answer: headers, template, compression, errors
//	live.go      parts of pages that change while somebody looks: one snapshot a tick for all who look
//	picture.go   the center as a whole, of what all nodes say
//	overview.go, forecast.go, types.go, tasks.go, task.go, dead.go, operations.go, cluster.go, audit.go   the pages and their acts
//	query.go     what a form or a query asks for
//	chart.go     charts, with their words and their table
//	words.go     numbers, times and names as people read them
//	assets.go    the style, the script and the icon
//	templates/, assets/   what is embedded
package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Center is the center in this process; see intake.Service.
type Center interface {
	api.Center
	Types() *task.Types
	Record(ctx context.Context, e store.AuditEntry)
}

// Status returns the state of this node and of the others.
type Status interface {
	Cluster(ctx context.Context) (api.Cluster, error)
	BizTypes(ctx context.Context) ([]api.BizType, error)
	// Pulses asks each node for its pulse. It waits a second at most for nodes that do not answer.
	Pulses(ctx context.Context) []NodePulse
	// OfType is what this node has counted for a business type since its start.
	OfType(b task.BizType) metrics.OfType
}

// NodePulse is what a node said, or why it did not.
type NodePulse struct {
	Name, Address string
	Partitions    []int
	Err           error // nil: it said Pulse
	api.Pulse
}

// Tick is how often an open page changes.
const Tick = 2 * time.Second

// Config is what a console works with.
type Config struct {
	Node   string // this node's name
	Center Center
	Status Status
	// Tokens returns the tokens for logging in. Without any, everybody is let in, as by the API.
	Tokens func() []string
	Now    func() time.Time
	// Tick is how often an open page changes. Defaults to Tick.
	Tick   time.Duration
	Logger *slog.Logger // defaults to none
}

// Console serves the pages. It is an http.Handler for /console and all below it.
type Console struct {
	cfg       Config
	center    Center
	mux       *http.ServeMux
	snapshots snapshots
	owners    *owners
	picture   pictures
	acts      sync.Mutex                   // of operations: one after the other, so that a form that was sent twice is known
	sent      map[[sha256.Size]byte]api.ID // the operations that forms have started, by the hash of the form
}

// New makes a console.
func New(cfg Config) *Console {
	cfg.Tick = cmp.Or(cfg.Tick, Tick)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	c := &Console{cfg: cfg, center: cfg.Center, mux: http.NewServeMux(), snapshots: snapshots{last: make(map[string]*snapshot)},
		owners: newOwners(), sent: make(map[[sha256.Size]byte]api.ID)}
	c.routes()
	return c
}

// routes is every page and every act. A POST is an act; what destroys has a GET of the same path, which asks.
func (c *Console) routes() {
	c.page("GET  /console/{$}", c.showLive("overview"))
	c.page("GET  /console/forecast", c.forecast)
	c.page("GET  /console/types", c.types)
	c.page("GET  /console/types/{name}", c.showLive("type"))
	c.page("POST /console/types/{name}/pause", c.pause)
	c.page("POST /console/types/{name}/resume", c.resume)
	c.page("POST /console/types/{name}/retry", c.retry)
	c.page("GET  /console/tasks", c.tasks)
	c.page("GET  /console/tasks/{job_id}", c.task)
	c.page("GET  /console/tasks/{job_id}/cancel", c.askCancel)
	c.page("POST /console/tasks/{job_id}/cancel", c.cancel)
	c.page("POST /console/tasks/{job_id}/reschedule", c.reschedule)
	c.page("POST /console/tasks/{job_id}/run-now", c.runNow)
	c.page("POST /console/tasks/{job_id}/redrive", c.redrive)
	c.page("GET  /console/dead", c.dead)
	c.page("GET  /console/dead/redrive", c.askDead)
	c.page("POST /console/dead/redrive", c.changeDead)
	c.page("GET  /console/dead/discard", c.askDead)
	c.page("POST /console/dead/discard", c.changeDead)
	c.page("GET  /console/operations", c.showLive("operations"))
	c.page("POST /console/operations/{id}/stop", c.stop)
	c.page("GET  /console/operations/{id}/undo", c.askUndo)
	c.page("POST /console/operations/{id}/undo", c.undo)
	c.page("GET  /console/cluster", c.showLive("cluster"))
	c.page("GET  /console/audit", c.audit)

	c.open("GET  /console/login", c.loginPage)
	c.open("POST /console/login", c.login)
	c.open("POST /console/logout", c.logout)
	c.handle("GET  /console/live", http.HandlerFunc(c.live))
	c.handle("GET  /console/assets/{name}", http.HandlerFunc(asset))
	c.handle("GET  /console", http.RedirectHandler("/console/", http.StatusPermanentRedirect))
	c.open("/console/", func(*http.Request) (*page, error) { return nil, errNoPage })
}

// ServeHTTP serves the pages.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	c.mux.ServeHTTP(w, r)
}

// NoteOwners keeps the history of who owns what. Call it each Tick.
func (c *Console) NoteOwners(ctx context.Context) {
	if cluster, err := c.cfg.Status.Cluster(ctx); err == nil {
		c.owners.note(c.cfg.Now(), cluster)
	}
}
