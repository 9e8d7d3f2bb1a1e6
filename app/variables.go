package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/store"
)

// variables are the settings of a MySQL server that must fit the layout.
type variables struct {
	version                   string
	openCache, instances      int // table_open_cache, and the number of its parts
	definitionCache, maxConns int
	report                    mysqlsession.Report
}

// WrongServersError lists the settings of MySQL servers that make statements fail or lose writes, one line each with
// the value to set.
type WrongServersError struct{ Lines []string }

func (e *WrongServersError) Error() string { return strings.Join(e.Lines, "\n") }

// ServerAdvice compares the settings of the MySQL servers with the layout, and with what durability rests on, and returns
// what to set, one line each; nothing on SQLite. If a server does not answer, the error comes with the advice for the
// others. A setting that toc cannot work with is a *WrongServersError.
func ServerAdvice(ctx context.Context, cfg configs.Config) (advice []string, err error) {
	cfg = cfg.WithDefaults()
	if cfg.Store.Driver != configs.DriverMySQL {
		return nil, nil
	}
	servers := make(map[string][]int) // their databases
	var order []string
	for d := range cfg.Store.Databases {
		dsn, err := store.MySQLDSN(StoreConfig(cfg), d)
		if err != nil {
			return nil, err
		}
		if servers[dsn.Addr] == nil {
			order = append(order, dsn.Addr)
		}
		servers[dsn.Addr] = append(servers[dsn.Addr], d)
	}
	wrong := &WrongServersError{}
	for _, addr := range order {
		databases := servers[addr]
		v, failed := readVariables(ctx, cfg, databases[0])
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("server %s: %w", addr, failed))
			continue
		}
		tables, connections := len(databases)*cfg.Store.TablesPerDatabase, len(databases)*(cfg.Store.MySQL.MaxOpenConns+3)
		for _, line := range v.advice(tables, connections, leastNodes(cfg)) {
			advice = append(advice, fmt.Sprintf("server %s: %s", addr, line))
		}
		for _, line := range v.report.Wrong {
			wrong.Lines = append(wrong.Lines, fmt.Sprintf("server %s: %s", addr, line))
		}
	}
	if len(wrong.Lines) > 0 {
		err = errors.Join(err, wrong)
	}
	return advice, err
}

// readVariables reads the settings without naming a database: before `toc migrate` there may be none.
func readVariables(ctx context.Context, cfg configs.Config, database int) (v variables, err error) {
	dsn, err := store.MySQLDSN(StoreConfig(cfg), database)
	if err != nil {
		return v, err
	}
	dsn.DBName = ""
	connector, err := mysqlsession.NewConnector(dsn, migrations.SessionLimits)
	if err != nil {
		return v, err
	}
	db := sql.OpenDB(StoreConfig(cfg).TLS.ExplainMySQLConnects(connector, dsn.Addr))
	defer db.Close()
	if v.report, err = mysqlsession.Read(ctx, db, migrations.SessionLimits); err != nil {
		return v, err
	}
	err = db.QueryRowContext(ctx, "SELECT @@version, @@table_open_cache, @@table_open_cache_instances, @@table_definition_cache, @@max_connections").
		Scan(&v.version, &v.openCache, &v.instances, &v.definitionCache, &v.maxConns)
	return v, err
}

// leastNodes is how many nodes a configuration is for at least. One of a cluster does not know of all that will be.
func leastNodes(cfg configs.Config) int {
	if cfg.Cluster.Provider == configs.ProviderConsul {
		return 2
	}
	return 1
}

// advice returns what to set for so many tables, and so many nodes with their connections.
func (v variables) advice(tables, connections, nodes int) []string {
	var wrong, right []string
	need := func(name string, is, atLeast int) {
		if is < atLeast {
			wrong, right = append(wrong, fmt.Sprintf("%s is %d", name, is)), append(right, fmt.Sprintf("%s=%d", name, atLeast))
		}
	}
	need("table_open_cache", v.openCache, tables)
	// MariaDB does not need these: its drain was slower with a larger cache of definitions.
	if !strings.Contains(v.version, "MariaDB") {
		need("table_definition_cache", v.definitionCache, tables+400)
		if v.instances > 1 && tables > 1000 { // each table of each connection has its place in one of them
			wrong, right = append(wrong, fmt.Sprintf("table_open_cache_instances is %d", v.instances)), append(right, "table_open_cache_instances=1")
		}
	}
	var list []string
	if len(wrong) > 0 {
		list = append(list, fmt.Sprintf("%s, and the layout has %d tables there; start it with %s, and open files to match (open_files_limit)",
			strings.Join(wrong, ", "), tables, strings.Join(right, ", ")))
	}
	if v.maxConns < connections*nodes {
		list = append(list, fmt.Sprintf("max_connections is %d, and each node may open %d; set it to that times the number of nodes",
			v.maxConns, connections))
	}
	return append(slices.Clip(list), v.report.NotDurable...)
}
