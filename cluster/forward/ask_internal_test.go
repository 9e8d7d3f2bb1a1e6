package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// quiet is a node without a log.
func quiet() *node {
	return newNode(New(Config{Logger: slog.New(slog.DiscardHandler)}), "n2", nil)
}

// Only a request that was certainly not sent is sent again, once.
func TestWhatIsTriedAgain(t *testing.T) {
	refused := fmt.Errorf("post: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")})
	reset := fmt.Errorf("post: %w", &net.OpError{Op: "read", Err: errors.New("connection reset")})
	for name, row := range map[string]struct {
		answers []error
		want    error
		known   error // whether something was changed
	}{
		"answered":                {[]error{nil}, nil, nil},
		"refused, then answered":  {[]error{refused, nil}, nil, nil},
		"refused, then a refusal": {[]error{refused, &client.Error{Status: 404}}, task.ErrNotFound, nil},
		"refused twice":           {[]error{refused, refused}, task.ErrUnavailable, task.ErrNotBegun},
		"refused, then reset":     {[]error{refused, reset}, task.ErrUnavailable, nil},
		"reset":                   {[]error{reset}, task.ErrUnavailable, nil},
		"too late":                {[]error{context.DeadlineExceeded}, task.ErrUnavailable, nil},
		"not now":                 {[]error{&client.Error{Status: 503}}, task.ErrUnavailable, nil},
		"not begun":               {[]error{&client.Error{Status: 503, Detail: api.DetailNotBegun}}, task.ErrUnavailable, task.ErrNotBegun},
		"locked":                  {[]error{&client.Error{Status: 503, Detail: api.DetailLocked}}, task.ErrUnavailable, task.ErrLocked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				times := 0
				_, err := ask(t.Context(), quiet(), 1, func(context.Context) (none struct{}, _ error) {
					times++
					return none, row.answers[times-1]
				})
				require.ErrorIs(t, err, row.want)
				for _, known := range []error{task.ErrNotBegun, task.ErrLocked} {
					require.Equal(t, row.known == known, errors.Is(err, known), known)
				}
				require.Len(t, row.answers, times)
			})
		})
	}
}

func TestACallerThatLeavesIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), retryPause/2)
		defer cancel()
		start, times := time.Now(), 0
		_, err := ask(ctx, quiet(), 1, func(context.Context) (none struct{}, _ error) {
			times++
			return none, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.Equal(t, 1, times)
		require.Equal(t, retryPause/2, time.Since(start))
	})
}
