package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/sharding"
)

// mysqlBackend is for MySQL 8 and MariaDB ≥ 10.6. A transaction is one round trip; see transact.
type mysqlBackend struct {
	serverClocks
	names   []string // schema names
	logins  []string // server, user and settings of the connections
	pools   []*sql.DB
	pings   []*sql.DB // for Ping, and to end lost statements
	holders []*sql.DB // for the holder's row only; see mysql_lock.go
	servers []*server
	timeout time.Duration
}

func openMySQL(cfg Config) (backend, error) {
	b := &mysqlBackend{timeout: cfg.Timeout, serverClocks: make(serverClocks, cfg.Layout.Databases)}
	for i := range cfg.Layout.Databases {
		dsn, err := MySQLDSN(cfg, i)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		connector, err := mysqlsession.NewConnector(dsn, limits(cfg.Timeout))
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		found := &server{}
		explained := cfg.Outside.Connector(i, cfg.TLS.ExplainMySQLConnects(connector, dsn.Addr))
		pool := sql.OpenDB(&session{explained, found})
		pool.SetMaxOpenConns(cfg.MaxOpenConns)
		pool.SetMaxIdleConns(cfg.MaxOpenConns)
		pool.SetConnMaxIdleTime(idleTime)
		pings := sql.OpenDB(&session{explained, found})
		pings.SetMaxOpenConns(3) // for Watch, Probe, and end
		pings.SetMaxIdleConns(1)
		pings.SetConnMaxLifetime(pingAge)
		holders, err := holderPool(cfg, i, dsn)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		b.names = append(b.names, dsn.DBName)
		login := dsn.Clone()
		login.DBName = ""
		b.logins = append(b.logins, login.FormatDSN())
		b.pools = append(b.pools, pool)
		b.pings = append(b.pings, pings)
		b.holders = append(b.holders, holders)
		b.servers = append(b.servers, found)
	}
	return b, nil
}

// openGORM makes a GORM handle for reads over a pool. It does not connect. SQLite understands the few SELECTs
// that GORM makes for MySQL.
func openGORM(pool gorm.ConnPool) (*gorm.DB, error) {
	schema.RegisterSerializer("toc", inForm{})
	return gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), &gorm.Config{
		Logger:                 logger.Discard, // errors are returned, not logged
		DisableAutomaticPing:   true,
		SkipDefaultTransaction: true,
	})
}

// MySQLDSN is the DSN of database number i with the settings that the store needs; see package mysqlsession, which
// connects by it.
func MySQLDSN(cfg Config, i int) (*mysql.Config, error) {
	text := cfg.DSN
	if len(cfg.DSNs) > 0 {
		if i >= len(cfg.DSNs) {
			return nil, fmt.Errorf("store.mysql.dsns: %d given, database %d has none", len(cfg.DSNs), i)
		}
		text = cfg.DSNs[i]
	}
	dsn, err := mysqlsession.Parse(text, i)
	if err != nil {
		return nil, fmt.Errorf("store.mysql.dsn of database %d %w", i, err)
	}
	if dsn.DBName == "" {
		return nil, fmt.Errorf("store.mysql.dsn of database %d names no database", i)
	}
	if err := cfg.TLS.ForMySQL(dsn); err != nil {
		return nil, err
	}
	dsn.Timeout = cmp.Or(dsn.Timeout, 5*time.Second)
	dsn.ReadTimeout = cmp.Or(dsn.ReadTimeout, 30*time.Second)
	dsn.WriteTimeout = cmp.Or(dsn.WriteTimeout, 30*time.Second)
	return dsn, nil
}

func (b *mysqlBackend) reader(database int) gorm.ConnPool { return b.pools[database] }

// server: databases with the same login are on the same server.
func (b *mysqlBackend) server(database int) int { return slices.Index(b.logins, b.logins[database]) }

func (b *mysqlBackend) qualified(database, table int) string {
	return "`" + strings.ReplaceAll(b.names[database], "`", "``") + "`." + sharding.TableName(table)
}

