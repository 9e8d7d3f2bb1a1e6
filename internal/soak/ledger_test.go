package soak_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig/audit"
)

// A node's records. What was written is in the kernel's hands: SIGKILL takes nothing of it back.
const (
	runsFile    = "runs"
	tenuresFile = "tenures"
	stallsFile  = "stalls"
)

const (
	spanWords = 8
	spanSize  = 8 * spanWords
)

// ledger is a file of spans.
type ledger struct {
	file *os.File
	next atomic.Int64
}

func newLedger(dir, name string) (*ledger, error) {
	f, err := os.Create(filepath.Join(dir, name))
	return &ledger{file: f}, err
}

// add writes a new span and gives its place.
func (l *ledger) add(s audit.Span) (place int64) {
	place = l.next.Add(spanSize) - spanSize
	l.set(place, s)
	return place
}

// set writes a span anew. A ledger that cannot be written would be taken for a node that did nothing.
func (l *ledger) set(place int64, s audit.Span) {
	var raw [spanSize]byte
	for i, v := range [spanWords]uint64{s.Key, uint64(s.From), uint64(s.Till), s.End,
		uint64(s.Seen.Attempts), uint64(s.Seen.Action), s.Seen.Attribute} {
		binary.LittleEndian.PutUint64(raw[8*i:], v)
	}
	if _, err := l.file.WriteAt(raw[:], place); err != nil {
		panic(fmt.Sprintf("write down: %v", err))
	}
}

// readLedger reads what a process has written, whatever ended it.
func readLedger(dir, name string) ([]audit.Span, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) { // killed before it came so far
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(raw)%spanSize != 0 {
		return nil, fmt.Errorf("read %s/%s: %w", dir, name, io.ErrUnexpectedEOF)
	}
	var list []audit.Span
	for ; len(raw) > 0; raw = raw[spanSize:] {
		at := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
		s := audit.Span{Key: at(0), From: int64(at(1)), Till: int64(at(2)), End: at(3),
			Seen: audit.Seen{Attempts: int64(at(4)), Action: int64(at(5)), Attribute: at(6)}}
		if s.From != 0 { // 0: killed before it was written
			list = append(list, s)
		}
	}
	return list, nil
}

const (
	// sampleEvery bounds what a SIGKILL takes from the end of a tenure.
	sampleEvery = 20 * time.Millisecond
	// silence ends a tenure: who was not asked for so long may have lost the partition and got it back meanwhile.
	silence = 250 * time.Millisecond
)

// tenureLog writes down the answers to "is this partition mine?": the first yes begins a tenure, the last yes before a no
// ends it. The time of an answer is taken after it was given, some hundred nanoseconds later: a process that is paused
// right in between would be wronged.
type tenureLog struct {
	ledger *ledger
	of     []openTenure
}

type openTenure struct {
	mu      sync.Mutex
	span    audit.Span // from 0: there is none
	place   int64
	written int64
}

func newTenureLog(l *ledger, partitions int) *tenureLog {
	return &tenureLog{l, make([]openTenure, partitions)}
}

// record takes each answer.
func (t *tenureLog) record(partition int, owned bool) {
	at := time.Now().UnixNano()
	p := &t.of[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	running := p.span.From != 0
	if !owned {
		if running {
			p.span.End = audit.Closed
			t.ledger.set(p.place, p.span)
			p.span = audit.Span{}
		}
		return
	}
	if !running || at-p.span.Till > int64(silence) {
		p.span = audit.Span{Key: uint64(partition), From: at, Till: at}
		p.place, p.written = t.ledger.add(p.span), at
		return
	}
	p.span.Till = max(p.span.Till, at)
	if p.span.Till-p.written >= int64(sampleEvery) {
		t.ledger.set(p.place, p.span)
		p.written = p.span.Till
	}
}

// stalled is for how long a process must have stood still for it to be written down. A heartbeat that is late by less is none
// that was missed.
const stalled = time.Second

// watchStalls writes down when this process stood still, whoever made it: a busy or a sleeping machine pauses a node as
// well as a signal does.
func watchStalls(l *ledger) {
	last := time.Now().UnixNano()
	for range time.Tick(stalled / 20) {
		at := time.Now().UnixNano()
		if at-last > int64(stalled) {
			l.add(audit.Span{From: last, Till: at})
		}
		last = at
	}
}
