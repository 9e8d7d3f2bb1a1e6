// Package mysqlsession makes all connections to MySQL and MariaDB. It turns a DSN into connections, and sets each session
// variable that toc's statements rest on to the value that the statements were written for. The defaults of the server, its
// init_connect and the user do not change that.
//
// A session inherits its variables from the server. With autocommit=0 a statement without BEGIN is never committed, with
// unique_checks=0 a key is stored twice, with sql_select_limit=1 a batch becomes one row. The server reports no error for
// any of this. So Variables lists them, and Connect sets them in one round trip.
package mysqlsession

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Limits bounds the statements of a session. Each has a value, so that none is inherited.
type Limits struct {
	// Statement is how long the server may work on one text: on MySQL on one SELECT. Defaults to 0: no limit.
	Statement time.Duration
	// LockWait is how long a statement waits for a lock of another session, in whole seconds. Defaults to 0: not at
	// all, which is a second on MySQL.
	LockWait time.Duration
}

// Connector makes connections with Variables set. It implements driver.Connector; its connections are *Conn.
type Connector struct {
	dsn      *mysql.Config
	settings []setting
	use      string // chooses the database again: init_connect may have chosen another
	setup    string
	sized    atomic.Pointer[sizedConnector]
}

// sizedConnector is a connector for servers that take packets of a size. The driver could ask each connection for it,
// in a round trip more, before the variables are set.
type sizedConnector struct {
	driver.Connector
	maxPacket int
}

// firstPacket is the size that is assumed until a connection has read the server's.
const firstPacket = 16 << 20

// NewConnector makes a connector. The settings that Parse makes are in force even if dsn lacks them.
func NewConnector(dsn *mysql.Config, limits Limits) (*Connector, error) {
	c := &Connector{dsn: dsn.Clone(), settings: settings(limits)}
	own(c.dsn)
	if dsn.DBName != "" {
		c.use = "USE `" + strings.ReplaceAll(dsn.DBName, "`", "``") + "`"
	}
	c.setup = c.text()
	_, err := c.resize(firstPacket)
	return c, err
}

func (c *Connector) resize(maxPacket int) (*sizedConnector, error) {
	dsn := c.dsn.Clone()
	dsn.MaxAllowedPacket = maxPacket - 1 // the driver's own limit: the largest packet is one less
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	sized := &sizedConnector{connector, maxPacket}
	c.sized.Store(sized)
	return sized, nil
}

// Open is a pool of connections with Variables set. It does not connect.
func Open(dsn *mysql.Config, limits Limits) (*sql.DB, error) {
	c, err := NewConnector(dsn, limits)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// Driver implements driver.Connector.
func (c *Connector) Driver() driver.Driver { return c.sized.Load().Driver() }

// Conn is a connection with all methods that a pool uses.
type Conn struct {
	fullConn
	ID        string // the server's number for it
	Host      string // identifies the server
	IsMariaDB bool
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// Close always succeeds: the server may have closed an idle connection before, and then the good-bye fails.
func (c *Conn) Close() error {
	_ = c.fullConn.Close()
	return nil
}

// HostText is SQL that identifies a server.
const HostText = "CONCAT_WS('/',@@hostname,@@port,@@server_id)"

const factsText = "SELECT CONCAT_WS(' ',@@max_allowed_packet,CONNECTION_ID()," + HostText + ",VERSION())"

// undo ends a transaction that init_connect has begun, and the locks on tables that it has taken. completion_type must not chain
// another transaction to it.
const undo = "ROLLBACK AND NO CHAIN NO RELEASE;UNLOCK TABLES"

// text sets all variables in one round trip. The first is sql_mode, which decides how the others are read.
func (c *Connector) text() string {
	list := []string{c.settings[0].sql(), undo}
	open := false // the last of the list is a SET
	for _, s := range c.settings[1:] {
		last := &list[len(list)-1]
		switch {
		case s.statement != "":
			if *last != s.statement { // else it has set this one, too
				list = append(list, s.statement)
			}
		case open:
			*last += s.comment("," + s.assignment())
		default: // the first of a SET is one that both kinds of server have
			list, open = append(list, s.sql()), true
		}
	}
	if c.use != "" {
		list = append(list, c.use)
	}
	return strings.Join(append(list, factsText), ";")
}

// Connect makes a connection and sets the variables.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	for sized := c.sized.Load(); ; {
		conn, maxPacket, err := c.connect(ctx, sized)
		if err != nil {
			return nil, err
		}
		if maxPacket == sized.maxPacket {
			return conn, nil
		}
		_ = conn.Close()
		if sized, err = c.resize(maxPacket); err != nil {
			return nil, err
		}
	}
}

