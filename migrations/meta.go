package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

	// Written by identify when all databases are ready.
	keyStoreID    = "store_id"   // 16 hexadecimal digits, the same in all databases of a store
	keyPartitions = "partitions" // what cluster.partitions must be
)

// layoutVersion changes when package sharding maps ids in another way.
const layoutVersion = "1"

// Verify checks whether a database is ready for a program with this layout. It returns
// nil, NotMigratedError, LayoutError, NewerSchemaError, EarlierBuildError, or the
// server's error. It changes nothing.
func Verify(ctx context.Context, dialect Dialect, layout sharding.Layout, d Database) error {
	have, err := inspect(ctx, dialect, d)
	if IsUnknownDatabase(err) {
		return &NotMigratedError{Database: d.String(), Want: newest()}
	}
	if err != nil {
		return fmt.Errorf("read the schema version of %s: %w", d, err)
	}
	if err := have.accept(layout, d, false); err != nil {
		return err
	}
	if have.version < newest() {
		return &NotMigratedError{Database: d.String(), Have: have.version, Want: newest()}
	}
	missing, err := missingTables(ctx, dialect, layout, d.DB)
	if err != nil {
		return fmt.Errorf("list the tables of %s: %w", d, err)
	}
	if len(missing) > 0 {
		return &NotMigratedError{Database: d.String(), Have: have.version, Want: newest(), Missing: len(missing),
			Example: sharding.TableName(missing[0])}
	}
	return nil
}

// IsUnknownDatabase reports whether a MySQL server answered that it has no such database.
func IsUnknownDatabase(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1049 // ER_BAD_DB_ERROR
}

// check returns an error unless a database may be migrated: it is new, or it is ours.
func (cfg Config) check(ctx context.Context, d Database) (schema, error) {
	have, err := inspect(ctx, cfg.Dialect, d)
	if err != nil {
		return have, fmt.Errorf("read the schema version: %w", err)
	}
	return have, have.accept(cfg.Layout, d, cfg.Repartition)
}

// schema is what a database says about itself.
type schema struct {
	version int64             // the newest step it has; 0 = none
	meta    map[string]string // toc_meta; empty before step 1
}

// isEmpty reports whether nothing of a store is there.
func (s schema) isEmpty() bool { return s.version == 0 && len(s.meta) == 0 }

// accept refuses a database of another layout or of a newer program. The number of
// partitions may differ if it is to be changed.
func (s schema) accept(layout sharding.Layout, d Database, repartition bool) error {
	if s.version > newest() {
		return &NewerSchemaError{Database: d.String(), Have: s.version, Known: newest()}
	}
	if s.version > 0 && s.version < baseline {
		return &EarlierBuildError{Database: d.String(), Have: s.version}
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
	partitions := strconv.Itoa(layout.Partitions)
	if have, written := s.meta[keyPartitions]; written && have != partitions && !repartition {
		return &LayoutError{Database: d.String(), Key: keyPartitions, Have: have, Want: partitions}
	}
	return nil
}

// inspect reads it. No table at all is an answer, too.
func inspect(ctx context.Context, dialect Dialect, d Database) (schema, error) {
	s := schema{meta: make(map[string]string)}
	if d.File != "" {
		if _, err := os.Stat(d.File); errors.Is(err, fs.ErrNotExist) {
			return s, nil // to open it would make it
		}
	}
	db := d.DB
	there, err := tables(ctx, dialect, db)
	if err != nil {
		return s, err
	}
	if there[versionTable] {
		query := "SELECT COALESCE(MAX(version_id), 0) FROM " + versionTable + " WHERE is_applied"
		if err := db.QueryRowContext(ctx, query).Scan(&s.version); err != nil {
			return s, err
		}
	}
	// Another process may have made both since: a look from before the version would miss the description.
	if there, err = tables(ctx, dialect, db); err != nil || !there[metaTable] {
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
