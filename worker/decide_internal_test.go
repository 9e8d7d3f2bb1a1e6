package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

var (
	noon   = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	errOut = errors.New("out of paper")
)

func ref[T any](v T) *T { return &v }

func TestDecide(t *testing.T) {
	b := task.BizType{MaxRetries: 3, BackoffMin: time.Second, BackoffMax: time.Minute}
	before := task.Task{JobID: 7, ActionTime: noon, Attribute: "a", Attempts: 1, LastError: "older"}
	at := func(d time.Duration) *time.Time { return ref(noon.Add(d)) }
	for _, c := range []struct {
		name     string
		attempts int
		err      error
		outcome  Outcome
		to       task.Status
		set      store.Set
	}{
		{"processed", 1, nil, Processed, task.Processed, store.Set{}},
		{"discarded", 1, processor.Discard(errOut), Discarded, task.Cancelled, store.Set{LastError: ref("discarded: out of paper")}},
		{"discarded without a reason", 3, processor.Discard(nil), Discarded, task.Cancelled, store.Set{LastError: ref("discarded")}},
		{"discarded deep inside", 1, fmt.Errorf("fire: %w", processor.Discard(errOut)), Discarded, task.Cancelled, store.Set{LastError: ref("fire: discarded: out of paper")}},
		{"retried when it asks", 1, processor.RetryAfter(90*time.Second, errOut), Failed, task.Pending,
			store.Set{Attempts: ref(2), LastError: ref("out of paper"), ActionTime: at(90 * time.Second)}},
		{"retried at once", 0, processor.RetryAfter(0, nil), Failed, task.Pending,
			store.Set{Attempts: ref(1), LastError: ref("retry after 0s"), ActionTime: at(0)}},
		{"never in the past", 0, processor.RetryAfter(-time.Hour, errOut), Failed, task.Pending,
			store.Set{Attempts: ref(1), LastError: ref("out of paper"), ActionTime: at(0)}},
		{"rounded up", 0, processor.RetryAfter(time.Microsecond, errOut), Failed, task.Pending,
			store.Set{Attempts: ref(1), LastError: ref("out of paper"), ActionTime: at(time.Millisecond)}},
		{"not tried", 1, processor.NoAttempt(time.Second, errOut), Failed, task.Pending,
			store.Set{LastError: ref("not tried: out of paper"), ActionTime: at(time.Second)}},
		{"not tried, deep inside, with its retries used up", 3, fmt.Errorf("fire: %w", processor.NoAttempt(-time.Second, nil)), Failed, task.Pending,
			store.Set{LastError: ref("fire: not tried"), ActionTime: at(0)}},
		{"the last retry", 2, processor.RetryAfter(0, errOut), Failed, task.Pending,
			store.Set{Attempts: ref(3), LastError: ref("out of paper"), ActionTime: at(0)}},
		{"retries used up", 3, errOut, Dead, task.Dead, store.Set{Attempts: ref(4), LastError: ref("out of paper")}},
		{"retries used up, whatever it asks", 3, processor.RetryAfter(time.Second, errOut), Dead, task.Dead, store.Set{Attempts: ref(4), LastError: ref("out of paper")}},
		{"redriven by hand with attempts left as they were", 17, errOut, Dead, task.Dead, store.Set{Attempts: ref(18), LastError: ref("out of paper")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := before
			before.Attempts = c.attempts
			outcome, move, row := decide(&b, before, c.err, noon)
			require.Equal(t, c.outcome, outcome)
			want := store.Move{JobID: 7, From: task.Pending, To: c.to, Set: c.set}
			if c.outcome == Failed || c.outcome == Dead {
				want.Read = &before // what it writes depends on what was read
			}
			if c.outcome == Failed {
				want.Promised = &before.ActionTime
			}
			require.Equal(t, want, move)
			require.Equal(t, applied(before, move), row, "the task as it will stand")
		})
	}
}

// applied is what the store makes of a move.
func applied(t task.Task, m store.Move) task.Task {
	t.Status = m.To
	if m.ActionTime != nil {
		t.ActionTime = *m.ActionTime
	}
	if m.Attempts != nil {
		t.Attempts = *m.Attempts
	}
	if m.LastError != nil {
		t.LastError = *m.LastError
	}
	if m.Promised != nil && t.DueTime.IsZero() {
		t.DueTime = *m.Promised
	}
	return t
}

