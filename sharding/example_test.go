package sharding_test

import (
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// The biz_id says which table has its tasks, and which partition owns that table.
func ExampleLayout_Shard() {
	layout := sharding.Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}
	shard := layout.Shard(1_000_042)
	fmt.Printf("toc_%d.%s\n", layout.Database(shard), sharding.TableName(layout.Table(shard)))
	fmt.Println("partition", layout.Partition(shard))
	// Output:
	// toc_2.timeout_task_0077
	// partition 66
}

// A job_id carries its shard, so a task is found by it without a look into all tables.
func ExampleLayout_ShardOf() {
	layout := sharding.Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}
	created := time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)
	jobID, err := sharding.JobID(created, layout.Shard(1_000_042), sharding.HandWorker) // as for an INSERT by hand
	fmt.Println(jobID, err)
	shard, ok := layout.ShardOf(jobID)
	fmt.Println(shard == layout.Shard(1_000_042), ok)
	fmt.Println(sharding.WorkerOf(jobID) == sharding.HandWorker)
	// Output:
	// 499023190427777023 <nil>
	// true true
	// true
}

// The ids of a shard differ, also while the clock stands still.
func ExampleIDs() {
	layout := sharding.Layout{Databases: 1, TablesPerDatabase: 4, Partitions: 4}
	still := func() time.Time { return sharding.Epoch.Add(time.Second) }
	ids, err := sharding.NewIDs(layout, 7, still)
	fmt.Println(err)
	first, second := ids.Next(0), ids.Next(0)
	fmt.Println("of worker", sharding.WorkerOf(first), "in order:", first < second)
	// Output:
	// <nil>
	// of worker 7 in order: true
}
