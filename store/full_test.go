package store_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// TestMySQLFullLayout works on two of the databases that a cluster may have, of 1024 tables each.
func TestMySQLFullLayout(t *testing.T) {
	testrig.OnlyInAll(t, "the same on a few tables; BenchmarkFirstMigration makes so many, and the bounds of statements are held on 512")
	t.Parallel()
	began := time.Now()
	f := onMySQL().open(t, sharding.Layout{Databases: 2, TablesPerDatabase: 1024, Partitions: 64})
	took := func(what string) {
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	took("2048 tables created")

	f.migrate(t)
	took("the migration repeated")
	for i, db := range f.hands {
		require.NoError(t, migrations.Verify(t.Context(), migrations.MySQL, f.layout, migrations.Database{Index: i, DB: db}))
	}
	took("2 databases verified")

	q := store.Due{Until: f.in(60_000), PerPage: 500}
	require.Empty(t, f.due(t, q))
	took("the first pass over all partitions, tables not yet open")
	require.Empty(t, f.due(t, q))
	took("an idle pass, one partition after the other")

	const n = 2000
	batch := make([]task.Task, n)
	for i := range batch {
		batch[i] = task.Task{BizID: rand.Uint64(), BizType: 1, ActionTime: f.in(rand.IntN(60_000))}
	}
	var stored []task.Task
	var mu sync.Mutex
	var wg sync.WaitGroup
	for part := range slices.Chunk(batch, 1000) {
		wg.Go(func() {
			for _, r := range f.Insert(t.Context(), part) {
				if r.Err != nil {
					t.Error(r.Err)
				}
				mu.Lock()
				stored = append(stored, r.Task)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took("2000 tasks inserted, in batches of 1000")
	shards := make(map[int]bool)
	for _, one := range stored {
		shards[f.layout.Shard(one.BizID)] = true
	}
	require.Greater(t, len(shards), 1000, "they are everywhere")

	due := f.due(t, q)
	took("all of them read")
	requireSame(t, stored, due)
	f.requireInOrder(t, due)

	began = time.Now()
	perPartition := make([][]store.Move, f.layout.Partitions)
	for _, one := range due {
		p := f.layout.Partition(f.layout.Shard(one.BizID))
		perPartition[p] = append(perPartition[p], store.Move{JobID: one.JobID, To: task.Processed})
	}
	for p, moves := range perPartition {
		d := f.layout.PartitionDatabase(p)
		applied, err := f.Apply(t.Context(), d, f.Stamp(d), moves)
		require.NoError(t, err)
		require.NotContains(t, applied, false)
	}
	took("all of them finished, partition by partition")
	require.Empty(t, f.due(t, q))
	took("another idle pass")

	dead, err := f.CountDead(t.Context(), store.DeadFilter{})
	require.NoError(t, err)
	require.Zero(t, dead)
	took("the dead counted")
	none, _, err := f.ListDead(t.Context(), store.DeadFilter{}, 0, 100)
	require.NoError(t, err)
	require.Empty(t, none)
	took("the dead listed")

	f.clock.advance(time.Hour)
	first, end := f.layout.DatabasePartitions(1)
	purged, want := 0, 0
	for p := first; p < end; p++ {
		n, err := rows(f.Purge(t.Context(), p, f.clock.Now()))
		require.NoError(t, err)
		purged, want = purged+n, want+len(perPartition[p])
	}
	require.Equal(t, want, purged)
	took("those of a database purged")
}
