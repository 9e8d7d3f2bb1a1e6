package sqltable

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"

	"modernc.org/sqlite"

	"github.com/timeoutcenter/toc/sharding"
)

// Store is where the task tables are.
type Store struct {
	Layout    sharding.Layout
	Databases []*sql.DB // by number
	MySQL     bool      // MySQL or MariaDB; otherwise SQLite
}

// Check returns an error if a query is wrong. It asks no database.
func Check(text string) error {
	ctx := context.Background()
	q, err := parse(text)
	if err != nil {
		return err
	}
	db, err := open(ctx, &shards{})
	if err != nil {
		return err
	}
	defer db.Close()
	prepared, err := db.PrepareContext(ctx, q.sql)
	if err != nil {
		return fmt.Errorf("%w; the SQL is SQLite's, the tables are timeout_task and timeout_task_counts", plainError(err))
	}
	return prepared.Close()
}

// Run answers with the first limit rows of a query. The error of a ctx that ended is its cause.
//
// SQLite cannot be stopped while it calculates between two rows. Where ctx ends
// meanwhile, Run returns and leaves the calculation to the end of the process.
func (s Store) Run(ctx context.Context, text string, limit int) (*Result, error) {
	q, err := parse(text)
	if err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	results := make(chan *Result, 1)
	go func() {
		result, err := s.run(ctx, fail, q, limit)
		if err != nil {
			fail(err)
			return
		}
		results <- result
	}()
	select {
	case result := <-results:
		fail(nil)
		return result, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s Store) run(ctx context.Context, fail context.CancelCauseFunc, q query, limit int) (*Result, error) {
	db, err := open(ctx, &shards{Store: s, ctx: ctx, fail: fail, collates: q.collates})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, q.sql)
	if err != nil {
		return nil, plainError(err)
	}
	defer rows.Close()
	return newResult(rows, limit)
}

// open makes a SQLite in memory that has the virtual tables and can only be read.
func open(ctx context.Context, s *shards) (*sql.DB, error) {
	var own connector
	for name, module := range map[string]*module{"tasks": {s, &tasks}, "counts": {s, &counts}} {
		if err := own.driver.RegisterModule(name, module); err != nil {
			return nil, err
		}
	}
	db := sql.OpenDB(&own)
	db.SetMaxOpenConns(1) // every connection would have its own memory
	_, err := db.ExecContext(ctx, `
		CREATE VIRTUAL TABLE timeout_task USING tasks;
		CREATE VIRTUAL TABLE timeout_task_counts_by_shard USING counts;
		CREATE VIEW timeout_task_counts AS
			SELECT biz_type, status, SUM(tasks) AS tasks, MIN(oldest) AS oldest, MAX(newest) AS newest
			FROM timeout_task_counts_by_shard GROUP BY biz_type, status;
		PRAGMA query_only = 1`)
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// connector opens memories by its own driver: each query has its own modules.
type connector struct{ driver sqlite.Driver }

func (c *connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(":memory:") }

func (c *connector) Driver() driver.Driver { return &c.driver }

// plainError is SQLite's message without its code.
func plainError(err error) error {
	text := strings.TrimPrefix(err.Error(), "SQL logic error: ")
	return fmt.Errorf("%s", strings.TrimSuffix(text, " (1)"))
}
