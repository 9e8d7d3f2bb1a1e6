package forward

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/task"
)

// peer is another node, at whichever address it is.
type peer struct {
	questions unanswered

	mu       sync.Mutex
	view     View
	answered time.Time // when the last of the requests was sent that it has answered
}

// View is what another node has last answered, and whether it is silent.
type View struct {
	// Answer is the last answer in an exchange. Its BizTypes and Pulse are those of the last exchange that asked for them.
	Answer   api.ExchangeAnswer
	Sent     time.Time // when that exchange began; zero: there is no answer yet
	Received time.Time
	Detailed time.Time // when BizTypes and Pulse arrived
	// Failed is when the last exchange ended without an answer.
	Failed time.Time
	// Silent is set while the node does not answer, neither in an exchange nor to another request.
	Silent *Silence
}

// Silence is that a node does not answer.
type Silence struct {
	Since time.Time // when the first request without an answer was sent
	Err   error     // of the last one
}

// askAgain is the time for which nobody waits for a node whose last exchange failed.
const askAgain = time.Second

func (v *View) hasFailed() bool { return v.Failed.After(v.Sent) && time.Since(v.Failed) < askAgain }

func (p *peer) look() View {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view
}

// record records the answer in an exchange.
func (p *peer) record(answer api.ExchangeAnswer, sent time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &p.view
	switch {
	case err != nil:
		v.Failed = time.Now()
	case sent.After(v.Sent):
		v.Received = time.Now()
		if answer.Pulse == nil {
			answer.BizTypes, answer.Pulse = v.Answer.BizTypes, v.Answer.Pulse
		} else {
			v.Detailed = v.Received
		}
		v.Answer, v.Sent = answer, sent
	}
}

// recordSilence records whether a request to the node was answered, and reports whether the node is silent now and was not before, or
// the other way round. A request without an answer says nothing if the node has answered one that was sent later.
func (p *peer) recordSilence(answered bool, sent time.Time, err error) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.view.Silent
	switch {
	case answered:
		if sent.After(p.answered) {
			p.answered = sent
		}
		p.view.Silent = nil
		return before != nil
	case p.answered.After(sent):
		return false
	}
	s := Silence{Since: sent, Err: err}
	if before != nil {
		s.Since = before.Since
	}
	p.view.Silent = &s
	return before == nil
}

// Exchange asks another node how it is, and for what it does not use of limits. The answer becomes part of its View. A node of the
// version before answers to asks for limits alone.
func (f *Forwarder) Exchange(ctx context.Context, m cluster.Member, r api.ExchangeRequest) (api.ExchangeAnswer, error) {
	n, err := f.node(m)
	if err != nil {
		f.peer(m.Name).recordSilence(false, time.Now(), err)
		return api.ExchangeAnswer{}, err
	}
	sent := time.Now()
	answer, err := askWithin(ctx, n, 0, f.cfg.Timeout, func(ctx context.Context) (api.ExchangeAnswer, error) {
		answer, err := n.owner.Exchange(ctx, r)
		if err == nil && answer.Node != "" && answer.Node != m.Name { // another process has its address now
			err = errAnswer
		}
		return answer, err
	})
	if errors.As(err, new(*task.FieldError)) {
		answer, err = api.ExchangeAnswer{}, nil
	}
	n.peer.record(answer, sent, err)
	return answer, err
}

// View returns the View of another node.
func (f *Forwarder) View(node string) View {
	if f == nil {
		return View{}
	}
	return f.peer(node).look()
}

// Others lists the other nodes that can be asked.
func (f *Forwarder) Others() (list []cluster.Member) {
	if f == nil {
		return nil
	}
	return slices.DeleteFunc(f.cfg.Cluster.Members(), func(m cluster.Member) bool { return m.Name == f.cfg.Node || m.Address == "" })
}

const (
	detailedFor    = time.Second // BizTypes and Pulse of a View are asked for again after this
	detailedWithin = time.Second // and not waited for longer
)

// Detail brings BizTypes and Pulse of the other nodes' Views up to date. It leaves out the nodes that are silent.
func (f *Forwarder) Detail(ctx context.Context) {
	if f == nil {
		return
	}
	f.detail.Lock() // one caller asks, the others wait for its answers
	defer f.detail.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detailedWithin)
	defer cancel()
	var asking sync.WaitGroup
	for _, m := range f.Others() {
		if v := f.View(m.Name); v.Silent == nil && !v.hasFailed() && time.Since(v.Detailed) >= detailedFor {
			asking.Go(func() { _, _ = f.Exchange(ctx, m, f.question(true)) })
		}
	}
	asking.Wait()
}

// question asks for no limits.
func (f *Forwarder) question(detail bool) api.ExchangeRequest {
	return api.ExchangeRequest{From: f.cfg.Node, Seq: 1, Detail: detail}
}
