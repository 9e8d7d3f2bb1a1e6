package limits

import (
	"math"
	"slices"
	"time"
)

// A node whose tasks wait asks the others for what they do not use. Tokens are given away. Permits are lent for as
// long as the borrower says so, and a loan ends loanFor after its last word at the latest: a borrower starts runs
// under it only until then, and they end by their time-out.
//
// If the lender's tasks wait, too, a borrower with less than its fair part gets a fair part: of a rate at once, of
// permits in turns of a second.

// MaxAsks is the maximum number of asks in a request.
const MaxAsks = 1000

// AskEvery is the interval at which a node asks another one, while its tasks wait or it has a loan.
const AskEvery = 100 * time.Millisecond

const (
	loanFor    = time.Second  // runs start under a loan for so long after it was last confirmed
	askingFor  = 3 * AskEvery // an asker counts for so long
	shortFor   = 2 * AskEvery // a business type counts as short for so long after a refusal
	turn       = time.Second  // of a permit that more nodes want than there are permits
	maxAskers  = 1024         // of a business type, and in all
	maxPermits = 1_000_000    // in an Ask; more makes no sense
)

// Ask is what a node asks another one for, of one business type.
type Ask struct {
	BizType string  `json:"biz_type" example:"order_close"`
	Rate    float64 `json:"rate,omitempty" doc:"Starts under rate_limit."`
	CatchUp float64 `json:"catch_up,omitempty" doc:"Starts under catch_up."`
	Permits int     `json:"permits,omitempty" doc:"Permits of max_running, more than held."`
	Held    int     `json:"held,omitempty" doc:"Permits that the asked node has lent and that are still used."`
	Poor    bool    `json:"poor,omitempty" doc:"The asking node's partitions have less than its fair part."`
}

// Grant is what a node gives, of one business type.
type Grant struct {
	BizType string  `json:"biz_type" example:"order_close"`
	Rate    float64 `json:"rate,omitempty" doc:"Starts under rate_limit, given away."`
	CatchUp float64 `json:"catch_up,omitempty" doc:"Starts under catch_up, given away."`
	Permits int     `json:"permits,omitempty" doc:"Permits of max_running under which runs may start now, of those held and asked for. They are lent for a second."`
}

// give answers an ask for tokens.
func (b *bucket) give(from string, want float64, poor bool, now time.Time) float64 {
	if b.perSecond == 0 || !(want > 0) {
		return 0
	}
	if poor && len(b.poor) < maxAskers {
		if b.poor == nil {
			b.poor = make(map[string]time.Time)
		}
		b.poor[from] = now
	}
	given := min(want, b.aside)
	b.aside -= given
	if now.Sub(b.short) > shortFor {
		more := max(0, min(want-given, b.tokens))
		b.tokens -= more
		given += more
	}
	return given
}

// loan is what this node has lent to another one.
type loan struct {
	permits int
	wanted  int // permits in all that the borrower could use
	poor    bool
	at      time.Time // of its last word
}

// debt is what this node has borrowed from another one.
type debt struct {
	held    int       // permits that the lender counts as lent
	permits int       // of those, for runs that start
	at      time.Time // when the ask was sent that confirmed it
}

// isOver reports whether no run can be under way under the loan any more.
func (n *loan) isOver(now time.Time, timeout time.Duration) bool {
	return now.Sub(n.at) > loanFor+timeout || n.permits == 0 && now.Sub(n.at) > askingFor
}

// asks reports whether the borrower is poor, could use permits, and has asked lately.
func (n *loan) asks(now time.Time) bool { return n.poor && n.wanted > 0 && now.Sub(n.at) <= askingFor }

// borrowed is the permits from other nodes under which runs may start.
func (t *Type) borrowed(now time.Time) (n int) {
	for name, d := range t.debts {
		if now.Sub(d.at) < loanFor {
			n += d.permits
		} else if now.Sub(d.at) > loanFor+t.timeout {
			delete(t.debts, name)
		}
	}
	return n
}

// lent returns how many permits of this node other nodes use, and how many more it keeps for their fair parts. It leaves out
// the node except.
func (t *Type) lent(now time.Time, except string) (used, kept int) {
	for name, n := range t.loans {
		if n.isOver(now, t.timeout) {
			delete(t.loans, name)
		} else if name != except {
			used += n.permits
			if n.asks(now) {
				kept += max(0, min(t.fairPart(name, now), n.wanted)-n.permits)
			}
		}
	}
	return used, kept
}

// freePermits is how many more runs may start; negative: more run than this node has permits for.
func (t *Type) freePermits(now time.Time) int {
	used, kept := t.lent(now, "")
	n := t.permits + t.borrowed(now) - used - t.running
	if n > 0 {
		n = max(0, n-kept)
	}
	return n
}

