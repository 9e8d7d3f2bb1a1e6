package scanner

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// purgePause is the pause between two batches of deletions. It keeps the load of the purge low.
const purgePause = 50 * time.Millisecond

// purging is a kind of rows that are purged: after their retention, by the functions.
type purging struct {
	retention time.Duration // 0: never
	each      purgeFunc     // in each round
	seldom    purgeFunc     // once in a tenth of the retention; may be nil
}

func (s *Scanner) purges() []purging {
	return []purging{
		{s.cfg.Retention, s.cfg.Store.Purge, s.cfg.Store.PurgeEarly},
		{s.cfg.DeadRetention, s.purgeDead, nil},
		{s.cfg.AuditRetention, s.purgeAudit, nil},
	}
}

// purge deletes rows that are older than the retention, slowly and until ctx ends. A round starts every tenth of the
// retention, at least every hour and at most every ten seconds.
//
// Deletion cannot be undone, so a row must be old enough by two clocks: this node's, and that of its database
// (store.Clock), which does not jump when ours does.
func (s *Scanner) purge(ctx context.Context, rows purging) error {
	every := min(max(rows.retention/10, 10*time.Second), time.Hour)
	var last time.Time // the last of the seldom ones
	for {
		if err := wait.For(ctx, every); err != nil {
			return err
		}
		kinds := []purgeFunc{rows.each}
		if now := s.cfg.Now(); rows.seldom != nil && now.Sub(last) >= rows.retention/10 {
			last = now
			kinds = append(kinds, rows.seldom)
		}
		for p := range s.cfg.Layout.Partitions {
			for _, purge := range kinds {
				if err := s.purgePartition(ctx, p, rows.retention, purge); err != nil {
					return err
				}
			}
		}
	}
}

// purgeDead purges the dead of a partition, and then those that the Timer lists.
func (s *Scanner) purgeDead(ctx context.Context, partition int, before time.Time) (int, error) {
	n, err := s.cfg.Store.PurgeDead(ctx, partition, before)
	if n == 0 && err == nil && s.cfg.Timer != nil {
		s.cfg.Timer.PurgeDead(ctx, partition, before)
	}
	return n, err
}

// purgeAudit purges the audit of a database: that is up to the owner of its first partition.
func (s *Scanner) purgeAudit(ctx context.Context, partition int, before time.Time) (int, error) {
	database := s.cfg.Layout.PartitionDatabase(partition)
	if partition > 0 && s.cfg.Layout.PartitionDatabase(partition-1) == database {
		return 0, nil
	}
	return s.cfg.Store.PurgeAudit(ctx, database, before)
}

// purgeFunc deletes a batch of rows; see store.Purge.
type purgeFunc func(ctx context.Context, partition int, before time.Time) (int, error)

func (s *Scanner) purgePartition(ctx context.Context, p int, retention time.Duration, purge purgeFunc) error {
	for s.cfg.Ownership.Owns(p) {
		now, err := s.earlierNow(ctx, p)
		n := 0
		if err == nil {
			n, err = purge(ctx, p, now.Add(-retention))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.cfg.Logger.Warn("old rows not purged; trying again in the next round", "partition", p, "error", err)
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
