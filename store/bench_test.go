package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// BenchmarkMySQL measures the store beside the same work in hand-written SQL
// (raw_test.go) on the same tables of the same server. An op is one row, or one
// pass over all partitions where that is said.
func BenchmarkMySQL(b *testing.B) {
	server := testrig.StartMySQL(b, testrig.BufferPool("2G"))
	for _, tables := range []int{128, 1024} {
		b.Run(fmt.Sprintf("8x%d", tables), func(b *testing.B) {
			layout := sharding.Layout{Databases: 8, TablesPerDatabase: tables, Partitions: 256}
			prefix := fmt.Sprintf("%s%d_", server.Prefix(), tables)
			f := openFixture(b, store.Config{
				Driver: store.MySQL, Layout: layout, DSN: "root@tcp(" + server.Addr() + ")/" + prefix + "%d",
			})
			r := newRaw(b, f)
			require.Empty(b, f.due(b, store.Due{Until: f.in(0), PerPage: 500}), "opens all tables")
			b.Run("insert 1000 by 8 callers/raw", r.insertBatches)
			b.Run("insert 1000 by 8 callers/store", f.benchInsertBatches)
			b.Run("insert one by 32 callers/raw", r.insertSingles)
			b.Run("insert one by 32 callers/store", f.benchInsertSingles)
			b.Run("finish 256 of a partition/raw", r.finish)
			b.Run("finish 256 of a partition/store", f.benchFinish)
			b.Run("idle pass/raw", r.idlePass)
			b.Run("idle pass/store", f.benchIdlePass)
		})
	}
}

// share splits b.N rows among callers, which take up to size of them at a time.
func share(b *testing.B, callers, size int, work func(caller, n int) error) {
	var taken atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for {
				end := taken.Add(int64(size))
				n := size - max(0, int(end)-b.N)
				if n <= 0 {
					return
				}
				if err := work(c, n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func reportRows(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// parked is a task of a random table that is due far from now.
func (f *fixture) parked(biz uint64) task.Task {
	return task.Task{BizID: biz, BizType: 1, ActionTime: f.clock.Now().Add(time.Hour), Attribute: `{"order":"4711","reason":"unpaid"}`}
}

// bizOf is a random biz_id of a shard.
func (f *fixture) bizOf(shard int) uint64 {
	return bizIDs(f.layout, shard, 1)[0] + rand.Uint64N(1<<40)*uint64(f.layout.Shards())
}

func firstError(results []store.Inserted) error {
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (f *fixture) benchInsertBatches(b *testing.B) {
	b.ReportAllocs()
	share(b, 8, 1000, func(_, n int) error {
		batch := make([]task.Task, n)
		for i := range batch {
			batch[i] = f.parked(rand.Uint64())
		}
		return firstError(f.Insert(b.Context(), batch))
	})
	reportRows(b)
}

func (f *fixture) benchInsertSingles(b *testing.B) {
	b.ReportAllocs()
	share(b, 32, 1, func(int, int) error {
		return firstError(f.Insert(b.Context(), []task.Task{f.parked(rand.Uint64())}))
	})
	reportRows(b)
}

// load256 stores rows of a random partition of a database, and gives their ids.
func (f *fixture) load256(b *testing.B, database, n int) []uint64 {
	first, end := f.layout.DatabasePartitions(database)
	from, to := f.layout.PartitionShards(first + rand.IntN(end-first))
	batch := make([]task.Task, n)
	for i := range batch {
		shard := from + rand.IntN(to-from)
		batch[i] = f.parked(f.bizOf(shard))
	}
	ids := make([]uint64, n)
	for i, r := range f.Insert(b.Context(), batch) {
		require.NoError(b, r.Err)
		ids[i] = r.Task.JobID
	}
	slices.Sort(ids)
	return ids
}

// finishing prepares b.N rows in batches of one partition, and lets one caller a
// database finish them, as one flush a database is in flight.
func (f *fixture) finishing(b *testing.B, finish func(database int, ids []uint64) error) {
	b.StopTimer()
	batches := make([]chan []uint64, f.layout.Databases)
	for d := range batches {
		batches[d] = make(chan []uint64, b.N/256+1)
	}
	for left, d := b.N, 0; left > 0; left, d = left-256, (d+1)%len(batches) {
		batches[d] <- f.load256(b, d, min(256, left))
	}
	b.StartTimer()
	var wg sync.WaitGroup
	for d, ready := range batches {
		close(ready)
		wg.Go(func() {
			for ids := range ready {
				if err := finish(d, ids); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	reportRows(b)
}

func (f *fixture) benchFinish(b *testing.B) {
	b.ReportAllocs()
	f.finishing(b, func(database int, ids []uint64) error {
		moves := make([]store.Move, len(ids))
		for i, id := range ids {
			moves[i] = store.Move{JobID: id, To: task.Processed}
		}
		applied, err := f.Apply(b.Context(), database, f.Stamp(database), moves)
		if err == nil && slices.Contains(applied, false) {
			err = fmt.Errorf("not all of %d rows were pending", len(ids))
		}
		return err
	})
}

// passes makes b.N passes over all partitions, all databases at the same time.
func (f *fixture) passes(b *testing.B, read func(partition int) (rows int, err error)) {
	for range b.N {
		var wg sync.WaitGroup
		for d := range f.layout.Databases {
			wg.Go(func() {
				first, end := f.layout.DatabasePartitions(d)
				for p := first; p < end; p++ {
					if n, err := read(p); n > 0 || err != nil {
						b.Errorf("%d rows, %v", n, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func (f *fixture) benchIdlePass(b *testing.B) {
	b.ReportAllocs()
	f.passes(b, func(p int) (int, error) {
		page, err := f.DuePages(p, store.Due{Until: f.in(0), PerPage: 500}).Next(b.Context())
		return len(page), err
	})
}

// BenchmarkReadDue reads a page of 512 due tasks of a partition, of one table or of 32: by the store and by GORM.
func BenchmarkReadDue(b *testing.B) {
	for name, p := range map[string]place{"sqlite": onSQLite(), "mysql": onMySQL()} {
		for _, tables := range []int{1, 32} {
			const rows = 512
			f := p.open(b, sharding.Layout{Databases: 1, TablesPerDatabase: 32, Partitions: 32 / tables})
			batch := make([]task.Task, rows)
			for i := range batch {
				batch[i] = task.Task{BizID: f.bizOf(i % tables), BizType: 1, ActionTime: f.in(i), Attribute: f.parked(0).Attribute}
			}
			f.put(b, batch...)
			until := f.in(rows)
			for by, read := range map[string]func() ([]task.Task, error){
				"hand": func() ([]task.Task, error) {
					return f.DuePages(0, store.Due{Until: until, PerPage: rows}).Next(b.Context())
				},
				"gorm": func() ([]task.Task, error) {
					return store.DueByGORM(b.Context(), f.Store, 0, until, rows/tables)
				},
			} {
				b.Run(fmt.Sprintf("%s/%d tables/%s", name, tables, by), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						page, err := read()
						require.NoError(b, err)
						require.Len(b, page, rows)
					}
				})
			}
		}
	}
}
