package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/cmd/toc/internal/sqltable"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/store"
)

func sqlCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sql 'SELECT … FROM timeout_task WHERE …'",
		Short: "Run one SELECT over all shards",
		Long: `Run one SELECT on the task tables of all shards, as if they were one table named
timeout_task. The SQL is SQLite's, whatever the store is: joins, WITH and window
functions work. The table timeout_task_counts has the number of tasks of each
biz_type and status, counted by the servers. The command goes to the store, not
over HTTP, and changes nothing.`,
		Example: `  toc sql 'SELECT status, SUM(tasks) FROM timeout_task_counts GROUP BY status'
  toc sql 'SELECT * FROM timeout_task WHERE biz_id = 42' --json`,
		Args: oneArgument,
	}
	path := configFlag(cmd)
	asJSON := cmd.Flags().Bool("json", false, "an array of objects")
	asCSV := cmd.Flags().Bool("csv", false, "comma-separated values")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	timeout := cmd.Flags().Duration("timeout", 30*time.Second, "how long the query may take")
	limit := cmd.Flags().Int("limit", 10_000, "how many rows may be printed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *timeout <= 0:
			return usage("--timeout %s: give more than 0s, like 5m", *timeout)
		case *limit < 1:
			return usage("--limit %d: give 1 or more", *limit)
		}
		if err := sqltable.Check(args[0]); err != nil {
			return usageError{err}
		}
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), *timeout,
			fmt.Errorf("the query took longer than %s; narrow it down, or allow more, like --timeout %s", *timeout, 10**timeout))
		defer cancel()
		result, err := runSQL(ctx, cfg, args[0], *limit)
		if err != nil {
			return err
		}
		write := result.WriteTable
		switch {
		case *asJSON:
			write = result.WriteJSON
		case *asCSV:
			write = result.WriteCSV
		}
		if err := write(cmd.OutOrStdout()); err != nil {
			return err
		}
		if result.More {
			return fmt.Errorf("there are more than %d rows; narrow the query down, or print more, like --limit %d", *limit, 10**limit)
		}
		return nil
	}
	return cmd
}

func runSQL(ctx context.Context, cfg configs.Config, query string, limit int) (result *sqltable.Result, err error) {
	if cfg.Store.Driver == configs.DriverSQLite {
		if _, err := os.Stat(store.SQLiteFile(cfg.Store.SQLite.Dir, 0)); err != nil {
			dir, _ := filepath.Abs(cfg.Store.SQLite.Dir)
			return nil, fmt.Errorf("there is no store in %s; start toc serve or toc migrate first, or name its configuration by --config", dir)
		}
	}
	list, err := app.Databases(cfg, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, app.CloseDatabases(list)) }()
	databases := make([]*sql.DB, len(list))
	for i, d := range list {
		databases[i] = d.DB
	}
	s := sqltable.Store{Layout: app.Layout(cfg.WithDefaults()), Databases: databases, MySQL: cfg.Store.Driver == configs.DriverMySQL}
	return s.Run(ctx, query, limit)
}
