package soak_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Add writes a new span and gives its place.
func (l *ledger) Add(s audit.Span) (place int64) {
	place = l.next.Add(spanSize) - spanSize
	l.Set(place, s)
	return place
}

// Set writes a span anew. A ledger that cannot be written would be taken for a node that did nothing.
func (l *ledger) Set(place int64, s audit.Span) {
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
			l.Add(audit.Span{From: last, Till: at})
		}
		last = at
	}
}
