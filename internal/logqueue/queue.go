// Package logqueue keeps a log from holding up its program.
//
// Log lines and records come in and are queued; one goroutine hands them on, to a file or to another slog.Handler. The
// queue is bounded. While the reader stands still, as one that does not empty its pipe, lines are dropped and counted, and
// no caller waits. Once it reads again, one line says how many were dropped since when.
//
// Open is for programs that own their log's format, Wrap for any slog.Handler of others.
package logqueue

import (
	"log/slog"
	"sync"
	"time"
)

// limit is the maximum size of a queue in bytes, with the batch that is being written.
const limit = 1 << 20

// queue is a bounded queue with one goroutine, which runs while there is something to hand on.
type queue[T any] struct {
	write  func(batch []T) error // may block
	batch  int                   // maximum size of a batch in bytes; a single larger item is one, too
	notice func(dropped uint64, since time.Time) T

	mu      sync.Mutex
	items   []item[T]
	size    int           // bytes, of the items and of the batch that is being written
	running bool          // the goroutine
	idle    chan struct{} // closed when the goroutine ends
	failing bool          // the last write failed
	stuck   bool          // a Flush has given up, and nothing was written since
	dropped uint64        // not reported yet
	since   time.Time     // when the first of them was dropped
	total   uint64
}

type item[T any] struct {
	value T
	size  int

	dropped uint64 // of a notice: how many it reports
	since   time.Time
}

// put queues a value of this size in bytes, or drops it. It never waits.
func (q *queue[T]) put(value T, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size > 0 && q.size+size > limit {
		q.drop(1, time.Now())
		q.total++
		return
	}
	q.report()
	q.add(item[T]{value: value, size: size})
}

// drop counts what was dropped since then for the next notice. mu is locked.
func (q *queue[T]) drop(n uint64, since time.Time) {
	if q.dropped == 0 || since.Before(q.since) {
		q.since = since
	}
	q.dropped += n
}

// noticeSize is the size of a notice in bytes, about.
const noticeSize = 200

// report queues a notice of what was dropped. mu is locked.
func (q *queue[T]) report() {
	if q.dropped > 0 {
		q.add(item[T]{q.notice(q.dropped, q.since), noticeSize, q.dropped, q.since})
		q.dropped = 0
	}
}

func (q *queue[T]) add(i item[T]) {
	q.items = append(q.items, i)
	q.size += i.size
	if !q.running {
		q.running, q.idle = true, make(chan struct{})
		go q.run()
	}
}

// run writes the items in batches, and ends when there are none.
func (q *queue[T]) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch []T
	for {
		if len(q.items) == 0 && !q.failing {
			q.report()
		}
		if len(q.items) == 0 {
			q.running, q.items = false, nil
			close(q.idle)
			return
		}
		n, size := 0, 0
		batch = batch[:0]
		for _, i := range q.items {
			if n > 0 && size+i.size > q.batch {
				break
			}
			n, size, batch = n+1, size+i.size, append(batch, i.value)
		}
		q.mu.Unlock()
		err := q.write(batch)
		q.mu.Lock()
		if q.failing, q.stuck = err != nil, false; q.failing {
			q.lose(q.items[:n])
		}
		q.size -= size
		clear(q.items[:n])
		q.items = q.items[n:]
	}
}

// lose counts a batch that could not be written. mu is locked.
func (q *queue[T]) lose(batch []item[T]) {
	for _, i := range batch {
		if i.dropped > 0 {
			q.drop(i.dropped, i.since)
			continue
		}
		q.drop(1, time.Now())
		q.total++
	}
}

// Flush waits until everything is written, for at most this long. After a Flush that has given up it waits only if something was
// written since.
func (q *queue[T]) Flush(longest time.Duration) {
	q.mu.Lock()
	running, stuck, idle := q.running, q.stuck, q.idle
	q.mu.Unlock()
	if !running || stuck {
		return
	}
	select {
	case <-idle:
	case <-time.After(longest):
		q.mu.Lock()
		q.stuck = true
		q.mu.Unlock()
	}
}

// Dropped returns how many lines or records were not handed on so far.
func (q *queue[T]) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// notice is the record about what was dropped.
func notice(dropped uint64, since time.Time) slog.Record {
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines were dropped: the log was not read, or not fast enough", 0)
	r.AddAttrs(slog.Int64("dropped", int64(dropped)), slog.Time("since", since.UTC()))
	return r
}

// Queue is the queue of a Writer, or of a handler of Wrap.
type Queue interface {
	Flush(longest time.Duration)
	Dropped() uint64
}
