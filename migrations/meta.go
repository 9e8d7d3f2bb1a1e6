package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/sharding"
)

// metaTable holds what a database says it is.
const metaTable = "toc_meta"

// The rows of toc_meta. If you add one, write it in a new step and say in
// LayoutError what it means when it differs.
const (
	keyLayoutVersion = "layout_version" // how biz_id and job_id map to tables
	keyDatabases     = "databases"
	keyTables        = "tables_per_database"
	keyDatabase      = "database" // this database's own number
)

// layoutVersion changes when package sharding maps ids in another way.
const layoutVersion = "1"

// Verify tells whether a database is ready for a program with this layout: nil,
// or NotMigratedError, LayoutError, NewerSchemaError, or what the server said.
// It changes nothing.
func Verify(ctx context.Context, dialect Dialect, layout sharding.Layout, d Database) error {
	have, err := inspect(ctx, dialect, d.DB)
	if unknown := (*mysql.MySQLError)(nil); errors.As(err, &unknown) && unknown.Number == errUnknownDatabase {
		return &NotMigratedError{Database: d.String(), Want: newest}
	}
	if err != nil {
		return fmt.Errorf("read the schema version of %s: %w", d, err)
	}
	if err := have.accept(layout, d); err != nil {
		return err
	}
	if have.version < newest {
		return &NotMigratedError{Database: d.String(), Have: have.version, Want: newest}
	}
	missing, err := missingTables(ctx, dialect, layout, d.DB)
	if err != nil {
		return fmt.Errorf("list the tables of %s: %w", d, err)
	}
	if len(missing) > 0 {
		return &NotMigratedError{Database: d.String(), Have: have.version, Want: newest, Missing: len(missing), Example: sharding.TableName(missing[0])}
	}
	return nil
}

const errUnknownDatabase = 1049 // MySQL's ER_BAD_DB_ERROR

// check tells whether a database may be migrated: it is new, or it is ours.
func check(ctx context.Context, dialect Dialect, layout sharding.Layout, d Database) error {
	have, err := inspect(ctx, dialect, d.DB)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	return have.accept(layout, d)
}

// schema is what a database says about itself.
type schema struct {
	version int64             // the newest step it has; 0 = none
	meta    map[string]string // toc_meta; empty before step 1
}

// accept refuses a database of another layout or of a newer program.
func (s schema) accept(layout sharding.Layout, d Database) error {
	if s.version > newest {
		return &NewerSchemaError{Database: d.String(), Have: s.version, Known: newest}
	}
	for _, want := range []struct{ key, value string }{
		{keyLayoutVersion, layoutVersion},
		{keyDatabases, strconv.Itoa(layout.Databases)},
		{keyTables, strconv.Itoa(layout.TablesPerDatabase)},
		{keyDatabase, strconv.Itoa(d.Index)},
	} {
		have, written := s.meta[want.key]
		if have != want.value && (written || s.version > 0) {
			return &LayoutError{Database: d.String(), Key: want.key, Have: have, Want: want.value}
		}
	}
	return nil
}

// inspect reads it. No table at all is an answer, too.
func inspect(ctx context.Context, dialect Dialect, db *sql.DB) (schema, error) {
	s := schema{meta: make(map[string]string)}
	if there, err := exists(ctx, dialect, db, versionTable); err != nil {
		return s, err
	} else if there {
		query := "SELECT COALESCE(MAX(version_id), 0) FROM " + versionTable + " WHERE is_applied"
		if err := db.QueryRowContext(ctx, query).Scan(&s.version); err != nil {
			return s, err
		}
	}
	if there, err := exists(ctx, dialect, db, metaTable); err != nil || !there {
		return s, err
	}
	rows, err := db.QueryContext(ctx, "SELECT name, value FROM "+metaTable)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return s, err
		}
		s.meta[name] = value
	}
	return s, rows.Err()
}

func exists(ctx context.Context, dialect Dialect, db *sql.DB, table string) (there bool, err error) {
	query := "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?)"
	if dialect == SQLite {
		query = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)"
	}
	err = db.QueryRowContext(ctx, query, table).Scan(&there)
	return there, err
}
