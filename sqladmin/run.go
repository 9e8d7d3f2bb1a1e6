package sqladmin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Dialect is the SQL that the databases speak.
type Dialect int

const (
	MySQL  Dialect = iota + 1 // MySQL 8 and MariaDB
	SQLite                    // ids above 2^63-1 are stored as negative integers
)

// Source is one open database. The caller opens it, read-only if the driver can,
// and closes it.
type Source struct {
	DB       *sql.DB
	Database int // its number, for error messages
}

// Config says where the task tables are.
type Config struct {
	Dialect   Dialect
	Sources   []Source               // in the order in which unsorted rows are shown
	Tables    int                    // tables in each database
	TableName func(table int) string // of the tables 0..Tables-1
	Parallel  int                    // databases asked at the same time; 0 means all
}

func (c Config) validate() error {
	switch {
	case c.Dialect != MySQL && c.Dialect != SQLite:
		return fmt.Errorf("config: Dialect is %d: it must be MySQL or SQLite", c.Dialect)
	case len(c.Sources) == 0:
		return errors.New("config: Sources is empty: there must be at least one database")
	case c.Tables < 1:
		return fmt.Errorf("config: Tables is %d: it must be at least 1", c.Tables)
	case c.TableName == nil:
		return errors.New("config: TableName is missing")
	case c.Parallel < 0:
		return fmt.Errorf("config: Parallel is %d: it must not be negative", c.Parallel)
	}
	return nil
}

// Run asks every table of every database and merges the answers. It holds them
// in memory: a query that may answer millions of rows wants a LIMIT.
//
// Each database is read in one read-only transaction, so its tables are seen as
// of one moment; different databases are not. The connections that Run takes
// from the pools are closed afterwards, because their sessions were changed.
// A *SyntaxError comes from Run too, when only a database's types or dialect
// tell that the answers cannot be merged.
func (q *Query) Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("run query: %w", err)
	}
	p, err := q.plan(cfg.Dialect)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, plan: p, merger: p.merger(len(cfg.Sources))}
	if err := r.askAll(ctx); err != nil {
		return nil, err
	}
	return r.result(), nil
}

// run is one execution of a plan.
type run struct {
	cfg    Config
	plan   *plan
	merger merger

	mu     sync.Mutex
	header *header // known after the first statement
}

// askAll asks the databases, Parallel at a time. The first error stops the rest.
func (r *run) askAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := r.cfg.Parallel
	if workers == 0 || workers > len(r.cfg.Sources) {
		workers = len(r.cfg.Sources)
	}
	var wg sync.WaitGroup
	var taken atomic.Int64
	for range workers {
		wg.Go(func() {
			for {
				i := int(taken.Add(1)) - 1
				if i >= len(r.cfg.Sources) || ctx.Err() != nil {
					return
				}
				if err := r.ask(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// ask asks all tables of one database.
func (r *run) ask(ctx context.Context, source int) (err error) {
	src := r.cfg.Sources[source]
	defer func() {
		var bad *SyntaxError
		if err != nil && !errors.As(err, &bad) {
			err = fmt.Errorf("query database %d: %w", src.Database, err)
		}
	}()
	conn, err := src.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it
	if err := r.cfg.Dialect.prepare(ctx, conn); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	step := r.plan.tablesPerStatement()
	for first := 0; first < r.cfg.Tables; first += step {
		if r.known() && r.merger.enough() {
			return nil
		}
		var tables []string
		for t := first; t < min(first+step, r.cfg.Tables); t++ {
			tables = append(tables, r.cfg.TableName(t))
		}
		if err := r.read(ctx, tx, source, r.plan.statement(tables)); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes a session one that only reads, and that compares computed strings
// as the columns and the merge do: byte by byte, without padding.
func (d Dialect) prepare(ctx context.Context, conn *sql.Conn) error {
	if d == SQLite {
		_, err := conn.ExecContext(ctx, "PRAGMA query_only = 1")
		return err
	}
	_, err := conn.ExecContext(ctx, "SET SESSION collation_connection = 'utf8mb4_0900_bin'")
	if err != nil { // MariaDB's name for it
		_, err = conn.ExecContext(ctx, "SET SESSION collation_connection = 'utf8mb4_nopad_bin'")
	}
	return err
}

// read runs one statement and hands its rows to the merger.
func (r *run) read(ctx context.Context, tx *sql.Tx, source int, statement string) error {
	rows, err := tx.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	types, err := r.types(rows)
	if err != nil {
		return err
	}
	for rows.Next() {
		row := make([]any, len(types))
		into := make([]any, len(types))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i := range row {
			if row[i], err = types[i].value(row[i]); err != nil {
				return err
			}
		}
		if err := r.merger.add(source, row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// types tells how to read the cells of a statement's rows. The first statement
// settles the header.
func (r *run) types(rows *sql.Rows) ([]cellType, error) {
	described, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(described))
	for i, d := range described {
		names[i] = d.Name()
	}
	h, err := r.plan.header(names)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if r.header == nil {
		r.header = h
	}
	r.mu.Unlock()
	types := make([]cellType, len(described))
	for i, d := range described {
		types[i] = cellType{
			dialect:  r.cfg.Dialect,
			name:     d.DatabaseTypeName(),
			unsigned: r.cfg.Dialect == SQLite && h.unsigned[i],
		}
		if h.compared[i] && !types[i].comparable() {
			return nil, &SyntaxError{
				Problem: fmt.Sprintf("values of type %s cannot be sorted over shards", types[i].name),
				Instead: "use a number or a string made of it, such as TIME_TO_SEC(x) or JSON_UNQUOTE(x)",
			}
		}
	}
	return types, nil
}

func (r *run) known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header != nil
}

func (r *run) result() *Result {
	rows := r.merger.rows()
	for _, row := range rows {
		for i, v := range row {
			if blob, ok := v.([]byte); ok {
				row[i] = string(blob)
			}
		}
	}
	return &Result{Columns: r.header.labels, Rows: rows, ids: r.header.ids}
}
