package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/database"

	"github.com/timeoutcenter/toc/sharding"
)

// Script writes the SQL that makes on an empty MySQL server the same as Up, but without
// the store's id and its number of partitions. It is for a person who may create tables
// where the program may not. dsns name the databases in order; Script asks each server
// for its binary collation. Up with SELECT and INSERT does the rest.
func Script(ctx context.Context, w io.Writer, layout sharding.Layout, dsns []*mysql.Config) error {
	const head = "-- For databases that do not exist yet. What stopped half way is not repeated: drop them and begin again.\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	for i, dsn := range dsns {
		text, err := databaseScript(ctx, layout, i, dsn)
		if err != nil {
			return fmt.Errorf("database %d: %w", i, err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func databaseScript(ctx context.Context, layout sharding.Layout, index int, cfg *mysql.Config) (string, error) {
	name := cfg.DBName
	if err := checkName(name); err != nil {
		return "", err
	}
	db, err := withoutDatabase(cfg)
	if err != nil {
		return "", err
	}
	defer db.Close()
	collation, err := binaryCollation(ctx, db)
	if err != nil {
		return "", err
	}

	var text strings.Builder
	add := func(statement string) { text.WriteString(statement + ";\n") }
	add(createDatabase(name))
	add("USE `" + name + "`")
	v := newVars(layout, index, collation)
	versions := []string{"(0, TRUE)"}
	for _, s := range steps {
		if err := s.run(ctx, MySQL, recorder(add), v, func(int) {}); err != nil {
			return "", err
		}
		versions = append(versions, fmt.Sprintf("(%d, TRUE)", s.number))
	}
	store, err := database.NewStore(database.DialectMySQL, versionTable)
	if err != nil {
		return "", err
	}
	if err := store.CreateVersionTable(ctx, recorder(add)); err != nil {
		return "", err
	}
	add("INSERT INTO " + versionTable + " (version_id, is_applied) VALUES " + strings.Join(versions, ", "))
	return text.String(), nil
}

// recorder is what goose takes for a connection: what it executes is noted.
type recorder func(statement string)

var errRecorder = errors.New("nothing can be asked here")

func (r recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r(strings.TrimRight(strings.TrimSpace(query), ";"))
	return nil, nil
}

func (recorder) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errRecorder
}

func (recorder) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }
