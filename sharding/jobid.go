package sharding

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A job_id is 63 bits, so it fits a signed BIGINT anywhere:
//
//	milliseconds since 2025-01-01 UTC (40 bits) | shard (13 bits) | worker (10 bits)
//
// It is stored in every row. If you change it, rows written before keep the
// old form: bump the store's layout version and write a migration first.
const (
	workerBits = 10
	shardBits  = 13
	timeBits   = 40

	// HandWorker is the worker number of ids made by hand in SQL. No process
	// leases it.
	HandWorker = 1<<workerBits - 1
	// MaxWorker is the highest worker number that a process may lease.
	MaxWorker = HandWorker - 1

	maxMillis = 1<<timeBits - 1
)

// Epoch is the zero of a job_id's time: 2025-01-01 UTC.
var Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// ShardOf reads the shard that a job_id carries. The id may be anything that a
// user typed: ok is false if the layout has no such shard.
func (l Layout) ShardOf(jobID uint64) (shard int, ok bool) {
	if jobID>>(workerBits+shardBits+timeBits) != 0 {
		return 0, false
	}
	shard = int(jobID >> workerBits & (MaxShards - 1))
	return shard, shard < l.Shards()
}

// LastID is the greatest job_id that carries a shard.
func LastID(shard int) uint64 {
	return uint64(maxMillis)<<(workerBits+shardBits) | uint64(shard)<<workerBits | HandWorker
}

// WorkerOf reads the worker number that a job_id carries.
func WorkerOf(jobID uint64) int { return int(jobID & HandWorker) }

// JobID puts an id together. Times before the epoch and after 2059 do not fit.
func JobID(at time.Time, shard, worker int) (uint64, error) {
	ms := at.UnixMilli() - Epoch.UnixMilli()
	if ms < 0 || ms > maxMillis {
		return 0, fmt.Errorf("the clock says %s: a job_id holds times from 2025-01-01 to 2059 only", at.UTC().Format(time.RFC3339))
	}
	return compose(uint64(ms), shard, worker), nil
}

func compose(ms uint64, shard, worker int) uint64 {
	return ms<<(workerBits+shardBits) | uint64(shard)<<workerBits | uint64(worker)
}

// IDs makes job_ids for one worker. Within one shard it never uses a
// millisecond twice: when the clock stands still, steps back, or more than one
// id a millisecond is asked for, it borrows the next one.
//
// After a restart a borrowed millisecond can come again; the store then sees a
// duplicate key, calls Advance, and takes a new id.
type IDs struct {
	layout Layout
	worker atomic.Int64
	now    func() time.Time
	last   []atomic.Int64 // per shard: the last millisecond used
}

// NewIDs makes a generator for a worker number from 0 to MaxWorker. now is the
// wall clock.
func NewIDs(layout Layout, worker int, now func() time.Time) (*IDs, error) {
	if _, err := JobID(now(), 0, worker); err != nil {
		return nil, err
	}
	g := &IDs{layout: layout, now: now, last: make([]atomic.Int64, layout.Shards())}
	if err := g.SetWorker(worker); err != nil {
		return nil, err
	}
	return g, nil
}

// SetWorker changes the worker number, from 0 to MaxWorker: a node of a cluster
// leases it, and may have to lease another.
func (g *IDs) SetWorker(worker int) error {
	if worker < 0 || worker > MaxWorker {
		return fmt.Errorf("worker number %d is not from 0 to %d", worker, MaxWorker)
	}
	g.worker.Store(int64(worker))
	return nil
}

// Next makes an id in the given shard.
func (g *IDs) Next(shard int) uint64 {
	now := g.now().UnixMilli() - Epoch.UnixMilli()
	last := &g.last[shard]
	for {
		seen := last.Load()
		ms := max(now, seen+1)
		if last.CompareAndSwap(seen, ms) {
			return compose(uint64(ms), shard, int(g.worker.Load()))
		}
	}
}

// Advance makes sure that the ids to come in jobID's shard are later than it.
func (g *IDs) Advance(jobID uint64) {
	shard, ok := g.layout.ShardOf(jobID)
	if !ok {
		return
	}
	ms := int64(jobID >> (workerBits + shardBits))
	for last := &g.last[shard]; ; {
		seen := last.Load()
		if seen >= ms || last.CompareAndSwap(seen, ms) {
			return
		}
	}
}
