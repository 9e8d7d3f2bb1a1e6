package work

import (
	"context"

	"github.com/timeoutcenter/toc/bench/peer"
)

// runSubmit: each caller submits one task and waits for the answer.
func runSubmit(ctx context.Context, b *bench) error {
	return b.submit(ctx, "", parked(b.sizes.Singles, callers, 1))
}

// runBatch: each caller submits 1,000 tasks in one call.
func runBatch(ctx context.Context, b *bench) error {
	return b.submit(ctx, "", parked(b.sizes.Batched, loaders, bulk))
}

func (b *bench) submit(ctx context.Context, prefix string, l peer.Load) error {
	if err := b.warm(ctx); err != nil {
		return err
	}
	b.run.N = l.N
	var loaded peer.Loaded
	used, err := b.cpu(func() (err error) {
		loaded, err = b.Load(ctx, l)
		return err
	})
	if err != nil {
		return err
	}
	b.setCalls(prefix, loaded, l.N)
	b.setCPU(prefix, used, l.N)
	return nil
}
