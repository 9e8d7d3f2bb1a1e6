package app

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/server/console"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// newConsole makes the console; nil if the configuration turns it off.
func (a *App) newConsole() *console.Console {
	if a.opts.noHTTP || !a.cfg.HTTP.Console {
		return nil
	}
	return console.New(console.Config{
		Node: a.node, Center: a.service, Status: status{a},
		Tokens: a.secrets.httpTokens, Now: a.clock.Now, Logger: a.component("console"),
	})
}

// OfType implements console.Status.
func (s status) OfType(b task.BizType) metrics.OfType { return s.metrics.OfType(b) }

// pulseFor is the age of a pulse from which on its node counts as one that does not answer.
const pulseFor = 2 * time.Second

// Pulses implements console.Status.
func (s status) Pulses(ctx context.Context) []console.NodePulse {
	s.forward.Detail(ctx)
	list := []console.NodePulse{}
	for _, m := range s.cluster.Members() {
		n := console.NodePulse{Name: m.Name, Address: m.Address, Partitions: m.Partitions}
		switch v := s.forward.View(m.Name); {
		case m.Name == s.node || s.forward == nil:
			n.Pulse = s.Pulse(ctx)
		case v.Silent != nil:
			n.Err = v.Silent.Err
		case v.Answer.Pulse == nil || time.Since(v.Detailed) > pulseFor:
			n.Err = errNoPulse
		default:
			n.Pulse = *v.Answer.Pulse
		}
		list = append(list, n)
	}
	return list
}

var errNoPulse = errors.New("it has not said lately how it is")

// pulseEvery is the interval at which what was counted becomes part of a minute.
const pulseEvery = 2 * time.Second

// pulseTypes is how many business types a Pulse lists.
const pulseTypes = 100

// Pulse returns the state of this node, and its work in the last hour.
func (s status) Pulse(context.Context) api.Pulse {
	now := s.state()
	ready := now.readiness()
	p := api.Pulse{Node: s.node, Ready: ready.Ready, Degraded: ready.Degraded, Minutes: []api.PulseMinute{}, BizTypes: []api.PulseType{},
		Databases: []api.PulseServer{}, Clocks: []api.PulseClock{}}
	for _, m := range s.metrics.Recent().Minutes() {
		p.Minutes = append(p.Minutes, pulseMinute(m))
	}
	for _, b := range now.bizTypes() {
		p.Waiting, p.Running, p.Overdue = p.Waiting+b.QueueDepth, p.Running+b.Running, p.Overdue+b.Overdue
		if b.QueueDepth+b.Running+b.Overdue > 0 {
			p.BizTypes = append(p.BizTypes, api.PulseType{Name: b.Name, Waiting: b.QueueDepth, Running: b.Running, Overdue: b.Overdue,
				Oldest: b.OldestOverdue})
		}
	}
	slices.SortFunc(p.BizTypes, func(a, b api.PulseType) int {
		return cmp.Or(b.Overdue-a.Overdue, b.Running-a.Running, cmp.Compare(a.Name, b.Name))
	})
	p.BizTypes = p.BizTypes[:min(pulseTypes, len(p.BizTypes))]
	for d := range now.databases {
		p.Databases = append(p.Databases, pulseDatabase(now.databases[d].Condition))
	}
	p.Redis, p.Consul = now.redisUp(), now.consulUp()
	for _, k := range now.skews {
		p.Clocks = append(p.Clocks, api.PulseClock{Of: k.Of, Name: k.Name, Ahead: k.Ahead.Seconds()})
	}
	return p
}

func pulseDatabase(now store.Condition) api.PulseServer {
	said := api.PulseServer{Up: now.Usable(), Since: api.Time(now.Since), Answer: now.Slow.Seconds()}
	switch {
	case now.Down != nil:
		said.Fault = "is out of reach: " + now.Down.Error()
	case now.IsReadOnly():
		said.Fault = "is read-only"
	case now.Refusing != nil:
		said.Fault = "refuses writes: " + now.Refusing.Error()
	}
	return said
}

func pulseMinute(m metrics.Minute) api.PulseMinute {
	out := api.PulseMinute{At: api.Time(m.At), Submitted: m.Submitted, Runs: m.Runs, Failed: m.Failed, Late: []api.LateCount{}}
	for bound, n := range m.Late {
		if math.IsInf(bound, 1) {
			bound = 0 // JSON has no infinity
		}
		out.Late = append(out.Late, api.LateCount{Under: bound, Runs: n})
	}
	slices.SortFunc(out.Late, func(a, b api.LateCount) int { return cmp.Compare(a.Under, b.Under) })
	return out
}
