package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/task"
)

// transact makes a transaction in one round trip: its statements are sent as one text, into which the driver
// escapes the parameters (interpolateParams).
//
// There must not be one answer per statement: the server sends each answer separately and wakes this process for
// it, which costs more than the statement. MariaDB runs a block of statements and answers once, at two to three
// times the rows a second. MySQL has blocks only in stored procedures, so it gets a list of statements.
//
// The sessions wait for no lock; see begin. If the server has become read-only, the transaction is made once
// more, on a new connection.
func (b *mysqlBackend) transact(ctx context.Context, database int, statements []statement) (affected []int64, err error) {
	if until, ok := ctx.Deadline(); ok { // the rest is for end
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until.Add(-min(endTimeout(b.timeout), time.Until(until)/2)))
		defer cancel()
	}
	for range 3 {
		var c *mysqlConn
		c, affected, err = b.try(ctx, database, statements)
		switch {
		case err == nil || c == nil: // or nothing was sent
			return affected, err
		case isReadOnly(err):
			if time.Since(c.born) < refusalsOld {
				return nil, fmt.Errorf("%w: %w", task.ErrNotBegun, err) // it was rolled back
			}
			b.servers[database].dropConnections()
		case errors.Is(err, driver.ErrBadConn): // the connection was closed before it accepted anything
		case mysqlCode(err) != 0 || errors.Is(err, errNotSent):
			return nil, err
		default:
			return nil, &unansweredError{err, b.end(database, c, ctx.Err() != nil)}
		}
	}
	return nil, err
}

func (b *mysqlBackend) waitsForLocks(database int) bool { return !b.servers[database].isMariaDB.Load() }

// errNotSent is joined with the error of a text that was not sent.
var errNotSent = errors.New("it was not sent")

// try makes a transaction on a connection of the pool, and returns the connection.
func (b *mysqlBackend) try(ctx context.Context, database int, statements []statement) (c *mysqlConn, affected []int64, err error) {
	conn, err := b.pools[database].Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	drop := conn.Raw(func(raw any) error {
		c = raw.(*mysqlConn)
		switch {
		case len(statements) == 1: // is its own transaction
			affected, err = runList(ctx, c, statements)
		case b.servers[database].isMariaDB.Load() && !slices.ContainsFunc(statements, lacksCounter):
			affected, err = runBlock(ctx, c, statements)
		default:
			affected, err = runTransaction(ctx, c, statements)
		}
		if err == nil {
			return nil
		}
		if isReadOnly(err) {
			return driver.ErrBadConn
		}
		// After an error the server has stopped at the failing statement, inside the transaction. A connection
		// that cannot roll back is closed.
		if _, undo := c.ExecContext(ctx, "ROLLBACK", nil); undo != nil {
			return driver.ErrBadConn
		}
		return nil
	})
	if errors.Is(err, driver.ErrSkip) || errors.Is(err, mysql.ErrPktTooLarge) { // by the driver
		err = errors.Join(mysql.ErrPktTooLarge, errNotSent)
	}
	if c == nil {
		err = drop
	}
	return c, affected, err
}

func runTransaction(ctx context.Context, exec driver.ExecerContext, statements []statement) ([]int64, error) {
	all := make([]statement, 0, len(statements)+2)
	all = append(append(append(all, statement{sql: "START TRANSACTION"}), statements...), statement{sql: "COMMIT"})
	affected, err := runList(ctx, exec, all)
	if err != nil {
		return nil, err
	}
	return affected[1 : len(all)-1], nil
}

func runList(ctx context.Context, exec driver.ExecerContext, statements []statement) ([]int64, error) {
	var text strings.Builder
	text.Grow(textSize(statements))
	for i, s := range statements {
		if i > 0 {
			text.WriteByte(';')
		}
		text.WriteString(s.sql)
	}
	res, err := exec.ExecContext(ctx, text.String(), joinArgs(statements))
	if err != nil {
		return nil, err
	}
	affected := res.(mysql.Result).AllRowsAffected()
	if len(affected) != len(statements) {
		return nil, fmt.Errorf("the server answered %d of %d statements", len(affected), len(statements))
	}
	return affected, nil
}

// countRow is true for each row that a statement of a block changes, and counts it.
const countRow = "@toc_rows:=@toc_rows+1"

