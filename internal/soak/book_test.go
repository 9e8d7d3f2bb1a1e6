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
	note       uint64 // attempts of a run; of a tenure, closed
}

const (
	spanSize = 32
	closed   = 1 // a tenure that ended with a no, and not just because nobody asked
)

// book is a file of spans.
type book struct {
	file *os.File
	next atomic.Int64
}

func newBook(dir, name string) (*book, error) {
	f, err := os.Create(filepath.Join(dir, name))
	return &book{file: f}, err
}

// add writes a new span and gives its place.
func (b *book) add(s span) (place int64) {
	place = b.next.Add(spanSize) - spanSize
	b.set(place, s)
	return place
}

// set writes a span anew. A book that cannot be written would be taken for a node that did nothing.
func (b *book) set(place int64, s span) {
	var raw [spanSize]byte
	for i, v := range []uint64{s.key, uint64(s.from), uint64(s.till), s.note} {
		binary.LittleEndian.PutUint64(raw[8*i:], v)
	}
	if _, err := b.file.WriteAt(raw[:], place); err != nil {
		panic(fmt.Sprintf("write down: %v", err))
	}
}

// readBook reads what a process has written, whatever ended it.
func readBook(dir, name string) ([]span, error) {
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
		if s := (span{key: at(0), from: int64(at(1)), till: int64(at(2)), note: at(3)}); s.from != 0 { // 0: killed before it was written
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

// tenures writes down the answers to "is this partition mine?": the first yes begins a tenure, the last yes before a no
// ends it. The time of an answer is taken after it was given, some hundred nanoseconds later: a process that is paused
// right in between would be wronged.
type tenures struct {
	book *book
	of   []tenure
}

type tenure struct {
	mu      sync.Mutex
	span    span // from 0: there is none
	place   int64
	written int64
}

func newTenures(b *book, partitions int) *tenures { return &tenures{b, make([]tenure, partitions)} }

// tell is told of each answer.
func (t *tenures) tell(partition int, owned bool) {
	at := time.Now().UnixNano()
	p := &t.of[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	running := p.span.from != 0
	if !owned {
		if running {
			p.span.note = closed
			t.book.set(p.place, p.span)
			p.span = span{}
		}
		return
	}
	if !running || at-p.span.till > int64(silence) {
		p.span = span{key: uint64(partition), from: at, till: at}
		p.place, p.written = t.book.add(p.span), at
		return
	}
	p.span.till = max(p.span.till, at)
	if p.span.till-p.written >= int64(sampleEvery) {
		t.book.set(p.place, p.span)
		p.written = p.span.till
	}
}

// stalled is for how long a process must have stood still for it to be told. A heartbeat that is late by less is none
// that was missed.
const stalled = time.Second

// watchStalls writes down when this process stood still, whoever made it: a busy or a sleeping machine pauses a node as
// well as a signal does.
func watchStalls(b *book) {
	last := time.Now().UnixNano()
	for range time.Tick(stalled / 20) {
		at := time.Now().UnixNano()
		if at-last > int64(stalled) {
			b.add(span{from: last, till: at})
		}
		last = at
	}
}
