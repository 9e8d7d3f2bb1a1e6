package scanner

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// purgePause is the pause between two batches of deletions. It keeps the load of the purge low.
const purgePause = 50 * time.Millisecond

// purging is a kind of rows that are purged: after their retention, by the functions.
type purging struct {
	retention time.Duration // 0: never
	each      purgeFunc     // in each round
	seldom    purgeFunc     // once in a tenth of the retention; may be nil
	lags      []time.Duration
}

// purges returns what is purged, for as many databases as there are.
func (s *Scanner) purges() []*purging {
	list := []*purging{
		{retention: s.cfg.Retention, each: s.cfg.Store.Purge, seldom: s.cfg.Store.PurgeEarly},
		{retention: s.cfg.DeadRetention, each: s.purgeDead},
		{retention: s.cfg.AuditRetention, each: s.purgeAudit},
	}
	for _, rows := range list {
		rows.lags = make([]time.Duration, s.cfg.Layout.Databases)
	}
	return list
}

// purge deletes rows that are older than the retention, slowly and until ctx ends. A round starts every tenth of the
// retention, at least every hour and at most every ten seconds.
//
// Deletion cannot be undone, so a row must be old enough by two clocks: this node's, and that of its database
// (store.Clock), which does not jump when ours does.
func (s *Scanner) purge(ctx context.Context, rows *purging) error {
	every := min(max(rows.retention/10, 10*time.Second), time.Hour)
	var last time.Time // the last of the seldom ones
	for d := range rows.lags {
		s.noteLag(rows, d, 0)
	}
	for {
		if err := wait.For(ctx, every); err != nil {
			return err
		}
		kinds := []purgeFunc{rows.each}
		if now := s.cfg.Now(); rows.seldom != nil && now.Sub(last) >= rows.retention/10 {
			last = now
			kinds = append(kinds, rows.seldom)
		}
		for d := range s.cfg.Layout.Databases {
			first, end := s.cfg.Layout.DatabasePartitions(d)
			lag := time.Duration(0)
			for p := first; p < end; p++ {
				for _, purge := range kinds {
					late, err := s.purgePartition(ctx, p, rows.retention, purge)
					switch {
					case ctx.Err() != nil:
						return ctx.Err()
					case err != nil && late == 0:
						late = rows.lags[d] + every // the rows that are left there are unknown
					}
					lag = max(lag, late)
				}
			}
			s.noteLag(rows, d, lag)
		}
	}
}

// noteLag reports the greatest lag of all kinds of rows of a database.
func (s *Scanner) noteLag(rows *purging, database int, lag time.Duration) {
	s.purgeLags.Lock()
	defer s.purgeLags.Unlock()
	rows.lags[database] = lag
	for _, other := range s.purging {
		lag = max(lag, other.lags[database])
	}
	s.cfg.Observer.PurgeLag(database, lag)
}

// purgeDead purges the dead tasks of a partition, and then the Timer's dead queues.
func (s *Scanner) purgeDead(ctx context.Context, partition int, before time.Time) (store.Purged, error) {
	p, err := s.cfg.Store.PurgeDead(ctx, partition, before)
	if p.Rows() == 0 && err == nil && s.cfg.Timer != nil {
		s.cfg.Timer.PurgeDead(ctx, partition, before)
	}
	return p, err
}

// purgeAudit purges the audit of a database: that is up to the owner of its first partition.
func (s *Scanner) purgeAudit(ctx context.Context, partition int, before time.Time) (p store.Purged, err error) {
	database := s.cfg.Layout.PartitionDatabase(partition)
	if partition > 0 && s.cfg.Layout.PartitionDatabase(partition-1) == database {
		return p, nil
	}
	p.Entries, err = s.cfg.Store.PurgeAudit(ctx, database, before)
	return p, err
}

// purgeFunc deletes a batch of rows; see store.Purge.
type purgeFunc func(ctx context.Context, partition int, before time.Time) (store.Purged, error)

// purgePartition deletes batch after batch until none is left. It returns for how long the oldest row that is left should be gone.
func (s *Scanner) purgePartition(ctx context.Context, partition int, retention time.Duration,
	purge purgeFunc) (lag time.Duration, err error) {
	for s.cfg.Ownership.Owns(partition) {
		now, err := s.earlierNow(ctx, partition)
		var p store.Purged
		if err == nil {
			p, err = purge(ctx, partition, now.Add(-retention))
		}
		if lag = 0; !p.Oldest.IsZero() {
			lag = now.Add(-retention).Sub(p.Oldest)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Logger.Warn("old rows not purged; trying again in the next round", "partition", partition, "error", err)
			}
			return lag, err
		}
		if p.Rows() == 0 {
			return lag, nil
		}
		s.cfg.Observer.Purged(p)
		if err := wait.For(ctx, purgePause); err != nil {
			return lag, err
		}
	}
	return 0, nil
}

// earlierNow is the earlier of two times: by this node's clock, and by that of the partition's database.
func (s *Scanner) earlierNow(ctx context.Context, partition int) (time.Time, error) {
	theirs, err := s.cfg.Store.Clock(ctx, s.cfg.Layout.PartitionDatabase(partition))
	if ours := s.cfg.Now(); ours.Before(theirs) {
		return ours, err
	}
	return theirs, err
}
