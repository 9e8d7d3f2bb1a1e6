package migrations

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// A store has an id, the same in all its databases, once all of them have all their
// tables: a first migration that is stopped at any moment can go on, since nothing
// has an id yet. From then on an empty database is one that was lost.

// StoreID reads the id of the store that a database belongs to; "" if it has none yet.
// It changes nothing.
func StoreID(ctx context.Context, dialect Dialect, d Database) (string, error) {
	s, err := inspect(ctx, dialect, d)
	if err != nil {
		return "", fmt.Errorf("read the store id of %s: %w", d, err)
	}
	return s.meta[keyStoreID], nil
}

// EmptyError: a database without tables stands where a store has been in use.
type EmptyError struct{ Database, StoreID string }

func (e *EmptyError) Error() string {
	return fmt.Sprintf("%s is not there, or empty, but the store %s has been in use: restore it. If it is lost, stop everything and run "+
		"`toc migrate --new` with the same --config, which makes it anew, empty", e.Database, e.StoreID)
}

// StrangerError: a database belongs to another store.
type StrangerError struct {
	Database   string
	Have, Want string // store ids
}

func (e *StrangerError) Error() string {
	return fmt.Sprintf("%s belongs to the store %s, but the others of this configuration to %s: put each store's own databases together",
		e.Database, e.Have, e.Want)
}

// judge refuses databases of several stores, and lost ones unless they are to be made
// anew. It gives the id of the store; "" if it has none yet.
func (cfg Config) judge(schemas []schema, failed []error) (id string, err error) {
	id = cfg.StoreID
	for i, s := range schemas {
		have := s.meta[keyStoreID]
		if failed[i] != nil || have == "" {
			continue
		}
		if id = cmp.Or(id, have); have != id {
			return "", &StrangerError{Database: cfg.Databases[i].String(), Have: have, Want: id}
		}
	}
	for i, s := range schemas {
		if failed[i] == nil && id != "" && s.isEmpty() && !cfg.New {
			return "", &EmptyError{Database: cfg.Databases[i].String(), StoreID: id}
		}
	}
	return id, nil
}

// identify writes what all databases of the store have in common, in their order: of
// two processes that do so at once, the first database decides.
func (cfg Config) identify(ctx context.Context, id string) error {
	if len(cfg.Databases) < cfg.Layout.Databases {
		return nil // the others may not be ready
	}
	if id == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		id = hex.EncodeToString(b[:])
	}
	list := slices.SortedFunc(slices.Values(cfg.Databases), func(a, b Database) int { return cmp.Compare(a.Index, b.Index) })
	for i, d := range list {
		have, err := cfg.keep(ctx, d.DB, keyStoreID, id, false)
		if err == nil && i == 0 {
			id = have
		}
		if err == nil && have != id {
			err = &StrangerError{Database: d.String(), Have: have, Want: id}
		}
		if err == nil {
			_, err = cfg.keep(ctx, d.DB, keyPartitions, strconv.Itoa(cfg.Layout.Partitions), cfg.Repartition)
		}
		if err != nil {
			return fmt.Errorf("write the store id of %s: %w", d, err)
		}
	}
	return nil
}

// keep writes a row of toc_meta unless it is there, or over it, and gives its value.
func (cfg Config) keep(ctx context.Context, db *sql.DB, name, value string, over bool) (have string, err error) {
	insert := "INSERT IGNORE INTO "
	if cfg.Dialect == SQLite {
		insert = "INSERT OR IGNORE INTO "
	}
	_, err = db.ExecContext(ctx, insert+metaTable+" (name, value) VALUES (?, ?)", name, value)
	if err == nil && over {
		_, err = db.ExecContext(ctx, "UPDATE "+metaTable+" SET value = ? WHERE name = ?", value, name)
	}
	if err == nil {
		err = db.QueryRowContext(ctx, "SELECT value FROM "+metaTable+" WHERE name = ?", name).Scan(&have)
	}
	return have, err
}
