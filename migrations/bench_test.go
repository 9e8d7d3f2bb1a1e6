package migrations_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/sharding"
)

// BenchmarkFirstMigration makes the tables of a cluster, 8 × 1024, by Up and by their bare statements, one connection a
// database: the floor. Run it with -benchtime=1x, for the seconds it prints.
func BenchmarkFirstMigration(b *testing.B) {
	layout := sharding.Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}
	b.Run("up", func(b *testing.B) {
		for range b.N {
			cfg := mysqlPlace(b).config(b, layout)
			b.StartTimer()
			require.NoError(b, migrations.Up(b.Context(), cfg))
			b.StopTimer()
			drop(b, cfg)
		}
	})
	b.Run("bare", func(b *testing.B) {
		for range b.N {
			cfg := mysqlPlace(b).config(b, layout)
			scripts := bareScripts(b, layout)
			b.StartTimer()
			var g errgroup.Group
			for i, d := range cfg.Databases {
				g.Go(func() error {
					for _, statement := range scripts[i] {
						if _, err := d.DB.ExecContext(b.Context(), statement); err != nil {
							return fmt.Errorf("%s: %w", statement, err)
						}
					}
					return nil
				})
			}
			require.NoError(b, g.Wait())
			b.StopTimer()
			drop(b, cfg)
		}
	})
}

// bareScripts are the statements of each database that make its tables.
func bareScripts(b *testing.B, layout sharding.Layout) (list [][]string) {
	var dsns []*mysql.Config
	for i := range layout.Databases {
		dsns = append(dsns, parse(b, fmt.Sprintf(testrig.MySQL(b).DSN(), i)))
	}
	var text bytes.Buffer
	require.NoError(b, migrations.Script(b.Context(), &text, layout, dsns))
	for statement := range strings.SplitSeq(text.String(), ";\n") {
		if strings.Contains(statement, "CREATE DATABASE") {
			list = append(list, nil)
		} else if strings.HasPrefix(statement, "CREATE TABLE") {
			list[len(list)-1] = append(list[len(list)-1], statement)
		}
	}
	return list
}

// drop removes the databases: two full layouts are many files.
func drop(b *testing.B, cfg migrations.Config) {
	var g errgroup.Group
	for _, d := range cfg.Databases {
		g.Go(func() error {
			var name string
			err := d.DB.QueryRowContext(b.Context(), "SELECT DATABASE()").Scan(&name)
			if err == nil {
				_, err = d.DB.ExecContext(context.WithoutCancel(b.Context()), "DROP DATABASE `"+name+"`")
			}
			return err
		})
	}
	require.NoError(b, g.Wait())
}