func (c *Connector) connect(ctx context.Context, by driver.Connector) (conn *Conn, maxPacket int, err error) {
	raw, err := by.Connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	conn = &Conn{fullConn: raw.(fullConn)}
	facts, err := c.begin(ctx, conn)
	if err == nil {
		var version string
		if _, err = fmt.Sscan(facts, &maxPacket, &conn.ID, &conn.Host, &version); err != nil {
			err = fmt.Errorf("the server says %q of itself: %w", facts, err)
		}
		conn.IsMariaDB = isMariaDB(version)
	}
	if err != nil {
		_ = conn.Close()
	}
	return conn, maxPacket, err
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

func (c *Connector) begin(ctx context.Context, conn *Conn) (facts string, err error) {
	if facts, err = queryText(ctx, conn, c.setup); err == nil {
		return facts, nil
	}
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		if ctx.Err() == nil && (errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)) {
			err = fmt.Errorf("the server has ended the new connection, and its error log says why: its init_connect may fail, or its max_allowed_packet be below %d: %w", len(c.setup), err)
		}
		return "", err
	}
	return c.beginSlowly(ctx, conn)
}

// beginSlowly sets one variable at a time, on a server that rejects a change of one of them. That is an error only if
// this variable has another value.
func (c *Connector) beginSlowly(ctx context.Context, conn *Conn) (facts string, err error) {
	exec := func(text string) error {
		_, err := conn.ExecContext(ctx, text, nil)
		return err
	}
	for i, s := range c.settings {
		if i == 1 {
			if err := exec(undo); err != nil {
				return "", err
			}
		}
		refused := exec(s.sql())
		if refused == nil {
			continue
		}
		given, err := readVariables(ctx, conn, "SHOW SESSION VARIABLES WHERE Variable_name IN ('version','"+strings.Join(s.names(), "','")+"')")
		if err != nil {
			return "", errors.Join(refused, err)
		}
		if fault := s.fault(given); fault != "" {
			return "", fmt.Errorf("%s, and the server does not let this user change it: %w", fault, refused)
		}
	}
	if c.use != "" {
		if err := exec(c.use); err != nil {
			return "", err
		}
	}
	return queryText(ctx, conn, factsText)
}

// queryText joins the first column of all rows of all results.
func queryText(ctx context.Context, conn driver.QueryerContext, query string) (text string, err error) {
	err = eachRow(ctx, conn, query, func(cells []string) { text += cells[0] })
	return text, err
}

// readVariables reads the answer of a SHOW VARIABLES or SHOW STATUS, the names in lower case.
func readVariables(ctx context.Context, conn driver.QueryerContext, query string) (map[string]string, error) {
	given := make(map[string]string)
	err := eachRow(ctx, conn, query, func(cells []string) { given[strings.ToLower(cells[0])] = cells[1] })
	return given, err
}

func eachRow(ctx context.Context, conn driver.QueryerContext, query string, f func(cells []string)) error {
	rows, err := conn.QueryContext(ctx, query, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		row := make([]driver.Value, len(rows.Columns()))
		for {
			if err := rows.Next(row); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			cells := make([]string, len(row))
			for i, v := range row {
				cells[i] = fmt.Sprintf("%s", v)
			}
			f(cells)
		}
		more, ok := rows.(driver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return nil
		}
		if err := more.NextResultSet(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
