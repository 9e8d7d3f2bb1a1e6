package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
)

// databaseName is what we let into a CREATE DATABASE: no quotes, no path, nothing that needs an escape.
var databaseName = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,64}$`)

// CreateDatabase makes the MySQL database that a configuration names, if it is not there.
// It connects without choosing one. A user without the right to create databases
// is fine if someone else made it.
func CreateDatabase(ctx context.Context, cfg *mysql.Config) error {
	name := cfg.DBName
	if err := checkName(name); err != nil {
		return err
	}
	db, err := withoutDatabase(cfg)
	if err != nil {
		return err
	}
	defer db.Close()

	var there bool
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM information_schema.schemata WHERE schema_name = ?)", name).Scan(&there)
	if err != nil {
		return fmt.Errorf("look for database %s at %s: %w", name, cfg.Addr, err)
	}
	if there {
		return nil
	}
	if _, err := db.ExecContext(ctx, createDatabase(name)); err != nil {
		return fmt.Errorf("create database %s at %s: %w", name, cfg.Addr, err)
	}
	return nil
}

func createDatabase(name string) string {
	return "CREATE DATABASE IF NOT EXISTS `" + name + "` CHARACTER SET utf8mb4"
}

func checkName(name string) error {
	if !databaseName.MatchString(name) {
		return fmt.Errorf("database name %q: want 1 to 64 of letters, digits, _, $ and -", name)
	}
	return nil
}

// SessionLimits are those of the connections that a migration uses: a statement may take as long as it takes, and
// waits for readers of its table, but not longer than the connection waits for an answer.
var SessionLimits = mysqlsession.Limits{LockWait: 20 * time.Second}

// withoutDatabase connects to a server, and chooses no database.
func withoutDatabase(cfg *mysql.Config) (*sql.DB, error) {
	cfg = cfg.Clone()
	cfg.DBName = ""
	return mysqlsession.Open(cfg, SessionLimits)
}

// binaryCollation finds the collation that compares byte by byte and pads
// nothing: MySQL and MariaDB have different names for it.
func binaryCollation(ctx context.Context, db *sql.DB) (name string, err error) {
	err = db.QueryRowContext(ctx, `SELECT collation_name FROM information_schema.collations
		WHERE collation_name IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin') ORDER BY collation_name LIMIT 1`).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("find a binary collation without padding (MySQL 8, or MariaDB 10.6 and later): %w", err)
	}
	return name, nil
}

// lockName is per schema, since GET_LOCK is per server. It holds 64 characters
// at most; a checksum distinguishes long names (MySQL 9 has no SHA1 any more).
const lockName = `CONCAT('toc_migrate:', IF(CHAR_LENGTH(DATABASE()) > 52, CONCAT(CRC32(DATABASE()), RIGHT(DATABASE(), 40)), DATABASE()))`

// lock keeps other migrations of the same database out until unlock. It waits
// for one that is under way. The server gives the lock back when the connection,
// and so the process, dies.
func lock(ctx context.Context, d Database, log *slog.Logger) (unlock func(), err error) {
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	unlock = func() {
		// Returned to the pool, a connection that still has the lock would keep it for good.
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+lockName+")"); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close()
	}
	for waited := false; ; waited = true {
		var got sql.NullBool
		// One second at a time: the server does not see that a waiting client is gone.
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", 1)").Scan(&got); err != nil {
			unlock()
			return nil, fmt.Errorf("wait for the migration lock: %w", err)
		}
		if got.Bool {
			return unlock, nil
		}
		if !waited {
			log.Info("waiting for another migration to end", "database", d.String())
		}
	}
}

// dropEmptyVersionTable removes what goose leaves when it is stopped between the
// CREATE of its table, which MySQL commits at once, and the first row. goose
// refuses such a table for ever ("missing zero version").
func dropEmptyVersionTable(ctx context.Context, db *sql.DB) error {
	there, err := tables(ctx, MySQL, db)
	if err != nil || !there[versionTable] {
		return err
	}
	var used bool
	if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+versionTable+")").Scan(&used); err != nil || used {
		return err
	}
	_, err = db.ExecContext(ctx, "DROP TABLE "+versionTable)
	return err
}
