package migrations

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
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

// judge rejects databases of several stores, and lost ones unless they are to be made
// again. It returns the id of the store; "" if it has none yet.
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

// identify writes the store's id and its number of partitions into all databases. Of two processes that do so at once, the
// one that is first in the first database decides.
func (cfg Config) identify(ctx context.Context, id string) error {
	if len(cfg.Databases) < cfg.Layout.Databases {
		return nil // the others may not be ready
	}
	if id == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		id = hex.EncodeToString(b[:])
	}
	cfg.Databases = slices.SortedFunc(slices.Values(cfg.Databases), func(a, b Database) int { return cmp.Compare(a.Index, b.Index) })
	id, err := cfg.keep(ctx, cfg.Databases[0], id)
	if err != nil {
		return err
	}
	cfg.Databases = cfg.Databases[1:]
	failed := make([]error, len(cfg.Databases))
	cfg.each(func(i int, d Database) {
		have, err := cfg.keep(ctx, d, id)
		if err == nil && have != id {
			err = &StrangerError{Database: d.String(), Have: have, Want: id}
		}
		failed[i] = err
	})
	return errors.Join(failed...)
}

// keep writes a database's rows of toc_meta that identify the store, where they are missing, and returns the id
// that is there now.
func (cfg Config) keep(ctx context.Context, d Database, id string) (have string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the store id of %s: %w", d, err)
		}
	}()
	tx, err := d.DB.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
	insert := "INSERT IGNORE INTO "
	if cfg.Dialect == SQLite {
		insert = "INSERT OR IGNORE INTO "
	}
	partitions := strconv.Itoa(cfg.Layout.Partitions)
	_, err = tx.ExecContext(ctx, insert+metaTable+" (name, value) VALUES (?, ?), (?, ?)", keyStoreID, id, keyPartitions, partitions)
	if err == nil && cfg.Repartition {
		_, err = tx.ExecContext(ctx, "UPDATE "+metaTable+" SET value = ? WHERE name = ?", partitions, keyPartitions)
	}
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT value FROM "+metaTable+" WHERE name = ?", keyStoreID).Scan(&have)
	}
	if err == nil {
		err = tx.Commit()
	}
	return have, err
}
