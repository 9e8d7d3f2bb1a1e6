package scanner

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// purgePause is the pause between two batches of deletions. It keeps the load of the purge low.
const purgePause = 50 * time.Millisecond

// purge deletes finished rows that are older than the retention, slowly and until ctx ends. A round starts
// every tenth of the retention, at least every hour and at most every ten seconds. Tasks that were cancelled
// before their time are purged once in a tenth of the retention.
//
// Deletion cannot be undone, so a row must be old enough by two clocks: this node's, and that of its database
// (store.Clock), which does not jump when ours does.
func (s *Scanner) purge(ctx context.Context) error {
	every := min(max(s.cfg.Retention/10, 10*time.Second), time.Hour)
	var early time.Time // the last purge of tasks that were cancelled before their time
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

// earlierNow is the earlier of two times: by this node's clock, and by that of the partition's database.
func (s *Scanner) earlierNow(ctx context.Context, partition int) (time.Time, error) {
	theirs, err := s.cfg.Store.Clock(ctx, s.cfg.Layout.PartitionDatabase(partition))
	if ours := s.cfg.Now(); ours.Before(theirs) {
		return ours, err
	}
	return theirs, err
}
