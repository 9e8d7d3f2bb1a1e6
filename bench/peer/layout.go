package peer

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/configs"
)

// Layout is where the product keeps its rows.
type Layout struct {
	Name   string // "8x128"
	Tables int    // per database; 0: the embedded default, on SQLite
}

// The layouts that are measured.
var (
	Small    = Layout{"8x128", 128}
	Large    = Layout{"8x1024", 1024}
	Embedded = Layout{"embedded", 0}
)

// logger logs only warnings and errors: events that should not happen.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// config is the product on a layout, its database up and migrated.
func (l Layout) config(ctx context.Context, d *driver, env Env) (configs.Config, error) {
	cfg := configs.Default()
	cfg.HTTP.Listen = "127.0.0.1:0"
	cfg.Cluster.Partitions = 0 // worked out from the layout
	if l.Tables == 0 {
		cfg.Store.SQLite.Dir = filepath.Join(env.Scratch, "store")
		if err := os.Mkdir(cfg.Store.SQLite.Dir, 0o755); err != nil {
			return cfg, err
		}
	} else {
		s, err := d.start(ctx, server.MariaDB, env)
		if err != nil {
			return cfg, err
		}
		cfg.Store.Driver, cfg.Store.TablesPerDatabase = configs.DriverMySQL, l.Tables
		cfg.Store.MySQL.DSN = "root@tcp(" + s.Addr + ")/toc_%d"
	}
	bt := configs.DefaultBizType()
	bt.ID, bt.Name, bt.Processor = bizType, bizName, bizName
	cfg.BizTypes = []configs.BizType{bt}
	cfg = cfg.WithDefaults()
	return cfg, app.Migrate(ctx, cfg, logger(), nil)
}

func (l Layout) durable() string {
	if l.Tables == 0 {
		return "SQLite, WAL, synchronous FULL: nothing is lost"
	}
	return "MariaDB, an fsync each commit: nothing is lost"
}

// bizType is the business type of all tasks.
const (
	bizType = 1
	bizName = "bench"
)
