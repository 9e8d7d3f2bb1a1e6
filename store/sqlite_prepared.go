package store

import (
	"context"
	"database/sql/driver"
	"math/rand/v2"
)

const (
	maxPrepared     = 100  // statements that a connection keeps
	longestPrepared = 1000 // bytes of such a text: of long ones hardly two are alike
	replaceOneIn    = 16   // of the texts beyond maxPrepared one in so many is kept: frequent ones stay while batches pass
)

// preparing makes connections that keep statements prepared: SQLite takes longer to parse a short statement than to run it.
type preparing struct{ driver.Connector }

func (p preparing) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &preparedConn{conn.(sqliteConn), make(map[string]keptStmt)}, nil
}

// sqliteConn is a connection of the driver, without the methods by which package sql would go past PrepareContext.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// keptStmt is closed by its connection.
type keptStmt struct{ sqliteStmt }

func (keptStmt) Close() error { return nil }

// preparedConn is a connection with the statements that it keeps. A caller closes the rows of a query before the next statement.
type preparedConn struct {
	sqliteConn
	kept map[string]keptStmt // by text
}

func (c *preparedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	if kept, ok := c.kept[text]; ok {
		return kept, nil
	}
	made, err := c.sqliteConn.PrepareContext(ctx, text)
	isFull := len(c.kept) == maxPrepared
	if err != nil || len(text) > longestPrepared || isFull && rand.N(replaceOneIn) > 0 {
		return made, err
	}
	if isFull {
		for text, any := range c.kept { // any one: the order of a map is random
			delete(c.kept, text)
			_ = any.sqliteStmt.Close()
			break
		}
	}
	c.kept[text] = keptStmt{made.(sqliteStmt)}
	return c.kept[text], nil
}

func (c *preparedConn) Close() error {
	for _, kept := range c.kept {
		_ = kept.sqliteStmt.Close()
	}
	return c.sqliteConn.Close()
}
