// Package sharding answers where a task lives: biz_id → shard → database,
// table, partition, and which shard a job_id carries.
//
// A biz_id or a job_id comes in, numbers go out. It is pure arithmetic over a
// Layout and does not know any database.
//
//	database  = biz_id mod D
//	table     = (biz_id div D) mod T
//	shard     = database × T + table            0 … D×T−1
//	partition = shard div (D×T / P)             0 … P−1, inside one database
//
// D, T and P are powers of two with D ≤ P ≤ D×T, so the shards of a partition
// are neighbours in one database. The partition is the unit that a node owns.
package sharding

import (
	"fmt"
	"math/bits"
)

// MaxShards is how many shards a job_id can name: 13 bits.
const MaxShards = 1 << shardBits

// Layout is the shape of a store. The zero value is not usable; see Validate.
type Layout struct {
	Databases         int // D
	TablesPerDatabase int // T
	Partitions        int // P
}

// Validate returns an error with the configuration key if a layout is wrong.
func (l Layout) Validate() error {
	switch {
	case !IsPowerOfTwo(l.Databases):
		return fmt.Errorf("store.databases: %d is not a power of two", l.Databases)
	case !IsPowerOfTwo(l.TablesPerDatabase):
		return fmt.Errorf("store.tables_per_database: %d is not a power of two", l.TablesPerDatabase)
	case l.Databases*l.TablesPerDatabase > MaxShards:
		return fmt.Errorf("store.databases × store.tables_per_database: %d × %d is more than %d tables",
			l.Databases, l.TablesPerDatabase, MaxShards)
	case !IsPowerOfTwo(l.Partitions) || l.Partitions < l.Databases || l.Partitions > l.Shards():
		return fmt.Errorf("cluster.partitions: %d is not a power of two from %d (databases) to %d (tables in all)",
			l.Partitions, l.Databases, l.Shards())
	}
	return nil
}

// IsPowerOfTwo reports whether n is 1, 2, 4 and so on.
func IsPowerOfTwo(n int) bool { return n > 0 && bits.OnesCount(uint(n)) == 1 }

// Shards is how many tables there are in all.
func (l Layout) Shards() int { return l.Databases * l.TablesPerDatabase }

// Shard is where the tasks of a biz_id live.
func (l Layout) Shard(bizID uint64) int {
	d, t := uint64(l.Databases), uint64(l.TablesPerDatabase)
	return int(bizID%d*t + bizID/d%t)
}

// Database is the database of a shard.
func (l Layout) Database(shard int) int { return shard / l.TablesPerDatabase }

// Table is the table of a shard within its database.
func (l Layout) Table(shard int) int { return shard % l.TablesPerDatabase }

// Partition is the partition of a shard.
func (l Layout) Partition(shard int) int { return shard / l.ShardsPerPartition() }

// ShardsPerPartition is how many neighbouring shards make a partition.
func (l Layout) ShardsPerPartition() int { return l.Shards() / l.Partitions }

// PartitionShards gives the shards of a partition as the half-open range
// [first, end).
func (l Layout) PartitionShards(partition int) (first, end int) {
	n := l.ShardsPerPartition()
	return partition * n, (partition + 1) * n
}

// PartitionDatabase is the one database that all tables of a partition are in.
func (l Layout) PartitionDatabase(partition int) int {
	return partition / (l.Partitions / l.Databases)
}

// DatabasePartitions gives the partitions of a database as the half-open range
// [first, end).
func (l Layout) DatabasePartitions(database int) (first, end int) {
	n := l.Partitions / l.Databases
	return database * n, (database + 1) * n
}

// TableName is the name of a table within its database: timeout_task_0007.
func TableName(table int) string { return fmt.Sprintf("timeout_task_%04d", table) }
