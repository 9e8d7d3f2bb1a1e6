package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

// sqlLoop is a floor: the product reduced to its SQL. Rows are written to its
// tables, and one loop a database scans for due rows. It uses all means that are
// known to be fast: one round trip a transaction, multi-row statements, one UNION
// ALL a partition, indexes named. It has no dedup, no retries, no cancel, no owner:
// nothing that makes the product safe with two processes.
type sqlLoop struct {
	driver
	layout Layout
	shards sharding.Layout
	ids    *sharding.IDs
	dbs    []*sql.DB
	done   atomic.Int64
}

// sqlPause is what a loop rests after a pass that found nothing.
const sqlPause = 100 * time.Millisecond

func (p *sqlLoop) Info() Info {
	return Info{
		Name: "sql-loop/" + p.layout.Name, Parts: everything,
		Settings: "floor: hand-written SQL, 15 connections a database; a batch is one transaction of one database; one loop a database, 100 ms between empty passes",
		Durable:  p.layout.durable(),
		Precise:  "milliseconds",
	}
}

func (p *sqlLoop) Version(ctx context.Context, _ Env) (string, error) {
	return server.MariaDB.Version(ctx)
}

func (p *sqlLoop) Up(ctx context.Context, env Env) error {
	cfg, err := p.layout.config(ctx, &p.driver, env)
	if err != nil {
		return err
	}
	return p.open(cfg)
}

func (p *sqlLoop) open(cfg configs.Config) error {
	list, err := app.Databases(cfg, false)
	if err != nil {
		return err
	}
	p.onDown(func() error { return app.CloseDatabases(list) })
	for _, d := range list {
		d.DB.SetMaxOpenConns(cfg.Store.MySQL.MaxOpenConns)
		d.DB.SetMaxIdleConns(cfg.Store.MySQL.MaxOpenConns)
		p.dbs = append(p.dbs, d.DB)
	}
	p.shards = app.Layout(cfg)
	p.ids, err = sharding.NewIDs(p.shards, 1, time.Now)
	p.put = p.insert
	return err
}

// insert writes the jobs in one transaction of one database: the best that a hand
// can do is to choose the rows of a batch so.
func (p *sqlLoop) insert(ctx context.Context, _ int, jobs []job) error {
	_, err := p.insertInto(ctx, rand.IntN(p.shards.Databases), jobs)
	return err
}

// insertInto gives the ids of the rows by table.
func (p *sqlLoop) insertInto(ctx context.Context, database int, jobs []job) (map[int][]any, error) {
	ids, byTable := make(map[int][]any), make(map[int][]any)
	now := time.Now().UTC()
	for _, j := range jobs {
		biz := j.biz - j.biz%uint64(p.shards.Databases) + uint64(database)
		shard := p.shards.Shard(biz)
		table, id := p.shards.Table(shard), p.ids.Next(shard)
		ids[table] = append(ids[table], id)
		byTable[table] = append(byTable[table], id, now, now, biz, bizType, j.due.UTC(), Attribute)
	}
	var text strings.Builder
	var args []any
	if len(byTable) > 1 {
		text.WriteString("START TRANSACTION;")
	}
	const columns = 7
	for table, rows := range byTable {
		fmt.Fprintf(&text, "INSERT INTO %s (job_id,gmt_create,gmt_modified,biz_id,biz_type,action_time,attribute) VALUES (?,?,?,?,?,?,?)%s",
			sharding.TableName(table), strings.Repeat(",(?,?,?,?,?,?,?)", len(rows)/columns-1))
		if len(byTable) > 1 {
			text.WriteByte(';')
		}
		args = append(args, rows...)
	}
	if len(byTable) > 1 {
		text.WriteString("COMMIT")
	}
	_, err := p.dbs[database].ExecContext(ctx, text.String(), args...)
	return ids, err
}

func (p *sqlLoop) Work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	errs := make([]error, len(p.dbs))
	for d := range p.dbs {
		wg.Go(func() { errs[d] = p.loop(ctx, d) })
	}
	p.onDown(func() error { cancel(); wg.Wait(); return errors.Join(errs...) })
	return nil
}

func (p *sqlLoop) loop(ctx context.Context, database int) error {
	first, end := p.shards.DatabasePartitions(database)
	statements := make([]string, 0, end-first)
	for partition := first; partition < end; partition++ {
		statements = append(statements, p.dueStatement(partition))
	}
	for ctx.Err() == nil {
		found := 0
		for _, statement := range statements {
			n, err := p.pass(ctx, database, statement)
			if err != nil && ctx.Err() == nil {
				return err
			}
			found += n
		}
		if found == 0 {
			select {
			case <-time.After(sqlPause):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// dueStatement reads the due rows of all tables of a partition.
func (p *sqlLoop) dueStatement(partition int) string {
	first, end := p.shards.PartitionShards(partition)
	var members []string
	for shard := first; shard < end; shard++ {
		table := p.shards.Table(shard)
		members = append(members, fmt.Sprintf("(SELECT %d,job_id,action_time FROM %s FORCE INDEX (%s) WHERE status=0 AND action_time<=UTC_TIMESTAMP(3) LIMIT 500)",
			table, sharding.TableName(table), migrations.IndexDue))
	}
	return strings.Join(members, " UNION ALL ")
}

// pass fires the due rows of a partition and finishes them in one transaction.
func (p *sqlLoop) pass(ctx context.Context, database int, statement string) (int, error) {
	rows, err := p.dbs[database].QueryContext(ctx, statement)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	found := 0
	byTable := make(map[int][]any)
	for rows.Next() {
		var table int
		var id uint64
		var due time.Time
		if err := rows.Scan(&table, &id, &due); err != nil {
			return 0, err
		}
		byTable[table] = append(byTable[table], id)
		p.fired(due, id)
		found++
	}
	if err := rows.Err(); err != nil || found == 0 {
		return 0, err
	}
	if err := p.finish(ctx, database, byTable); err != nil {
		return 0, err
	}
	p.done.Add(int64(found))
	return found, nil
}

// finish records the outcomes of rows of a database in one transaction.
func (p *sqlLoop) finish(ctx context.Context, database int, byTable map[int][]any) error {
	var text strings.Builder
	var args []any
	text.WriteString("START TRANSACTION;")
	now := time.Now().UTC()
	for table, ids := range byTable {
		fmt.Fprintf(&text, "UPDATE %s FORCE INDEX (%s) SET status=2,gmt_modified=? WHERE job_id IN (?%s) AND status=0;",
			sharding.TableName(table), migrations.IndexPrimary, strings.Repeat(",?", len(ids)-1))
		args = append(append(args, now), ids...)
	}
	text.WriteString("COMMIT")
	_, err := p.dbs[database].ExecContext(ctx, text.String(), args...)
	return err
}

func (p *sqlLoop) Done(context.Context) (int, error) { return int(p.done.Load()), nil }
