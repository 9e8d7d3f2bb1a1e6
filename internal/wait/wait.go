// Package wait waits for a time or an event, or until a context ends.
package wait

import (
	"context"
	"time"
)

// For waits for d. If ctx ends first, its error is returned.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ForOr waits for d or until something comes from wake. If ctx has ended then, its error is returned.
func ForOr(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	select {
	case <-time.After(d):
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err()
}
