package audit

import (
	"sync"
	"time"
)

// Ledger takes what a process writes down.
type Ledger interface {
	// Add writes a new span and gives its place.
	Add(s Span) (place int64)
	// Set replaces the span at a place.
	Set(place int64, s Span)
}

const (
	// sampleEvery bounds what a SIGKILL takes from the end of a tenure.
	sampleEvery = 20 * time.Millisecond
	// silence ends a tenure: who was not asked for so long may have lost the partition and got it back meanwhile.
	silence = 250 * time.Millisecond
)

// TenureLog writes down the answers to "is this partition mine?": the first yes begins a tenure, the last yes before a no
// ends it. The time of an answer is taken after it was given, some hundred nanoseconds later: a process that is paused
// right in between would be wronged.
type TenureLog struct {
	ledger Ledger
	of     []openTenure
}

type openTenure struct {
	mu      sync.Mutex
	span    Span // from 0: there is none
	place   int64
	written int64
}

// NewTenureLog makes one that writes into a ledger.
func NewTenureLog(l Ledger, partitions int) *TenureLog {
	return &TenureLog{l, make([]openTenure, partitions)}
}

// Record takes each answer.
func (t *TenureLog) Record(partition int, owned bool) {
	at := time.Now().UnixNano()
	p := &t.of[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	running := p.span.From != 0
	if !owned {
		if running {
			p.span.End = Closed
			t.ledger.Set(p.place, p.span)
			p.span = Span{}
		}
		return
	}
	if !running || at-p.span.Till > int64(silence) {
		p.span = Span{Key: uint64(partition), From: at, Till: at}
		p.place, p.written = t.ledger.Add(p.span), at
		return
	}
	p.span.Till = max(p.span.Till, at)
	if p.span.Till-p.written >= int64(sampleEvery) {
		t.ledger.Set(p.place, p.span)
		p.written = p.span.Till
	}
}
