package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/sharding"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the databases and tables; safe to repeat",
		Long: `Create the databases and tables, or bring them up to this program's version. It
is safe to repeat, and goes on where it was stopped.

A database that is empty although its store has been in use was lost. It is not made
anew unless you say so. The same holds for a changed cluster.partitions, by which the
parts of the store are shared out: everything must be stopped for that.

Where the program may not create tables, --print writes the SQL for somebody who may;
afterwards toc migrate needs no more than toc serve.`,
		Args: noArguments,
	}
	path := configFlag(cmd)
	anew := cmd.Flags().Bool("new", false, "make databases anew, empty, that were lost from a store in use")
	repartition := cmd.Flags().Bool("repartition", false, "put a changed cluster.partitions in force")
	script := cmd.Flags().Bool("print", false, "write the SQL for a new MySQL store, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		if *script {
			return app.PrintMigration(cmd.Context(), cfg, cmd.OutOrStdout())
		}
		if cfg.Store.Driver == configs.DriverSQLite {
			if err := os.MkdirAll(cfg.Store.SQLite.Dir, 0o700); err != nil {
				return err
			}
		}
		tables := cfg.Store.Databases * cfg.Store.TablesPerDatabase
		bar := progressbar.NewOptions(tables,
			progressbar.OptionSetWriter(cmd.ErrOrStderr()), progressbar.OptionSetVisibility(isTerminal(cmd.ErrOrStderr())),
			progressbar.OptionSetDescription("tables"),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(40), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish())
		var options []app.MigrateOption
		if *anew {
			options = append(options, app.MakeLostAnew())
		}
		if *repartition {
			options = append(options, app.Repartition())
		}
		start := time.Now()
		progress := func(done, _ int) { _ = bar.Set(done) }
		if err := app.Migrate(cmd.Context(), cfg, slog.New(slog.DiscardHandler), progress, options...); err != nil {
			return err
		}
		_ = bar.Finish()
		if err := warnOf(cmd, cfg, app.ServerAdvice); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "ready: %d databases × %d tables (%s)\n",
			cfg.Store.Databases, cfg.Store.TablesPerDatabase, time.Since(start).Round(time.Millisecond))
		return err
	}
	return cmd
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with configuration files", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("use: toc config check [--config FILE] [--connect]")
		}}
	check := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with a configuration, or how it will be understood",
		Long: `Say what is wrong with a configuration, or how it will be understood. With --connect
each server that it names is asked, except the receivers of webhooks: what is to be
set on the MySQL servers for a layout like this and for durable writes, whether their
sessions have the variables that toc sets, and whether the tables are there; whether
the Kafka clusters answer and have the topics; whether Redis and Consul let toc do what
it needs; and whether the collector of traces answers. It exits with 1 and the answer
of the server where one does not.`,
		Args: flagInstead("--config"),
	}
	path := configFlag(check)
	connect := check.Flags().Bool("connect", false, "ask the servers that the configuration names, too")
	check.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		for _, w := range cfg.Warnings() {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
		for _, b := range cfg.BizTypes {
			if !slices.Contains([]string{configs.ProcessorLog, configs.ProcessorWebhook, configs.ProcessorKafka, configs.ProcessorPull},
				b.Processor) {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: biz_types: %s has the processor %q, which `toc serve` does not know; right only if a program of yours registers it\n", b.Name, b.Processor)
			}
		}
		if *connect {
			if err := errors.Join(warnOf(cmd, cfg, app.TablesAdvice), warnOf(cmd, cfg, app.ServerAdvice), warnOf(cmd, cfg, app.KafkaAdvice),
				warnOf(cmd, cfg, app.RedisAdvice), warnOf(cmd, cfg, app.ConsulAdvice), warnOf(cmd, cfg, app.TracingAdvice)); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok\n\n%s", cfg)
		return err
	}
	cmd.AddCommand(check)
	return cmd
}

// warnOf prints the advice of servers.
func warnOf(cmd *cobra.Command, cfg configs.Config, ask func(context.Context, configs.Config) ([]string, error)) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
	defer cancel()
	advice, err := ask(ctx, cfg)
	for _, line := range advice {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", line)
	}
	return err
}

// place is where a row that is inserted by hand belongs.
type place struct {
	JobID    client.ID  `json:"job_id"`
	BizID    *client.ID `json:"biz_id,omitempty"` // where it was given as a text
	BizKey   string     `json:"biz_key,omitempty"`
	Database int        `json:"database"`
	Table    string     `json:"table"`
}

func jobIDCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job-id --biz-id N",
		Short: "Print a job_id for a task that is inserted by hand",
		Long: `Print a job_id for a row that is inserted by plain SQL: it carries the shard of
the biz_id and the worker number 1023, which no process uses. Also says which
database and table the row belongs to. For a biz_id that is a text it prints the
number that stands for it on a second line; the text itself is the row's biz_key.`,
		Args: flagInstead("--biz-id"),
	}
	path := configFlag(cmd)
	bizID := bizIDFlag(cmd, "the task's biz_id, a `number or text` (required)")
	asJSON := cmd.Flags().Bool("json", false, "print an object with job_id, database and table; of a text biz_id and biz_key, too")
	mustBeGiven(cmd, "biz-id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(*path)
		if err != nil {
			return err
		}
		layout := app.Layout(cfg.WithDefaults())
		shard := layout.Shard(bizID.Number)
		jobID, err := sharding.JobID(time.Now(), shard, sharding.HandWorker)
		if err != nil {
			return err
		}
		p := place{JobID: client.ID(jobID), Database: layout.Database(shard), Table: sharding.TableName(layout.Table(shard))}
		if bizID.Key != "" {
			number := client.ID(bizID.Number)
			p.BizID, p.BizKey = &number, bizID.Key
		}
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(p)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "database %d, table %s\n", p.Database, p.Table)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), jobID)
		if err == nil && p.BizID != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "then its biz_id; biz_key is %s\n", oneLine(p.BizKey))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), p.BizID)
		}
		return err
	}
	return cmd
}