func TestDecideBacksOff(t *testing.T) {
	b := task.BizType{MaxRetries: 16, BackoffMin: time.Second, BackoffMax: 10 * time.Minute}
	for attempts := range 16 {
		_, m, _ := decide(&b, task.Task{Attempts: attempts}, errOut, noon)
		pause := m.ActionTime.Sub(noon)
		require.Equal(t, pause.Truncate(time.Millisecond), pause)
		require.GreaterOrEqual(t, pause, time.Second)
		require.LessOrEqual(t, pause, 10*time.Minute)
	}
}

func TestBackoffDoublesUpToTheMaximum(t *testing.T) {
	b := &task.BizType{BackoffMin: time.Second, BackoffMax: time.Minute}
	for n, want := range map[int][2]time.Duration{
		1:   {time.Second, 1250 * time.Millisecond},
		2:   {2 * time.Second, 2500 * time.Millisecond},
		3:   {4 * time.Second, 5 * time.Second},
		6:   {32 * time.Second, 40 * time.Second},
		7:   {time.Minute, 45 * time.Second},
		8:   {time.Minute, 45 * time.Second},
		255: {time.Minute, 45 * time.Second},
	} {
		require.Equal(t, want[0], backoff(b, n, 0), "run %d", n)
		require.Equal(t, want[1], backoff(b, n, 1), "run %d", n)
	}
	same := &task.BizType{BackoffMin: time.Minute, BackoffMax: time.Minute}
	require.Equal(t, time.Minute, backoff(same, 1, 0))
}

func TestBackoffIsWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &task.BizType{BackoffMin: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "min"))}
		b.BackoffMax = time.Duration(rapid.Int64Range(int64(b.BackoffMin), int64(365*24*time.Hour)).Draw(t, "max"))
		n := rapid.IntRange(1, task.MaxAttempts).Draw(t, "n")
		r := rapid.Float64Range(0, 1).Draw(t, "random")
		pause := backoff(b, n, r)
		require.LessOrEqual(t, pause, b.BackoffMax)
		require.GreaterOrEqual(t, pause, min(b.BackoffMin, b.BackoffMax*3/4))
	})
}

func TestReason(t *testing.T) {
	long := strings.Repeat("x", 254)
	for text, want := range map[string]string{
		"":                       "",
		"short":                  "short",
		long + "ä":               long, // a rune is not cut in two
		long + "yz":              long + "y",
		"a\xffb\x00c":            "a?b?c",
		strings.Repeat("ä", 200): strings.Repeat("ä", 127),
		strings.Repeat("😀", 100): strings.Repeat("😀", 63),
	} {
		require.Equal(t, want, *reason(errors.New(text)))
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "text"))
		got := *reason(errors.New(text))
		require.LessOrEqual(t, len(got), task.MaxLastError)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x00")
	})
}

type paperError struct{ sheets int }

func (e *paperError) Error() string { return fmt.Sprint(e.sheets, " sheets left") }

// A nil pointer of an error type is not nil as an error: a well-known trap that
// must not end the program.
func TestReasonOfANilPointer(t *testing.T) {
	require.NotPanics(t, func() {
		outcome, _, row := decide(&task.BizType{MaxRetries: 1}, task.Task{}, (*paperError)(nil), noon)
		require.Equal(t, Failed, outcome)
		require.Equal(t, "<nil>", row.LastError)
	})
}

func TestVerdicts(t *testing.T) {
	_, asked := processor.RetryPause(errOut)
	require.False(t, asked)
	pause, asked := processor.RetryPause(fmt.Errorf("fire: %w", processor.RetryAfter(time.Minute, errOut)))
	require.True(t, asked)
	require.Equal(t, time.Minute, pause)
	require.ErrorIs(t, processor.RetryAfter(time.Minute, errOut), errOut)
	require.ErrorIs(t, processor.Discard(errOut), errOut)
	require.EqualError(t, processor.RetryAfter(time.Minute, errOut), "out of paper")
	require.False(t, processor.IsDiscard(errOut))
	require.True(t, processor.IsDiscard(processor.Discard(nil)))
}