func (b *mysqlBackend) ignoreDuplicates() string { return " ON DUPLICATE KEY UPDATE job_id=job_id" }

func (b *mysqlBackend) hint(index string, _ int) string { return " FORCE INDEX (" + index + ")" }

func (b *mysqlBackend) unionMember(query string) string { return "(" + query + ")" }

// countingExpr counts in a session variable, at a third of the cost of ROW_COUNT after each statement of a
// block. Until a connection has shown the kind of its server, the variable is not used: then the server
// answers statements one by one.
func (b *mysqlBackend) countingExpr(database int, value string) string {
	if !b.servers[database].isMariaDB.Load() {
		return value
	}
	return "IF(" + countRow + "," + value + "," + value + ")"
}

// deleteFrom uses the multi-table form: the only one that takes an index hint.
func (b *mysqlBackend) deleteFrom(table int) string {
	return "DELETE t FROM " + sharding.TableName(table) + " AS t FORCE INDEX (PRIMARY)"
}

func (b *mysqlBackend) idArg(v uint64) any { return v }

func (b *mysqlBackend) timeArg(t time.Time) any { return t }

func (b *mysqlBackend) appendTo(column string, keep int) string {
	return "RIGHT(CONCAT_WS(''," + column + ",?)," + strconv.Itoa(keep) + ")" // CONCAT_WS skips NULL
}

func (b *mysqlBackend) nullSafe() string { return "<=>" }

func (b *mysqlBackend) isAt(column string, t time.Time) (string, any) {
	return column + "=?", t
}

// mysqlRefusals are the server's error numbers, the same on MySQL and MariaDB unless said.
var mysqlRefusals = map[int]refusal{
	1062: refusedDuplicate,
	1205: refusedLocked,
	1213: refusedConflict,
	1020: refusedConflict, // record has changed: MariaDB with innodb_snapshot_isolation
	1153: refusedSize,     // max_allowed_packet
	3170: refusedSize,     // parser_max_mem_size of MySQL
	1021: refusedFull,     // disk full
	1114: refusedFull,     // table full: InnoDB's word for a full disk
	1030: refusedFull,     // names an error of the operating system
	1290: refusedReadOnly, // by an option
	1792: refusedReadOnly, // the transaction
	1836: refusedReadOnly, // the mode

	1146: refusedTable, // no such table
	1142: refusedTable, // no right to it
	1143: refusedTable, // no right to a column
	1036: refusedTable, // read-only
	1932: refusedTable, // not in the engine
	1194: refusedTable, // crashed
	1195: refusedTable, // crashed, and so did its repair
	1034: refusedTable, // bad index file
	1712: refusedTable, // corrupt index
	1176: refusedTable, // no such index
	1054: refusedTable, // no such column
	1412: refusedTable, // its definition has changed
	1812: refusedTable, // no tablespace
	1814: refusedTable, // tablespace discarded
	1644: refusedTable, // signal of a trigger

	1317: refusedStatement, // killed
	1969: refusedStatement, // max_statement_time of MariaDB
	3024: refusedStatement, // max_execution_time of MySQL

	1048: refusedData, // NULL
	1264: refusedData, // out of range
	1292: refusedData, // wrong value
	1366: refusedData, // wrong string
	1406: refusedData, // too long
	3819: refusedData, // CHECK, MySQL
	4025: refusedData, // CHECK, MariaDB

	1044: otherRefusal, // no right to the database
	1049: otherRefusal, // no such database
}

func mysqlCode(err error) int {
	if e, is := errors.AsType[*mysql.MySQLError](err); is {
		return int(e.Number)
	}
	return 0
}

func (b *mysqlBackend) refusal(err error) refusal {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return refusedSize
	}
	return mysqlRefusals[mysqlCode(err)]
}

func isReadOnly(err error) bool { return mysqlRefusals[mysqlCode(err)] == refusedReadOnly }

func (b *mysqlBackend) close() error {
	var errs []error
	for _, p := range slices.Concat(b.pools, b.pings, b.holders) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
