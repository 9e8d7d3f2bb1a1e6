package traffic

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/task"
)

// How a run behaves. It depends on the biz_id and on the attempts alone, so a run can be repeated.
type behaviour struct {
	takes  time.Duration
	hangs  bool // until its time is over; then it fails
	stays  bool // for some seconds, despite its time-out
	fails  bool
	panics bool // is how it fails
}

// The attributes that decide how a run behaves. All other texts say nothing.
const (
	Poison   = "poison"    // ends the process, each time
	Harmless = "hand-made" // what a hand has made
)

// RunTimeout is the time-out of all business types.
const RunTimeout = time.Second

// behave decides: one in five runs fails, one task in twenty fails in all its runs.
func behave(bizID uint64, attempts int) behaviour {
	h := mix(bizID ^ mix(uint64(attempts)+1))
	b := behaviour{takes: time.Duration(h>>8%20) * time.Millisecond, fails: h%5 == 0 || failsAlways(bizID)}
	b.panics = b.fails && h>>16%10 == 0
	switch n := h >> 24 % 200; {
	case n < 2:
		b.hangs = true
	case n < 3:
		b.stays, b.takes = true, RunTimeout+time.Second+time.Duration(h>>32%2000)*time.Millisecond
	case n < 30:
		b.takes = time.Duration(h>>32%200) * time.Millisecond
	}
	return b
}

// failsAlways reports whether all runs of a task fail.
func failsAlways(bizID uint64) bool { return mix(bizID)%20 == 0 }

// lasts is for how long the run is under way.
func (b behaviour) lasts() time.Duration {
	if b.hangs {
		return RunTimeout
	}
	return b.takes
}

// mix spreads a number over all bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// SteadyPrefix begins the attribute of a task whose runs all succeed, and take the time behind it.
const SteadyPrefix = "steady "

// steadyFor reads such an attribute.
func steadyFor(attribute string) (takes time.Duration, ok bool) {
	text, ok := strings.CutPrefix(attribute, SteadyPrefix)
	if !ok {
		return 0, false
	}
	takes, err := time.ParseDuration(text)
	return takes, err == nil
}

// Recorder is a processor that writes down each run, before and after.
type Recorder struct {
	// Begin writes down a run that begins; what it returns writes down its end.
	Begin func(s audit.Span) (end func(audit.Span))
	// Takes is how much longer than others a run takes; nil: none does.
	Takes func(t task.Task) time.Duration
	// Poison is called by a run that is to end its process.
	Poison func(jobID uint64)
}

var errFails = errors.New("this run fails")

// Process runs a task.
func (r Recorder) Process(ctx context.Context, t task.Task) (err error) {
	s := audit.Span{Key: t.JobID, From: time.Now().UnixNano(), Seen: audit.Seen{Attempts: int64(t.Attempts), Action: t.ActionTime.UnixMilli(), Attribute: audit.TextHash(t.Attribute)}}
	write := r.Begin(s)
	b := behave(t.BizID, t.Attempts)
	if takes, ok := steadyFor(t.Attribute); ok {
		b = behaviour{takes: takes}
	}
	if r.Takes != nil {
		b.takes += r.Takes(t)
	}
	if t.Attribute == Poison {
		r.Poison(t.JobID)
	}
	over := ctx.Done()
	if b.stays {
		over = nil
	}
	if b.hangs {
		<-over
	} else {
		select {
		case <-time.After(b.takes):
		case <-over:
		}
	}
	switch {
	case ctx.Err() == nil || b.stays && !errors.Is(ctx.Err(), context.Canceled):
		if b.fails {
			err = errFails
		}
	default:
		err = ctx.Err()
	}
	s.Till, s.End = time.Now().UnixNano(), audit.EndOK
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		s.End = audit.EndStopped
	case err != nil:
		s.End = audit.EndFailed
	}
	write(s)
	if b.panics && s.End == audit.EndFailed {
		panic(err)
	}
	return err
}
