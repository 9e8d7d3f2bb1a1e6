package rest

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/task"
)

// Center is the center in this process; see intake.Service. Errors that are not those of an api.Center are answered with 500.
type Center interface {
	api.Center
	Types() *task.Types
	FindLeased(ctx context.Context, id api.BizID, bizType, orKey string) ([]task.Task, error)
	Wake(ctx context.Context, jobIDs []uint64) (taken int)
}

// Status returns the state of the center and of its cluster.
type Status interface {
	Cluster(ctx context.Context) (api.Cluster, error)
	BizTypes(ctx context.Context) ([]api.BizType, error)
	Ready(ctx context.Context) api.Readiness
	Pulse(ctx context.Context) api.Pulse
	// Waiting names what the start of the node waits for; "" when it takes requests. Until then all routes but /healthz,
	// /readyz and /metrics answer 503.
	Waiting() string
}

// Nodes answers the other nodes of the cluster.
type Nodes interface {
	// Exchange answers the node of that name.
	Exchange(ctx context.Context, node string, r api.ExchangeRequest) api.ExchangeAnswer
}

// Observer receives the route of each request ("POST /v1/tasks"; "unknown" if there is
// none), the status of the answer, and how long the request took.
type Observer interface {
	Answered(route string, status int, took time.Duration)
}

type noObserver struct{}

func (noObserver) Answered(string, int, time.Duration) {}

// Config is what the API works with.
type Config struct {
	Center Center
	Status Status
	// Nodes answers the other nodes; it may be nil if Alone.
	Nodes Nodes

	// Tokens gives the bearer tokens that are let in. With at least one, every
	// route but /healthz, /readyz and the documentation asks for one. None, or nil: everybody is let in.
	// They may change, but not from none to some or back.
	Tokens func() []string
	// Peers checks the proofs of other nodes. A node with a proof needs no token. Defaults to nothing.
	Peers *peerproof.Prover
	// Alone is a center of one node: the routes by which nodes change something at each other do not exist.
	Alone bool
	// Console serves /console and all below it, and asks for tokens itself. Nil: there is no console.
	Console http.Handler
	// Metrics serves GET /metrics. Nil: there is no such route.
	Metrics http.Handler
	// Observer receives every request. Defaults to none.
	Observer Observer
	// Logger gets panics and internal errors, and each request at debug level.
	// Defaults to none.
	Logger *slog.Logger
	// Version is shown in the documentation. Defaults to "dev".
	Version string
	// MaxBody is the largest body in bytes, that of a batch; a larger one is answered
	// with 413. Other routes take less, 32 or 64 KiB.
	// Defaults to 8 MiB.
	MaxBody int64
	// MaxBodies and MaxAnswers bound what all requests under way take in memory, in
	// bytes: large bodies of batches three times their size, and the answers of lists and
	// batches. Beyond, bodies wait for two seconds; then all are answered with 503, and
	// nothing is changed. Default to 48 MiB and 32 MiB.
	MaxBodies, MaxAnswers int64
	// Timeout bounds the work on one request; then it is answered with 503.
	// POST /v1/dead/redrive and …/discard have no bound but their caller's. Defaults to 30 s.
	Timeout time.Duration
}

// WithDefaults fills what is left out.
func (c Config) WithDefaults() Config {
	if c.Tokens == nil {
		c.Tokens = func() []string { return nil }
	}
	c.Observer = cmp.Or[Observer](c.Observer, noObserver{})
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Peers = cmp.Or(c.Peers, peerproof.New("", nil))
	c.Version = cmp.Or(c.Version, "dev")
	c.MaxBody = cmp.Or(c.MaxBody, 8<<20)
	c.MaxBodies = cmp.Or(c.MaxBodies, 48<<20)
	c.MaxAnswers = cmp.Or(c.MaxAnswers, 32<<20)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	return c
}

// handlers serves the routes.
type handlers struct {
	cfg    Config
	center Center
	log    *slog.Logger
	huma   huma.API
	router *router

	guarded bool // tokens are asked for
	budget  *budget

	documented []*huma.Operation // in the order of routes.go
}

// New makes the handler of all routes.
func New(cfg Config) http.Handler {
	cfg = cfg.WithDefaults()
	a := &handlers{cfg: cfg, center: cfg.Center, log: cfg.Logger, guarded: len(cfg.Tokens()) > 0, budget: newBudget(&cfg),
		router: newRouter()}
	a.huma = a.newHuma()
	a.routes()
	a.serveDocs()

	h := continueTrace(a.router)
	h = sameOrigin(h)
	if a.guarded {
		h = authorize(h, cfg.Tokens)
	}
	if cfg.Console != nil {
		h = withConsole(h, sameOrigin(cfg.Console))
	}
	if !a.guarded {
		h = noDomain(h)
	}
	h = a.checkPeers(h)
	h = whileWaiting(h, cfg.Status)
	return &guard{next: h, log: cfg.Logger, observer: cfg.Observer, routes: a.router.routes}
}
