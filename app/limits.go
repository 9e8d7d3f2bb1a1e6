package app

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/queue/limits"
)

func (a *App) newLimits(owned owners) *limits.Limits {
	cfg := limits.Config{Partitions: a.layout.Partitions, Ownership: owned, Now: time.Now}
	if a.cfg.Cluster.Provider == configs.ProviderConsul {
		cfg.Gap = a.cfg.Cluster.Consul.TTL
	}
	return limits.New(cfg)
}

// borrow asks the other nodes for what they do not use of the limits, while tasks wait for these, until ctx ends.
func (a *App) borrow(ctx context.Context) error {
	b := borrower{App: a, from: a.node + " " + rand.Text(), busy: map[string]bool{}, failing: map[string]time.Time{}}
	tick := time.NewTicker(limits.AskEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.ask(ctx)
		case <-ctx.Done(): // the runs have ended: else the lenders would count what was borrowed until none could go on
			b.asking.Wait()
			b.limits.StopWaiting()
			b.ask(context.WithoutCancel(ctx))
			b.asking.Wait()
			return ctx.Err()
		}
	}
}

type borrower struct {
	*App
	from   string
	asking sync.WaitGroup

	mu      sync.Mutex
	busy    map[string]bool      // nodes that have not answered yet
	failing map[string]time.Time // nodes that do not answer: since when
	seq     int
}

// silentAfter is how long a node must not have answered to count as silent.
const silentAfter = 3 * limits.AskEvery

// ask asks each node that has answered the last time.
func (b *borrower) ask(ctx context.Context) {
	members := b.cluster.Members()
	b.limits.SetSilent(b.isSilent(members))
	for _, m := range members {
		if m.Name == b.node || !b.begin(m.Name) {
			continue
		}
		sent := b.clock.Now()
		asks := b.limits.Asks(m.Name, len(members))
		if len(asks) == 0 {
			b.recordAnswer(m.Name, nil) // it was not asked, so it is not silent
			b.end(m.Name)
			continue
		}
		b.asking.Go(func() {
			defer b.end(m.Name)
			b.askNode(ctx, m, sent, asks[:min(len(asks), limits.MaxAsks)])
		})
	}
}

// isSilent reports whether one of the nodes has not answered for some time.
func (b *borrower) isSilent(members []cluster.Member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range members {
		if since, ok := b.failing[m.Name]; ok && time.Since(since) > silentAfter {
			return true
		}
	}
	return false
}

func (b *borrower) recordAnswer(node string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.failing, node)
	} else if b.failing[node].IsZero() {
		b.failing[node] = time.Now()
	}
}

func (b *borrower) begin(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	busy := b.busy[node]
	b.busy[node] = true
	return !busy
}

func (b *borrower) end(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.busy, node)
}

func (b *borrower) askNode(ctx context.Context, m cluster.Member, sent time.Time, asks []limits.Ask) {
	types := b.catalog.Load()
	b.mu.Lock()
	b.seq++
	r := api.LimitsRequest{From: b.from, Seq: b.seq}
	b.mu.Unlock()
	for _, a := range asks {
		if t, ok := types.ByID(a.BizType); ok {
			r.Asks = append(r.Asks, api.LimitAsk{BizType: t.Name, Rate: a.Rate, CatchUp: a.CatchUp, Permits: a.Permits, Held: a.Held, Poor: a.Poor})
		}
	}
	if len(r.Asks) == 0 {
		return
	}
	said, err := b.forward.ShareLimits(ctx, m, r)
	b.recordAnswer(m.Name, err)
	if err != nil {
		return // its part of the limits stays unused
	}
	var grants []limits.Grant
	for _, g := range said.Grants {
		if t, ok := types.ByName(g.BizType); ok {
			grants = append(grants, limits.Grant{BizType: t.ID, Rate: g.Rate, CatchUp: g.CatchUp, Permits: g.Permits})
		}
	}
	b.limits.Granted(m.Name, sent, asks, grants)
}

// lender answers other nodes.
type lender struct{ *App }

// Share implements rest.Limits.
func (l lender) Share(r api.LimitsRequest) api.LimitsAnswer {
	types := l.catalog.Load()
	var asks []limits.Ask
	for _, a := range r.Asks {
		if t, ok := types.ByName(a.BizType); ok {
			asks = append(asks, limits.Ask{BizType: t.ID, Rate: a.Rate, CatchUp: a.CatchUp, Permits: a.Permits, Held: a.Held, Poor: a.Poor})
		}
	}
	answer := api.LimitsAnswer{Grants: []api.LimitGrant{}}
	for _, g := range l.limits.Answer(r.From, r.Seq, asks) {
		if t, ok := types.ByID(g.BizType); ok {
			answer.Grants = append(answer.Grants, api.LimitGrant{BizType: t.Name, Rate: g.Rate, CatchUp: g.CatchUp, Permits: g.Permits})
		}
	}
	return answer
}
