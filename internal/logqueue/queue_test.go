package logqueue_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/logqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func text(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "since" {
			return slog.Attr{}
		}
		return a
	}})
}

// sink is an output that stands still until it may write on.
type sink struct {
	gate chan struct{} // closed: it writes

	mu   sync.Mutex
	text bytes.Buffer
	err  error
}

func newSink() *sink { return &sink{gate: make(chan struct{})} }

func (s *sink) Write(p []byte) (int, error) {
	<-s.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.text.Write(p)
}

func (s *sink) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(strings.TrimSuffix(s.text.String(), "\n"), "\n")
}

func TestLinesGoOutInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		h, q := logqueue.Open(s, text)
		log := slog.New(h).With("component", "x").WithGroup("g")
		for i := range 1000 {
			log.Info("m", "i", i)
		}
		close(s.gate)
		q.Flush(time.Second)
		require.Len(t, s.lines(), 1000)
		for i, line := range s.lines() {
			require.Equal(t, fmt.Sprintf("level=INFO msg=m component=x g.i=%d", i), line)
		}
		require.Zero(t, q.Dropped())
	})
}

// While nobody reads, callers do not wait and memory is bounded. Then one line, in its place, says what is missing.
func TestAFullQueueDropsAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		h, q := logqueue.Open(s, text)
		log := slog.New(h)
		const n, size = 3000, 1000
		for i := range n {
			log.Info(strings.Repeat("x", size), "i", i)
		}
		dropped := q.Dropped()
		require.InDelta(t, n-1<<20/size, dropped, 60)
		began := time.Now()
		q.Flush(time.Second)
		q.Flush(time.Second)
		require.Equal(t, time.Second, time.Since(began), "Flush gives up, once")
		close(s.gate)
		synctest.Wait()
		log.Info("after")
		q.Flush(time.Second)

		lines := s.lines()
		kept := n - int(dropped)
		require.Len(t, lines, kept+2)
		for i, line := range lines[:kept] {
			require.True(t, strings.HasSuffix(line, fmt.Sprintf(" i=%d", i)), "the oldest are kept, whole")
		}
		require.Equal(t, fmt.Sprintf(`level=WARN msg="log lines were dropped: the log was not read, or not fast enough" dropped=%d`, dropped), lines[kept])
		require.Equal(t, "level=INFO msg=after", lines[kept+1])
		require.Equal(t, dropped, q.Dropped())
	})
}

func TestALineLargerThanTheQueueIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		close(s.gate)
		w := logqueue.NewWriter(s, nil)
		long := strings.Repeat("x", 2<<20) + "\n"
		n, err := io.WriteString(w, long)
		require.NoError(t, err)
		require.Len(t, long, n)
		w.Flush(time.Second)
		require.Equal(t, long, s.text.String())
	})
}

// A reader that goes away costs lines, which are counted, and nothing else.
func TestLinesThatCannotBeWrittenAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		close(s.gate)
		s.err = errors.New("broken pipe")
		h, q := logqueue.Open(s, text)
		log := slog.New(h)
		for i := range 3 {
			log.Info("lost", "i", i)
			synctest.Wait()
		}
		require.EqualValues(t, 3, q.Dropped(), "notices do not count")
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		log.Info("back")
		q.Flush(time.Second)
		require.Equal(t, []string{`level=WARN msg="log lines were dropped: the log was not read, or not fast enough" dropped=3`, "level=INFO msg=back"}, s.lines())
	})
}

// slow is the handler of a program that embeds the center.
type slow struct {
	slog.Handler
	block func()
}

func (s slow) Handle(ctx context.Context, r slog.Record) error {
	s.block()
	return s.Handler.Handle(ctx, r)
}

func (s slow) WithAttrs(a []slog.Attr) slog.Handler { return slow{s.Handler.WithAttrs(a), s.block} }
func (s slow) WithGroup(n string) slog.Handler      { return slow{s.Handler.WithGroup(n), s.block} }

type later struct{ n *int }

func (l later) LogValue() slog.Value { return slog.IntValue(*l.n) }

func TestAHandlerThatBlocksBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		close(s.gate)
		gate := make(chan struct{})
		h, q := logqueue.Wrap(slow{text(s), func() { <-gate }})
		again, same := logqueue.Wrap(h)
		require.Equal(t, h, again, "it is queued once")
		require.Equal(t, q, same)
		log := slog.New(h).With("component", "x").WithGroup("g")
		const n = 5000
		for i := range n {
			log.Info("m", "i", later{&i})
		}
		dropped := q.Dropped()
		require.InDelta(t, n-1<<20/400, dropped, 20)
		close(gate)
		q.Flush(time.Minute)
		lines := s.lines()
		require.Len(t, lines, n-int(dropped)+1)
		require.Equal(t, "level=INFO msg=m component=x g.i=7", lines[7], "as it was when it was logged")
		require.Equal(t, fmt.Sprintf(`level=WARN msg="log lines were dropped: the log was not read, or not fast enough" dropped=%d`, dropped), lines[len(lines)-1])
	})
}

func TestAHandlerThatPanicsCostsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		close(s.gate)
		first := true
		h, q := logqueue.Wrap(slow{text(s), func() {
			if first {
				first = false
				panic("no")
			}
		}})
		slog.New(h).Info("lost")
		synctest.Wait()
		slog.New(h).Info("m")
		q.Flush(time.Second)
		require.EqualValues(t, 1, q.Dropped())
		require.Equal(t, "level=INFO msg=m", s.lines()[1])
	})
}

// Lines are written to a full pipe completely or not at all.
func TestAPipeGetsWholeLines(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	h, q := logqueue.Open(w, text)
	log := slog.New(h)
	for range 20_000 { // four times what fits into the pipe and the queue
		log.Info(strings.Repeat("x", 200))
	}
	require.Positive(t, q.Dropped())
	go func() {
		q.Flush(time.Hour)
		_ = w.Close()
	}()
	var lines, reported uint64
	notice := regexp.MustCompile(`^level=WARN msg="log lines were dropped.* dropped=(\d+)$`)
	for s := bufio.NewScanner(r); s.Scan(); {
		if m := notice.FindStringSubmatch(s.Text()); m != nil {
			n, err := strconv.ParseUint(m[1], 10, 64)
			require.NoError(t, err)
			reported += n
			continue
		}
		require.Regexp(t, `^level=INFO msg=x{200}$`, s.Text())
		lines++
	}
	require.Equal(t, q.Dropped(), reported)
	require.EqualValues(t, 20_000, lines+reported)
	require.NoError(t, r.Close())
}

// The price of the queue on the hot path: BenchmarkLog/direct is the way without it.
func BenchmarkLog(b *testing.B) {
	run := func(name string, h func(*testing.B, io.Writer) slog.Handler) {
		b.Run(name, func(b *testing.B) {
			r, w, err := os.Pipe()
			require.NoError(b, err)
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, r)
			}()
			log := slog.New(h(b, w))
			b.ReportAllocs()
			for b.Loop() {
				log.Warn("runs fail", "biz_type", "order_close", "count", 17, "error", "connection refused")
			}
			b.StopTimer()
			_ = w.Close()
			<-read
		})
	}
	run("direct", func(_ *testing.B, w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) })
	run("queued", func(b *testing.B, w io.Writer) slog.Handler {
		h, q := logqueue.Open(w, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) })
		b.Cleanup(func() { b.ReportMetric(float64(q.Dropped())/float64(b.N), "dropped/op") })
		return h
	})
	run("wrapped", func(_ *testing.B, w io.Writer) slog.Handler {
		h, _ := logqueue.Wrap(slog.NewTextHandler(w, nil))
		return h
	})
}

// What is logged under a Mutex is written after the unlock, in its order: a handler that blocks keeps nobody from the mutex.
func TestLoggingUnderAMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		log := slog.New(text(s))
		var mu logqueue.Mutex
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			mu.Lock()
			defer mu.Unlock()
			for i := range 2 {
				mu.Log(log, slog.LevelWarn, "event", "i", i)
			}
		}()
		synctest.Wait() // it is blocked by the sink
		free := false
		mu.Lock()
		free = true
		mu.Unlock()
		require.True(t, free)
		close(s.gate)
		<-logged
		require.Equal(t, []string{"level=WARN msg=event i=0", "level=WARN msg=event i=1"}, s.lines())
	})
}
