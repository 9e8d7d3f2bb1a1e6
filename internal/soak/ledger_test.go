package soak_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// A node's records. What was written is in the kernel's hands: SIGKILL takes nothing of it back.
const (
	runsFile    = "runs"
	tenuresFile = "tenures"
	stallsFile  = "stalls"
)

// span is one record, for as long as something lasted. Times are the wall clock's nanoseconds, which all processes of a
// machine share.
type span struct {
	key        uint64 // job_id, or partition
	from, till int64  // till 0: not over when the process ended
	end        uint64 // how it ended: of a tenure closed; of a run endOK, endFailed or endStopped
	seen       seen   // of a run
}

// seen is the row of a task as a processor, or the audit, reads it.
type seen struct {
	attempts  int64
	action    int64 // action_time in milliseconds
	attribute uint64
}

// textHash is what the ledger keeps of a text.
func textHash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

const (
	spanWords = 8
	spanSize  = 8 * spanWords

	closed = 1 // a tenure that ended with a no, and not just because nobody asked

	endOK      = 1
	endFailed  = 2
	endStopped = 3 // told to stop: the product may run it again
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
func (l *ledger) add(s span) (place int64) {
	place = l.next.Add(spanSize) - spanSize
	l.set(place, s)
	return place
}

// set writes a span anew. A ledger that cannot be written would be taken for a node that did nothing.
func (l *ledger) set(place int64, s span) {
	var raw [spanSize]byte
	for i, v := range [spanWords]uint64{s.key, uint64(s.from), uint64(s.till), s.end,
		uint64(s.seen.attempts), uint64(s.seen.action), s.seen.attribute} {
		binary.LittleEndian.PutUint64(raw[8*i:], v)
	}
	if _, err := l.file.WriteAt(raw[:], place); err != nil {
		panic(fmt.Sprintf("write down: %v", err))
	}
}

// readLedger reads what a process has written, whatever ended it.
func readLedger(dir, name string) ([]span, error) {
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
	var list []span
	for ; len(raw) > 0; raw = raw[spanSize:] {
		at := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
		s := span{key: at(0), from: int64(at(1)), till: int64(at(2)), end: at(3),
			seen: seen{attempts: int64(at(4)), action: int64(at(5)), attribute: at(6)}}
		if s.from != 0 { // 0: killed before it was written
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
	span    span // from 0: there is none
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
	running := p.span.from != 0
	if !owned {
		if running {
			p.span.end = closed
			t.ledger.set(p.place, p.span)
			p.span = span{}
		}
		return
	}
	if !running || at-p.span.till > int64(silence) {
		p.span = span{key: uint64(partition), from: at, till: at}
		p.place, p.written = t.ledger.add(p.span), at
		return
	}
	p.span.till = max(p.span.till, at)
	if p.span.till-p.written >= int64(sampleEvery) {
		t.ledger.set(p.place, p.span)
		p.written = p.span.till
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
			l.add(span{from: last, till: at})
		}
		last = at
	}
}
