package logqueue

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"time"
)

// Writer is a writer that never blocks and never fails. Each Write is a line, or several, that stays whole.
type Writer struct{ *queue[[]byte] }

// pipeBuf is the size up to which a write to a pipe is atomic: a line is written completely or not at all.
const pipeBuf = 4096

// maxKept is the size of a buffer that is worth keeping, in bytes.
const maxKept = 64 << 10

// NewWriter makes a Writer to out. format makes the line about what was dropped; nil: there is none.
func NewWriter(out io.Writer, format func(io.Writer) slog.Handler) *Writer {
	if format == nil {
		format = func(io.Writer) slog.Handler { return slog.DiscardHandler }
	}
	w := &Writer{&queue[[]byte]{batch: pipeBuf}}
	var all []byte // of a batch; write is called by one goroutine
	w.write = func(lines [][]byte) error {
		all = all[:0]
		for _, line := range lines {
			all = append(all, line...)
		}
		_, err := out.Write(all)
		if cap(all) > maxKept {
			all = nil
		}
		return err
	}
	w.notice = func(dropped uint64, since time.Time) []byte {
		var line bytes.Buffer
		_ = format(&line).Handle(context.Background(), notice(dropped, since))
		return line.Bytes()
	}
	return w
}

// Write queues a copy of p.
func (w *Writer) Write(p []byte) (int, error) {
	w.put(bytes.Clone(p), len(p))
	return len(p), nil
}

// Open makes a handler of this format that writes to out through a queue, and the queue. Records are formatted by their
// callers, so their values may change later.
func Open(out io.Writer, format func(io.Writer) slog.Handler) (slog.Handler, *Writer) {
	w := NewWriter(out, format)
	return opened{format(w), w}, w
}

// opened is a handler whose lines are queued.
type opened struct {
	slog.Handler
	queue *Writer
}

func (h opened) WithAttrs(attrs []slog.Attr) slog.Handler {
	return opened{h.Handler.WithAttrs(attrs), h.queue}
}
func (h opened) WithGroup(name string) slog.Handler {
	return opened{h.Handler.WithGroup(name), h.queue}
}
