package logqueue

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Wrap makes a handler that never blocks its caller of any other, and its queue. A handler of Open stays as it is.
//
// The inner handler gets the records from one goroutine, after the call, without the context's end. A record that
// it fails to handle counts as dropped. Values that a record points to must not change after the call; a slog.LogValuer is resolved in it.
func Wrap(inner slog.Handler) (slog.Handler, Queue) {
	switch h := inner.(type) {
	case opened:
		return h, h.queue
	case *handler:
		return h, h.queue
	}
	q := &queue[record]{} // batches of one
	q.write = func(batch []record) error { return batch[0].handle() }
	q.notice = func(dropped uint64, since time.Time) record {
		return record{inner, context.Background(), notice(dropped, since)}
	}
	return &handler{inner, q}, q
}

// record is a record and its handler.
type record struct {
	to     slog.Handler
	ctx    context.Context
	record slog.Record
}

// handle calls the handler. A panic of it is its own: it must not end the process, which has not called it.
func (r record) handle() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the log's handler panicked: %v", p)
		}
	}()
	return r.to.Handle(r.ctx, r.record)
}

type handler struct {
	inner slog.Handler
	queue *queue[record]
}

// Enabled implements slog.Handler. Handlers decide by the level, so this does not wait.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// recordSize is the size of a record without its texts in bytes, about.
const recordSize = 400

// Handle queues the record.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	size := recordSize + len(r.Message)
	kept := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a.Value = a.Value.Resolve()
		if a.Value.Kind() == slog.KindString {
			size += len(a.Value.String())
		}
		kept.AddAttrs(a)
		return true
	})
	h.queue.put(record{h.inner, context.WithoutCancel(ctx), kept}, size)
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.inner.WithAttrs(attrs), h.queue}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.inner.WithGroup(name), h.queue}
}
