package scanner

import (
	"cmp"
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
)

// The pause after a batch of deletions is purgeRest times as long as the batch took, but purgePause at most. The first round begins
// firstPurge after the start.
const (
	purgeRest  = 15
	purgePause = 50 * time.Millisecond
	firstPurge = time.Minute
)

// purger deletes the rows of a database that are older than their retention. A round visits each partition once. One starts every tenth
// of the shortest retention, at least every hour and at most every ten seconds, so that the rows of a table gather.
//
// Deletion cannot be undone, so a row must be old enough by two clocks: this node's, and that of its database
// (store.Clock), which does not jump when ours does.
type purger struct {
	*Scanner
	database int
	kinds    []purging
	every    time.Duration // from the start of a round to the next one
	began    time.Time     // the round, monotonic
	lag      time.Duration // see Observer
}

// purging is a kind of rows that are purged. purge deletes a batch; see store.Purge.
type purging struct {
	retention time.Duration // 0: never
	seldom    bool          // once in a tenth of the retention, not in each round
	purge     func(ctx context.Context, partition int, before time.Time) (store.Purged, error)
}

func (s *Scanner) newPurger(database int) *purger {
	p := &purger{Scanner: s, database: database, every: time.Hour}
	for _, rows := range []purging{
		{retention: s.cfg.Retention, purge: s.cfg.Store.Purge},
		{retention: s.cfg.Retention, purge: s.cfg.Store.PurgeEarly, seldom: true},
		{retention: s.cfg.DeadRetention, purge: s.purgeDead},
		{retention: s.cfg.AuditRetention, purge: s.purgeAudit},
	} {
		if rows.retention > 0 {
			p.kinds = append(p.kinds, rows)
			p.every = min(p.every, max(rows.retention/10, 10*time.Second))
		}
	}
	return p
}

// run makes rounds until ctx ends.
func (p *purger) run(ctx context.Context) error {
	p.noteLag(0)
	p.began = time.Now()
	for round, rest := 0, min(firstPurge, p.every); ; round, rest = round+1, p.every {
		if err := wait.For(ctx, rest-time.Since(p.began)); err != nil {
			return err
		}
		lag, unknown := time.Duration(0), p.lag+time.Since(p.began)
		p.began = time.Now()
		for partition, end := p.cfg.Layout.DatabasePartitions(p.database); partition < end; partition++ {
			for _, rows := range p.kinds {
				if rows.seldom && round%max(1, int(rows.retention/10/p.every)) > 0 {
					continue
				}
				late, err := p.purgePartition(ctx, partition, rows)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					p.cfg.Logger.Warn("old rows not purged; trying again in the next round", "partition", partition, "error", err)
					late = cmp.Or(late, unknown)
				}
				lag = max(lag, late)
			}
		}
		p.noteLag(lag)
	}
}

func (p *purger) noteLag(lag time.Duration) {
	p.lag = lag
	p.cfg.Observer.PurgeLag(p.database, lag)
}

// purgePartition deletes batch after batch, until no old row is left or only locked ones. It returns for how long the oldest row that
// is left should be gone.
func (p *purger) purgePartition(ctx context.Context, partition int, rows purging) (lag time.Duration, err error) {
	locked := 0
	defer func() {
		if locked > 0 {
			p.cfg.Logger.Warn("old rows not purged, which another transaction has locked; trying again in the next round",
				"partition", partition, "rows", locked)
		}
	}()
	for p.cfg.Ownership.Owns(partition) {
		began := time.Now()
		before, err := p.earlierNow(ctx, partition)
		if err != nil {
			return 0, err
		}
		before = before.Add(-rows.retention)
		batch, err := rows.purge(ctx, partition, before)
		if lag = 0; !batch.Oldest.IsZero() {
			lag = before.Sub(batch.Oldest)
		}
		if err != nil {
			return lag, err
		}
		if lag > 2*p.every { // the rounds take too long
			p.noteLag(lag)
		}
		locked = batch.Locked
		p.cfg.Observer.Purged(batch)
		if err := wait.For(ctx, p.pause(time.Since(began))); err != nil || batch.Rows() == 0 {
			return lag, err
		}
		if !batch.More && locked == 0 {
			break
		}
	}
	return 0, nil
}

// pause is the pause after a batch that took so long. It becomes shorter while the time of the round is used up, but not shorter
// than the batch took: so a purge that falls behind takes half of the time of a connection at most.
func (p *purger) pause(took time.Duration) time.Duration {
	left := 1 - float64(time.Since(p.began))/float64(p.every)
	rest := time.Duration(left * float64(min(purgeRest*took, purgePause)))
	return max(rest, took)
}

// purgeDead purges the dead tasks of a partition, and then the Timer's dead queues.
func (s *Scanner) purgeDead(ctx context.Context, partition int, before time.Time) (store.Purged, error) {
	p, err := s.cfg.Store.PurgeDead(ctx, partition, before)
	if !p.More && err == nil && s.cfg.Timer != nil {
		s.cfg.Timer.PurgeDead(ctx, partition, before)
	}
	return p, err
}

// purgeAudit purges the audit of a database: that is up to the owner of its first partition.
func (s *Scanner) purgeAudit(ctx context.Context, partition int, before time.Time) (p store.Purged, err error) {
	database := s.cfg.Layout.PartitionDatabase(partition)
	if first, _ := s.cfg.Layout.DatabasePartitions(database); partition == first {
		p.Entries, err = s.cfg.Store.PurgeAudit(ctx, database, before)
	}
	p.More = p.Entries > 0
	return p, err
}

// earlierNow is the earlier of two times: by this node's clock, and by that of the partition's database.
func (s *Scanner) earlierNow(ctx context.Context, partition int) (time.Time, error) {
	theirs, err := s.cfg.Store.Clock(ctx, s.cfg.Layout.PartitionDatabase(partition))
	if ours := s.cfg.Now(); ours.Before(theirs) {
		return ours, err
	}
	return theirs, err
}
