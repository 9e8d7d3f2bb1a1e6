package store_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

// raw is the store's work done by hand: the floor that BenchmarkMySQL compares
// with. It is database/sql with all that is known to be fast (one round trip a
// transaction, multi-row statements, parameters put in by the driver) and none of
// what a store is for: no dedup, no retry, no answer for each row.
type raw struct {
	*fixture
	ids *sharding.IDs
}

func newRaw(b *testing.B, f *fixture) *raw {
	for _, db := range f.hands {
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
	}
	return &raw{f, newIDs(b, f.layout, 2, f.clock)}
}

const (
	rawInsert = "INSERT INTO %s (job_id,gmt_create,gmt_modified,biz_id,biz_type,action_time,attribute) VALUES "
	rawRow    = "(?,?,?,?,?,?,?)"
)

func (r *raw) row(shard int, args []any) []any {
	one := r.parked(r.bizOf(shard))
	now := r.clock.Now()
	return append(args, r.ids.Next(shard), now, now, one.BizID, one.BizType, one.ActionTime, one.Attribute)
}

// insertBatches: 8 callers, one a database, in transactions of 256 rows.
func (r *raw) insertBatches(b *testing.B) {
	share(b, 8, 256, func(database, n int) error {
		tables := make(map[int]int)
		for range n {
			tables[rand.IntN(r.layout.TablesPerDatabase)]++
		}
		var text strings.Builder
		var args []any
		text.WriteString("START TRANSACTION;")
		for table, rows := range tables {
			fmt.Fprintf(&text, rawInsert, sharding.TableName(table))
			for i := range rows {
				if i > 0 {
					text.WriteByte(',')
				}
				text.WriteString(rawRow)
				args = r.row(database*r.layout.TablesPerDatabase+table, args)
			}
			text.WriteByte(';')
		}
		text.WriteString("COMMIT")
		_, err := r.hands[database].ExecContext(b.Context(), text.String(), args...)
		return err
	})
	reportRows(b)
}

// insertSingles: 32 callers, each row its own commit.
func (r *raw) insertSingles(b *testing.B) {
	share(b, 32, 1, func(int, int) error {
		shard := rand.IntN(r.layout.Shards())
		text := fmt.Sprintf(rawInsert+rawRow, sharding.TableName(r.layout.Table(shard)))
		_, err := r.hands[r.layout.Database(shard)].ExecContext(b.Context(), text, r.row(shard, nil)...)
		return err
	})
	reportRows(b)
}

// finish: one caller a database, in transactions of 256 rows of one partition.
func (r *raw) finish(b *testing.B) {
	r.finishing(b, func(database int, ids []uint64) error {
		tables := make(map[int][]any)
		for _, id := range ids {
			shard, _ := r.layout.ShardOf(id)
			tables[r.layout.Table(shard)] = append(tables[r.layout.Table(shard)], id)
		}
		var text strings.Builder
		var args []any
		now := time.Now()
		text.WriteString("START TRANSACTION;")
		for table, list := range tables {
			fmt.Fprintf(&text, "UPDATE %s FORCE INDEX (%s) SET status=2,gmt_modified=? WHERE job_id IN (?%s) AND status=0;",
				sharding.TableName(table), migrations.IndexPrimary, strings.Repeat(",?", len(list)-1))
			args = append(append(args, now), list...)
		}
		text.WriteString("COMMIT")
		_, err := r.hands[database].ExecContext(b.Context(), text.String(), args...)
		return err
	})
}

// idlePass: one statement a partition that reads no more than it must.
func (r *raw) idlePass(b *testing.B) {
	texts := make([]string, r.layout.Partitions)
	for p := range texts {
		first, end := r.layout.PartitionShards(p)
		var members []string
		for shard := first; shard < end; shard++ {
			members = append(members, fmt.Sprintf("(SELECT job_id FROM %s FORCE INDEX (%s) WHERE status=0 AND action_time<=? LIMIT 500)",
				sharding.TableName(r.layout.Table(shard)), migrations.IndexDue))
		}
		texts[p] = strings.Join(members, " UNION ALL ")
	}
	args := make([]any, r.layout.ShardsPerPartition())
	for i := range args {
		args[i] = r.in(0)
	}
	r.passes(b, func(p int) (int, error) {
		rows, err := r.hands[r.layout.PartitionDatabase(p)].QueryContext(b.Context(), texts[p], args...)
		if err != nil {
			return 0, err
		}
		return count(rows)
	})
}

func count(rows *sql.Rows) (n int, err error) {
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
