package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/internal/wait"
)

const (
	// watchFor is how long Consul may hold a query that has no news. It bounds how long a broken connection
	// goes unnoticed.
	watchFor = 5 * time.Second
	// watchGap is the least time between two answers, so that many changes are read together.
	watchGap = 50 * time.Millisecond
	// watchRetry is the longest pause after an error.
	watchRetry = time.Second
)

// watch repeats a query until ctx ends, each time for changes after the last answer. ask handles an answer and
// returns its index.
func (c *Consul) watch(ctx context.Context, what string, ask func(*api.QueryOptions) (uint64, error)) {
	var index uint64
	pauses := wait.Backoff{First: 2 * watchGap, Most: watchRetry}
	for ctx.Err() == nil {
		most := jitter(watchFor)
		// Consul itself adds up to a sixteenth.
		limited, cancel := context.WithTimeout(ctx, most+most/16+c.cfg.TTL)
		// Consistent, since a restarted server may answer from its past.
		at, err := ask((&api.QueryOptions{WaitIndex: index, WaitTime: most, RequireConsistent: true}).WithContext(limited))
		cancel()
		if err != nil {
			pause := pauses.Next()
			if pause == pauses.First && ctx.Err() == nil && !unreachable(err) { // the heartbeat logs the rest
				c.cfg.Logger.Error("consul refuses a watch", "of", what, "error", err)
			}
			index = 0 // the next server may know less, or more
			_ = wait.For(ctx, jitter(pause))
			continue
		}
		pauses.Reset()
		if at < index { // restored from a snapshot, for example
			at = 0
		}
		index = at
		_ = wait.For(ctx, watchGap)
	}
}

// jitter is d, more or less by up to a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
