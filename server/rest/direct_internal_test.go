package rest

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type valueKey struct{}

// A bounded context ends as one of context.WithTimeout does, whether somebody waits for it or not.
func TestBoundedEnds(t *testing.T) {
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var b bounded
			b.within(context.WithValue(t.Context(), valueKey{}, 1), time.Second)
			defer b.end()
			if waits {
				select {
				case <-b.Done():
					require.Fail(t, "it has ended already")
				default:
				}
			}
			require.NoError(t, b.Err())
			time.Sleep(time.Second) // in a bubble
			synctest.Wait()
			require.ErrorIs(t, b.Err(), context.DeadlineExceeded)
			require.ErrorIs(t, context.Cause(&b), context.DeadlineExceeded)
			<-b.Done()
			require.Equal(t, 1, b.Value(valueKey{}))
		})
	}
}

func TestBoundedEndsWithItsCaller(t *testing.T) {
	for _, waits := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		var b bounded
		b.within(ctx, time.Hour)
		defer b.end()
		if waits {
			b.Done()
		}
		cancel()
		require.ErrorIs(t, b.Err(), context.Canceled)
		<-b.Done()
	}
}

// end ends what was derived from it, and the timer.
func TestBoundedIsEnded(t *testing.T) {
	var b bounded
	b.within(t.Context(), time.Hour)
	derived, cancel := context.WithCancel(&b)
	defer cancel()
	at, limited := derived.Deadline()
	require.True(t, limited)
	require.Equal(t, b.deadline, at)
	b.end()
	<-derived.Done()
	require.ErrorIs(t, derived.Err(), context.Canceled)
}

// FuzzUnquote holds the text of a JSON string against encoding/json's.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{`""`, `"a\b\f\n\r\t\"\\\/b"`, `"\u00e9\u0000\uffff\ufffd"`,
		`"x\ud83d\ude00y"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\\u0041\\"`, `"é☃𝄞"`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) || value[0] != '"' || value[len(value)-1] != '"' {
			return
		}
		got, err := unquote(value)
		if err != nil {
			return // it is no text
		}
		var want string
		require.NoError(t, json.Unmarshal(value, &want))
		require.Equal(t, want, got)
	})
}