// fairPart is the number of this node's permits for a node that asks, or for this node (""): the same for all, and
// what is left over in turns.
func (t *Type) fairPart(name string, now time.Time) int {
	names := []string{""}
	for n, l := range t.loans {
		if l.asks(now) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	i := slices.Index(names, name)
	if i < 0 {
		return 0
	}
	part, rest := t.permits/len(names), t.permits%len(names)
	if (i+int(now.UnixNano()/int64(turn)))%len(names) < rest {
		part++
	}
	return part
}

// Asks returns what to ask another node for; nodes is the number of nodes.
func (l *Limits) Asks(lender string, nodes int) (list []Ask) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.types {
		d := t.debts[lender]
		if !t.isShort(now) && d == nil {
			continue
		}
		t.update(now)
		a := Ask{BizType: t.name, Rate: t.rate.want(now), CatchUp: t.catchUp.want(now)}
		a.Poor = a.Rate > 0 && t.rate.share*float64(nodes) < 1 || a.CatchUp > 0 && t.catchUp.share*float64(nodes) < 1
		if t.maxRunning > 0 {
			t.askPermits(&a, d, nodes, now)
			if d != nil && a.Held+a.Permits == 0 {
				delete(t.debts, lender) // this ask gives the loan back
			}
		}
		list = append(list, a)
	}
	return list
}

// askPermits asks for permits, and gives back the ones that this node does not need any more.
func (t *Type) askPermits(a *Ask, d *debt, nodes int, now time.Time) {
	if now.Sub(t.short) <= shortFor {
		a.Permits = min(t.waiting, t.maxRunning)
	}
	a.Poor = a.Poor || t.permits*nodes < t.maxRunning
	if d == nil {
		return
	}
	lent, _ := t.lent(now, "")
	used := t.running + lent - t.permits // under loans
	for _, other := range t.debts {
		if other != d {
			used -= other.held
		}
	}
	a.Held = max(0, min(d.held, used), min(d.permits, used+a.Permits))
	d.held, d.permits = a.Held, min(d.permits, a.Held) // the lender may use the rest again at once
}

// isShort reports whether tasks waited for a limit just now.
func (t *Type) isShort(now time.Time) bool {
	return now.Sub(t.short) <= shortFor || now.Sub(t.rate.short) <= shortFor || now.Sub(t.catchUp.short) <= shortFor
}

// want is the tokens to ask for.
func (b *bucket) want(now time.Time) float64 {
	if b.perSecond == 0 || now.Sub(b.short) > shortFor {
		return 0
	}
	return max(0, min(float64(b.waiting), b.most()-b.tokens))
}

// StopWaiting says that no task of this node waits for a limit any more: from now on Asks gives back what no run uses.
func (l *Limits) StopWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.types {
		t.short, t.rate.short, t.catchUp.short = time.Time{}, time.Time{}, time.Time{}
	}
}

// Answer answers another node. Asks that come out of order are ignored; seq grows with each.
func (l *Limits) Answer(from string, seq int, asks []Ask) []Grant {
	now, grants := time.Now(), []Grant{}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(asks) == 0 || seq <= l.asked[from] {
		return grants
	}
	if len(l.asked) == maxAskers {
		clear(l.asked)
	}
	l.asked[from] = seq
	for _, a := range asks {
		t := l.names[a.BizType]
		if t == nil {
			continue
		}
		t.update(now)
		grants = append(grants, Grant{
			BizType: a.BizType,
			Rate:    t.rate.give(from, a.Rate, a.Poor, now),
			CatchUp: t.catchUp.give(from, a.CatchUp, a.Poor, now),
			Permits: t.lend(from, a, now),
		})
	}
	return grants
}

// lend answers an ask for permits, and returns for how many the asker may start runs. What it holds stays lent until
// it gives it back.
func (t *Type) lend(from string, a Ask, now time.Time) int {
	held, more := min(max(a.Held, 0), maxPermits), min(max(a.Permits, 0), maxPermits)
	if t.maxRunning == 0 || held+more == 0 {
		delete(t.loans, from)
		return 0
	}
	l := t.loans[from]
	if l == nil {
		if len(t.loans) >= maxAskers {
			return 0
		}
		if t.loans == nil {
			t.loans = map[string]*loan{}
		}
		l = &loan{}
		t.loans[from] = l
	}
	*l = loan{permits: held, wanted: held + more, poor: a.Poor, at: now}
	own := t.running
	if now.Sub(t.short) <= shortFor {
		own = max(own, t.fairPart("", now))
	}
	used, kept := t.lent(now, from)
	may := t.permits - own - used - kept
	if a.Poor {
		may = max(may, t.fairPart(from, now))
	}
	may = min(max(may, 0), l.wanted)
	if free := t.permits - t.running - used; may > held {
		may = max(held, min(may, free)) // the rest once runs have ended
	}
	l.permits = max(held, may)
	return may
}

// Granted records the answer of another node to asks that were sent at a time.
func (l *Limits) Granted(lender string, sent time.Time, asks []Ask, grants []Grant) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range grants {
		t := l.names[g.BizType]
		i := slices.IndexFunc(asks, func(a Ask) bool { return a.BizType == g.BizType })
		if t == nil || i < 0 {
			continue
		}
		t.update(now)
		t.rate.add(min(g.Rate, asks[i].Rate))
		t.catchUp.add(min(g.CatchUp, asks[i].CatchUp))
		may := min(max(g.Permits, 0), asks[i].Held+asks[i].Permits)
		if t.maxRunning == 0 || asks[i].Held+may == 0 {
			delete(t.debts, lender)
			continue
		}
		if t.debts == nil {
			t.debts = map[string]*debt{}
		}
		t.debts[lender] = &debt{held: max(asks[i].Held, may), permits: may, at: sent}
	}
}

func (b *bucket) add(tokens float64) {
	if b.perSecond > 0 && tokens > 0 && !math.IsInf(tokens, 0) {
		b.tokens = min(b.tokens+tokens, b.most())
	}
}
