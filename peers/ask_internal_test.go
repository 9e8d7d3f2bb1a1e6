package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/task"
)

// Only what has certainly not been sent is tried a second time, once.
func TestWhatIsTriedAgain(t *testing.T) {
	refused := fmt.Errorf("post: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")})
	reset := fmt.Errorf("post: %w", &net.OpError{Op: "read", Err: errors.New("connection reset")})
	for name, row := range map[string]struct {
		answers []error
		want    error
	}{
		"answered":                {[]error{nil}, nil},
		"refused, then answered":  {[]error{refused, nil}, nil},
		"refused, then a refusal": {[]error{refused, &client.Error{Status: 404}}, task.ErrNotFound},
		"refused twice":           {[]error{refused, refused}, task.ErrUnavailable},
		"refused, then reset":     {[]error{refused, reset}, task.ErrUnavailable},
		"reset":                   {[]error{reset}, task.ErrUnavailable},
		"too late":                {[]error{context.DeadlineExceeded}, task.ErrUnavailable},
		"not now":                 {[]error{&client.Error{Status: 503}}, task.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{})
				n, err := p.node("n2", "127.0.0.1:1")
				require.NoError(t, err)
				times := 0
				err = n.ask(t.Context(), 1, func(context.Context, *client.Client) error {
					times++
					return row.answers[times-1]
				})
				require.ErrorIs(t, err, row.want)
				require.Len(t, row.answers, times)
			})
		})
	}
}

func TestACallerThatLeavesIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := New(Config{}).node("n2", "127.0.0.1:1")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), again/2)
		defer cancel()
		start, times := time.Now(), 0
		err = n.ask(ctx, 1, func(context.Context, *client.Client) error {
			times++
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.Equal(t, 1, times)
		require.Equal(t, again/2, time.Since(start))
	})
}
