package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

const benchBatch = 256

func benchItems(due time.Time) []queue.Item {
	items := make([]queue.Item, benchBatch)
	for i := range items {
		items[i] = queue.Item{Task: task.Task{JobID: uint64(i + 1), BizType: orders, ActionTime: due}, Partition: i % 4}
	}
	return items
}

// perTask reports ns and allocations of one task instead of one batch.
func perTask(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchBatch), "ns/task")
}

// BenchmarkDueTasks measures a backlog: offered, taken, done.
func BenchmarkDueTasks(b *testing.B) {
	for _, most := range []int{1, benchBatch} {
		b.Run(map[int]string{1: "one by one", benchBatch: "in batches"}[most], func(b *testing.B) {
			q := queue.New(queue.Config{Partitions: 4})
			consumer := q.AddType(task.BizType{ID: orders})
			ctx := context.Background()
			items := benchItems(time.Now().Add(-time.Second))
			b.ReportAllocs()
			for b.Loop() {
				read := q.BeginRead(0)
				q.Offer(read, items...)
				read.End()
				for done := 0; done < benchBatch; {
					taken, err := consumer.Take(ctx, most)
					if err != nil {
						b.Fatal(err)
					}
					for _, e := range taken {
						q.Done(e, e.Task, false)
					}
					done += len(taken)
				}
			}
			perTask(b)
		})
	}
}

// BenchmarkWaitingTasks measures a task that was read before its time: offered, checked, taken, done, while a
// thousand others wait.
func BenchmarkWaitingTasks(b *testing.B) {
	now := time.Now()
	q := queue.New(queue.Config{Partitions: 4, Now: func() time.Time { return now }})
	consumer := q.AddType(task.BizType{ID: orders})
	ctx := context.Background()
	for i := range 1000 {
		q.Offer(nil, queue.Item{Task: task.Task{JobID: uint64(1_000_000 + i), BizType: orders, ActionTime: now.AddDate(1, 0, i)}})
	}
	b.ReportAllocs()
	for b.Loop() {
		items := benchItems(now.Add(10 * time.Millisecond))
		rows := make(map[uint64]task.Task, len(items))
		for i := range items {
			rows[items[i].Task.JobID] = items[i].Task
		}
		q.Offer(nil, items...)
		for checked := 0; checked < benchBatch; {
			entries, err := q.NextChecks(ctx)
			if err != nil {
				b.Fatal(err)
			}
			q.ApplyChecks(entries, rows)
			checked += len(entries)
		}
		now = now.Add(10 * time.Millisecond)
		taken, err := consumer.Take(ctx, benchBatch)
		if err != nil || len(taken) != benchBatch {
			b.Fatal(len(taken), err)
		}
		for _, e := range taken {
			q.Done(e, e.Task, false)
		}
	}
	perTask(b)
}

// BenchmarkAFullQueue rejects a page, or lets it displace later tasks.
func BenchmarkAFullQueue(b *testing.B) {
	now := time.Now()
	q := queue.New(queue.Config{Partitions: 4, Capacity: 10_000, Now: func() time.Time { return now }})
	q.AddType(task.BizType{ID: orders})
	id := uint64(0)
	page := func(due time.Time) []queue.Item {
		items := benchItems(due)
		for i := range items {
			id++
			items[i].Task.JobID = id
		}
		return items
	}
	for range 40 {
		q.Offer(nil, page(now.Add(time.Hour))...)
	}
	far := now.Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		far = far.Add(-time.Microsecond)
		q.Offer(nil, page(far)...)
	}
	perTask(b)
}
