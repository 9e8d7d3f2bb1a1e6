package app

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/queue/limits"
)

const (
	// exchangeEvery is the interval of the exchanges with another node. While tasks wait for a limit it is limits.AskEvery.
	exchangeEvery = time.Second
	// silentAfter is how long a node must not have answered to count as silent for the limits.
	silentAfter = 3 * limits.AskEvery
)

// exchanger exchanges with each other node; what they answer is in forward.View.
type exchanger struct {
	*App
	from   string
	asking sync.WaitGroup

	mu    sync.Mutex
	turns map[string]*turn // by node
	seq   int
}

// turn is when a node is asked next.
type turn struct {
	busy   bool // it has not answered yet
	next   time.Time
	pauses wait.Backoff // since it does not answer
	silent bool
	lost   []limits.Ask // those of the last exchange, if it had no answer: the node may have lent what they ask for
}

// exchange asks each other node how it is, and for what it does not use of limits while tasks of this node wait for these. It ends with
// ctx.
func (a *App) exchange(ctx context.Context) error {
	e := exchanger{App: a, from: a.node + " " + rand.Text(), turns: make(map[string]*turn)}
	tick := time.NewTicker(limits.AskEvery)
	defer tick.Stop()
	for {
		e.askAll(ctx, false)
		select {
		case <-tick.C:
		case <-ctx.Done(): // the runs have ended: else the lenders would count what was borrowed until none could go on
			e.asking.Wait()
			e.limits.StopWaiting()
			e.askAll(context.WithoutCancel(ctx), true)
			e.asking.Wait()
			return ctx.Err()
		}
	}
}

// askAll asks the nodes whose turn it is. The last time it asks all that get permits back.
func (e *exchanger) askAll(ctx context.Context, last bool) {
	others := e.forward.Others()
	e.limits.SetSilent(e.isSilent(others))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range others {
		t := e.turns[m.Name]
		if t == nil {
			t = &turn{pauses: wait.Backoff{First: limits.AskEvery, Most: exchangeEvery}}
			e.turns[m.Name] = t
		}
		isDue := time.Now().After(t.next)
		if t.busy || t.silent && !isDue && !last {
			continue
		}
		asks := e.limits.Asks(m.Name, len(others)+1)
		if last {
			asks = giveBack(asks, t.lost)
		}
		if len(asks) == 0 && (last || !isDue) {
			continue
		}
		t.busy = true
		e.seq++
		r := api.ExchangeRequest{From: e.from, Seq: e.seq, Asks: asks[:min(len(asks), limits.MaxAsks)]}
		e.asking.Go(func() { e.ask(ctx, m, t, r) })
	}
}

// giveBack adds asks for nothing: they give back what was lent in an answer that was lost.
func giveBack(asks, lost []limits.Ask) []limits.Ask {
	for _, l := range lost {
		if !slices.ContainsFunc(asks, func(a limits.Ask) bool { return a.BizType == l.BizType }) {
			asks = append(asks, limits.Ask{BizType: l.BizType})
		}
	}
	return asks
}

// isSilent reports whether one of the nodes has not answered for some time.
func (e *exchanger) isSilent(nodes []cluster.Member) bool {
	for _, m := range nodes {
		if s := e.forward.View(m.Name).Silent; s != nil && time.Since(s.Since) > silentAfter {
			return true
		}
	}
	return false
}

func (e *exchanger) ask(ctx context.Context, m cluster.Member, t *turn, r api.ExchangeRequest) {
	sent := time.Now()
	answer, err := e.forward.Exchange(ctx, m, r)
	e.limits.Granted(m.Name, sent, r.Asks, answer.Grants) // after an error the other node's part of the limits stays unused
	e.mu.Lock()
	defer e.mu.Unlock()
	t.busy, t.silent, t.next = false, err != nil, sent.Add(exchangeEvery)
	if t.silent {
		t.next, t.lost = time.Now().Add(t.pauses.Next()), r.Asks
	} else {
		t.pauses.Reset()
		t.lost = nil
	}
}

// nodes answers other nodes.
type nodes struct{ *App }

// Exchange implements rest.Nodes.
func (n nodes) Exchange(ctx context.Context, node string, r api.ExchangeRequest) api.ExchangeAnswer {
	answer := api.ExchangeAnswer{Node: n.node, Now: api.Time(n.clock.raw()), Grants: n.limits.Answer(r.From, r.Seq, r.Asks)}
	for _, q := range n.forward.Unanswered(node) {
		answer.Unanswered = append(answer.Unanswered, api.ID(q))
	}
	if r.Detail {
		answer.BizTypes, answer.Pulse = n.BizTypes(), new(status(n).Pulse(ctx))
	}
	return answer
}
