package tlsclient

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// ForMySQL makes the connections of a MySQL configuration TLS, each with the certificates of its moment.
func (c *Client) ForMySQL(dsn *mysql.Config) error {
	if !c.IsOn() {
		return nil
	}
	dsn.AllowFallbackToPlaintext = false
	return dsn.Apply(mysql.BeforeConnect(func(_ context.Context, dsn *mysql.Config) (err error) {
		dsn.TLS, err = c.Config(dsn.Addr)
		return err
	}))
}

// ExplainMySQLConnects names the setting to look at in the errors of a connector to the server at addr.
func (c *Client) ExplainMySQLConnects(connector driver.Connector, addr string) driver.Connector {
	return mysqlConnector{connector, c, addr}
}

type mysqlConnector struct {
	driver.Connector
	client *Client
	addr   string
}

func (m mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := byCurrentFiles(m.client, func() (driver.Conn, error) { return m.Connector.Connect(ctx) })
	if err != nil {
		return nil, m.client.ExplainMySQL(m.addr, err)
	}
	return conn, nil
}

// Numbers of errors that a server answers to a new connection, the same on MySQL and MariaDB.
const (
	accessDenied    = 1045
	needsSecureLine = 3159 // require_secure_transport
)

// MySQLSection is the key of the settings for MySQL.
const MySQLSection = "store.mysql.tls"

// ExplainMySQL adds the setting to look at to the error of a new connection, of a nil Client too.
func (c *Client) ExplainMySQL(addr string, err error) error {
	var answer *mysql.MySQLError
	errors.As(err, &answer)
	switch {
	case errors.Is(err, mysql.ErrNoTLS) && c.IsOn():
		return c.wrong("ca", err, "%s does not offer TLS; give the server a certificate, or leave ca empty for plain text", addr)
	case answer == nil:
		return c.explain(addr, err)
	case answer.Number == needsSecureLine && !c.IsOn():
		return &Error{Key: MySQLSection + ".ca", Err: err,
			Text: addr + " takes TLS only; write system, or the path of a PEM file with its authority"}
	case answer.Number == accessDenied && !c.IsOn():
		return fmt.Errorf("%w; look at the user and the password in store.mysql.dsn; a user with REQUIRE SSL, and anybody at a server with require_secure_transport, is denied like this unless %s is set", err, MySQLSection)
	case answer.Number == accessDenied && c.files.Cert == "":
		return fmt.Errorf("%w; look at the user and the password in store.mysql.dsn; a user with REQUIRE X509 is denied like this unless %s.cert is set", err, MySQLSection)
	}
	return err
}
