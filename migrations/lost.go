package migrations

import (
	"context"
	"database/sql"

	"github.com/timeoutcenter/toc/sharding"
)

// tables are the names of the tables that a database has.
func tables(ctx context.Context, dialect Dialect, db *sql.DB) (map[string]bool, error) {
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
	if dialect == SQLite {
		query = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	there := make(map[string]bool)
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		there[name] = true
	}
	return there, rows.Err()
}

// missingTables are the numbers of the task tables that a database should have
// and has not.
func missingTables(ctx context.Context, dialect Dialect, layout sharding.Layout, db *sql.DB) (missing []int, err error) {
	there, err := tables(ctx, dialect, db)
	for table := range layout.TablesPerDatabase {
		if err == nil && !there[sharding.TableName(table)] {
			missing = append(missing, table)
		}
	}
	return missing, err
}

// replaceLost makes the task tables that somebody dropped: all steps in order,
// for these tables alone. goose cannot: it remembers that the steps were run.
func (r *run) replaceLost(ctx context.Context) error {
	missing, err := missingTables(ctx, r.Dialect, r.Layout, r.database.DB)
	if err != nil || len(missing) == 0 {
		return err
	}
	v, err := r.vars(ctx)
	if err != nil {
		return err
	}
	tx, err := r.database.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
	for _, s := range steps {
		_, perTable, err := s.scripts(r.Dialect)
		if err != nil {
			return err
		}
		for _, table := range missing {
			if err := execute(ctx, tx, perTable, v.forTable(table)); err != nil {
				return err
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	r.Logger.Warn("lost task tables were made anew, empty", "database", r.database.String(), "tables", len(missing))
	return nil
}
