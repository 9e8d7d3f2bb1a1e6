package scanner

import (
	"context"
	"time"
)

// purgePause is the rest between two batches of deletions, which keeps the
// purge off the hot path.
const purgePause = 50 * time.Millisecond

// purge deletes finished rows that are older than the retention, all the time
// and slowly, until ctx ends. A round starts every tenth of the retention, at
// least every hour and at most every ten seconds.
func (s *Scanner) purge(ctx context.Context) error {
	every := min(max(s.cfg.Retention/10, 10*time.Second), time.Hour)
	for {
		if err := pause(ctx, every); err != nil {
			return err
		}
		for p := range s.cfg.Layout.Partitions {
			if err := s.purgePartition(ctx, p); err != nil {
				return err
			}
		}
	}
}

func (s *Scanner) purgePartition(ctx context.Context, p int) error {
	for s.cfg.Ownership.Owns(p) {
		n, err := s.cfg.Store.Purge(ctx, p, s.cfg.Now().Add(-s.cfg.Retention))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.cfg.Logger.Warn("finished rows not purged; trying again in the next round", "partition", p, "error", err)
			return nil
		case n == 0:
			return nil
		}
		if err := pause(ctx, purgePause); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
