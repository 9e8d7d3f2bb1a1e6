package scanner

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// purgePause is the rest between two batches of deletions, which keeps the
// purge off the hot path.
const purgePause = 50 * time.Millisecond

// purge deletes finished rows that are older than the retention, all the time
// and slowly, until ctx ends. A round starts every tenth of the retention, at
// least every hour and at most every ten seconds; for what was cancelled before its
// time, a tenth of the retention after the last one.
//
// What is deleted is gone, so a row must be old enough by two clocks: ours, and that of
// its database (store.Clock), which a jump of ours does not move.
func (s *Scanner) purge(ctx context.Context) error {
	every := min(max(s.cfg.Retention/10, 10*time.Second), time.Hour)
	var early time.Time // when what was cancelled before its time was purged last
	for {
		if err := wait.For(ctx, every); err != nil {
			return err
		}
		kinds := []purgeFunc{s.cfg.Store.Purge}
		if now := s.cfg.Now(); now.Sub(early) >= s.cfg.Retention/10 {
			early = now
			kinds = append(kinds, s.cfg.Store.PurgeEarly)
		}
		for p := range s.cfg.Layout.Partitions {
			for _, purge := range kinds {
				if err := s.purgePartition(ctx, p, purge); err != nil {
					return err
				}
			}
		}
	}
}

// purgeFunc deletes a batch of finished rows; see store.Purge.
type purgeFunc func(ctx context.Context, partition int, before time.Time) (int, error)

func (s *Scanner) purgePartition(ctx context.Context, p int, purge purgeFunc) error {
	for s.cfg.Ownership.Owns(p) {
		now, err := s.earlierNow(ctx, p)
		n := 0
		if err == nil {
			n, err = purge(ctx, p, now.Add(-s.cfg.Retention))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.cfg.Logger.Warn("finished rows not purged; trying again in the next round", "partition", p, "error", err)
			return nil
		case n == 0:
			return nil
		}
		if err := wait.For(ctx, purgePause); err != nil {
			return err
		}
	}
	return nil
}

// earlierNow is the time now by our clock or by that of a partition's database.
func (s *Scanner) earlierNow(ctx context.Context, partition int) (time.Time, error) {
	theirs, err := s.cfg.Store.Clock(ctx, s.cfg.Layout.PartitionDatabase(partition))
	if ours := s.cfg.Now(); ours.Before(theirs) {
		return ours, err
	}
	return theirs, err
}
