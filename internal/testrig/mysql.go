package testrig

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// dropTimeout is generous: 8 databases of 1024 tables take seconds.
const dropTimeout = 2 * time.Minute

// MySQLServer is a MariaDB or MySQL server as one test sees it: an address and a prefix for its databases.
type MySQLServer struct {
	addr, auth, prefix string
	socket             string // the way for administration; "": addr
}

// MySQL gives the test the shared server, with a unique database prefix. When the test ends all databases with
// that prefix are dropped. The test fails when there is no server to be had.
func MySQL(t testing.TB) *MySQLServer {
	t.Helper()
	needsServer(t)
	addr, err := ofThisProcess.mysql.addr(t.Context())
	if err != nil {
		t.Fatalf("testrig: this test needs a database server: %v", err)
	}
	m := &MySQLServer{addr: addr, auth: cmp.Or(os.Getenv(EnvMySQLAuth), "root"), prefix: uniquePrefix()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dropTimeout)
		defer cancel()
		if err := m.dropAll(ctx); err != nil {
			t.Errorf("testrig: drop the databases %s*: %v", m.prefix, err)
		}
	})
	return m
}

// Addr is host:port.
func (m *MySQLServer) Addr() string { return m.addr }

// Prefix begins the name of every database that the test makes: "toc_k3m9x2pa_".
func (m *MySQLServer) Prefix() string { return m.prefix }

// DSN has %d in the place of the database's number: "root@tcp(127.0.0.1:15842)/toc_k3m9x2pa_%d".
func (m *MySQLServer) DSN() string {
	return fmt.Sprintf("%s@tcp(%s)/%s%%d", m.auth, m.addr, m.prefix)
}

// DB opens a handle without a database, for administration: times come as time.Time in UTC. It is closed when the test
// ends.
func (m *MySQLServer) DB(t testing.TB) *sql.DB {
	t.Helper()
	db, err := openMySQL(m.auth, cmp.Or(m.socket, m.addr))
	if err != nil {
		t.Fatalf("testrig: open %s: %v", m.addr, err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (m *MySQLServer) dropAll(ctx context.Context) error {
	db, err := openMySQL(m.auth, m.addr)
	if err != nil {
		return err
	}
	defer db.Close()
	names, err := m.databases(ctx, db)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		g.Go(func() error {
			_, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+name+"`")
			return err
		})
	}
	return g.Wait()
}

func (m *MySQLServer) databases(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT schema_name FROM information_schema.schemata WHERE LEFT(schema_name, ?) = ?",
		len(m.prefix), m.prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// uniquePrefix has 40 random bits: test processes that know nothing of each other share a server. It is plain letters
// and digits, so that it may stand in a database's name and in a Redis pattern alike.
func uniquePrefix() string {
	return "toc_" + strings.ToLower(rand.Text()[:8]) + "_"
}
