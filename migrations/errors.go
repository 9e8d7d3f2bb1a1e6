package migrations

import (
	"errors"
	"fmt"
)

// NotMigratedError: the database lacks tables that this program needs.
type NotMigratedError struct {
	Database   string
	Have, Want int64 // schema versions; Have 0 = nothing there, perhaps not even the database

	Missing int    // task tables that were there once, but are gone
	Example string // the first of them
	NoID    bool   // all tables are there, but not the store's id
}

func (e *NotMigratedError) Error() string {
	switch {
	case e.Have == 0:
		return e.Database + " has no tables yet: run `toc migrate` with the same --config"
	case e.NoID:
		return e.Database + " has no store id yet: run `toc migrate` with the same --config"
	case e.Have < e.Want:
		return fmt.Sprintf("%s has schema version %d, this program needs %d: run `toc migrate` with the same --config", e.Database, e.Have,
			e.Want)
	default:
		return fmt.Sprintf("%s has lost %d of its task tables, the first is %s: restore from a backup, or run `toc migrate` with the same --config to make them anew, empty",
			e.Database, e.Missing, e.Example)
	}
}

// NewerSchemaError: a newer program has migrated the database.
type NewerSchemaError struct {
	Database    string
	Have, Known int64 // schema versions
}

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("%s has schema version %d, but this program knows versions up to %d only: use the newer program that made it",
		e.Database, e.Have, e.Known)
}

// EarlierBuildError: a build before the first release has made the database, with a schema that this program cannot
// migrate.
type EarlierBuildError struct {
	Database string
	Have     int64 // schema version
}

func (e *EarlierBuildError) Error() string {
	return fmt.Sprintf("%s was made by a build before the first release (schema version %d), whose stores cannot be migrated: "+
		"use that build, or give this program an empty store: another store.sqlite.dir, or another database name in store.mysql.dsn",
		e.Database, e.Have)
}

// LayoutError: the database was made for another place in another layout. A
// program that went on would look for tasks where they are not.
type LayoutError struct {
	Database   string
	Key        string // layout_version, databases, tables_per_database, database or partitions
	Have, Want string // what the database was made with, "" if it does not say any more; what this program has
}

func (e *LayoutError) Error() string {
	if e.Have == "" {
		return fmt.Sprintf("%s does not say any more with which %s it was made: %s has lost that row, put it back",
			e.Database, e.Key, metaTable)
	}
	switch e.Key {
	case keyDatabase:
		return fmt.Sprintf("%s stands in the place of database number %s, but it was made as number %s: put the databases back in their order (store.mysql.dsns)",
			e.Database, e.Want, e.Have)
	case keyLayoutVersion:
		return fmt.Sprintf("%s was made with layout version %s, but this program maps ids to tables by version %s: use the program that made it",
			e.Database, e.Have, e.Want)
	case keyPartitions:
		return fmt.Sprintf("cluster.partitions is %s, but the store of %s works with %s: set cluster.partitions back to %s, "+
			"or stop everything and run `toc migrate --repartition` with the same --config", e.Want, e.Database, e.Have, e.Have)
	default:
		return fmt.Sprintf("store.%s is %s, but %s was made with %s: tasks would be looked for in the wrong place; set store.%s back to %s",
			e.Key, e.Want, e.Database, e.Have, e.Key, e.Have)
	}
}

// DatabaseError says which database could not be migrated, and how far it came.
// Running the migration again goes on from there.
type DatabaseError struct {
	Database    string
	Done, Total int // tables
	Err         error
}

func (e *DatabaseError) Error() string {
	return fmt.Sprintf("migrate %s (%d of %d tables done): %v", e.Database, e.Done, e.Total, e.Err)
}

func (e *DatabaseError) Unwrap() error { return e.Err }

// IsRefusal reports whether an error means that a database is not the one that the configuration takes it for. Time does not
// mend that.
func IsRefusal(err error) bool {
	return errors.As(err, new(*LayoutError)) || errors.As(err, new(*NewerSchemaError)) || errors.As(err, new(*EarlierBuildError)) ||
		errors.As(err, new(*StrangerError)) || errors.As(err, new(*EmptyError))
}