// lacksCounter reports whether the statement was made before the kind of server was known.
func lacksCounter(s statement) bool { return s.maxRows > 0 && !strings.Contains(s.sql, countRow) }

// maxBlock is the maximum number of statements in a block: the server's time grows faster than the block.
const maxBlock = 250

// isAsked reports whether the server must return the number of rows that the statement changed.
func (s statement) isAsked() bool { return s.exactRows == 0 && s.maxRows == 0 }

// isCounted reports whether the statement counts its rows itself; see countingExpr.
func (s statement) isCounted() bool { return s.maxRows > 0 }

// runBlock makes the transaction with MariaDB's compound statements. They collect the number of rows that each
// statement changed, or one sum for all statements that count their rows themselves.
func runBlock(ctx context.Context, db driver.QueryerContext, statements []statement) ([]int64, error) {
	changed, err := queryText(ctx, db, blockText(statements), joinArgs(statements))
	if err != nil {
		return nil, err
	}
	return blockCounts(statements, changed)
}

// blockText renders the blocks.
func blockText(statements []statement) string {
	asks := slices.ContainsFunc(statements, statement.isAsked)
	var text strings.Builder
	text.Grow(textSize(statements) + 64*len(statements))
	for first := 0; first < len(statements); first += maxBlock {
		end := min(first+maxBlock, len(statements))
		text.WriteString("BEGIN NOT ATOMIC ")
		if asks {
			text.WriteString("DECLARE changed TEXT DEFAULT '';")
		}
		if first == 0 {
			text.WriteString("SET @toc_rows=0;START TRANSACTION;")
		}
		for _, s := range statements[first:end] {
			text.WriteString(s.sql)
			text.WriteByte(';')
			if s.isAsked() {
				text.WriteString("SET changed=CONCAT(changed,' ',ROW_COUNT());")
			}
		}
		if end == len(statements) {
			text.WriteString("COMMIT;")
		}
		if asks {
			text.WriteString("SELECT changed;")
		}
		if end == len(statements) && slices.ContainsFunc(statements, statement.isCounted) {
			text.WriteString("SELECT CONCAT(' ',@toc_rows);")
		}
		text.WriteString("END;")
	}
	return text.String()
}

// blockCounts parses the answer of the blocks: the rows of each statement that isAsked, then the sum of all
// counted ones.
func blockCounts(statements []statement, answer string) ([]int64, error) {
	counts := strings.Fields(answer)
	next := func() (n int64, err error) {
		if len(counts) == 0 {
			return 0, errors.New("the server did not answer all statements")
		}
		n, err = strconv.ParseInt(counts[0], 10, 64)
		counts = counts[1:]
		return n, err
	}
	affected := make([]int64, len(statements))
	var most int64 // the maximum of that sum
	var err error
	for i, s := range statements {
		most += s.maxRows
		if affected[i] = max(s.exactRows, s.maxRows); s.isAsked() {
			if affected[i], err = next(); err != nil {
				return nil, err
			}
		}
	}
	if most == 0 {
		return affected, nil
	}
	if counted, err := next(); err != nil || counted == most {
		return affected, err
	}
	for i, s := range statements {
		if s.isCounted() {
			affected[i] = unknownCount
		}
	}
	return affected, nil
}

// queryText joins the first column of all rows of all results.
func queryText(ctx context.Context, db driver.QueryerContext, query string, args []driver.NamedValue) (string, error) {
	rows, err := db.QueryContext(ctx, query, args)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var text strings.Builder
	cell := make([]driver.Value, 1)
	for {
		for {
			if err := rows.Next(cell); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return "", err
			}
			fmt.Fprintf(&text, "%s", cell[0])
		}
		more, ok := rows.(driver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return text.String(), nil
		}
		if err := more.NextResultSet(); errors.Is(err, io.EOF) {
			return text.String(), nil
		} else if err != nil {
			return "", err
		}
	}
}

func textSize(statements []statement) int {
	size := 64
	for _, s := range statements {
		size += len(s.sql) + 1
	}
	return size
}

func joinArgs(statements []statement) []driver.NamedValue {
	count := 0
	for _, s := range statements {
		count += len(s.args)
	}
	args := make([]driver.NamedValue, 0, count)
	for _, s := range statements {
		for _, v := range s.args {
			args = append(args, driver.NamedValue{Ordinal: len(args) + 1, Value: v})
		}
	}
	return args
}
