package store

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/timeoutcenter/toc/sharding"
)

// mysqlBackend speaks to MySQL 8 and MariaDB ≥ 10.6.
//
// A transaction is one round trip; see transact.
type mysqlBackend struct {
	names   []string // schema names
	logins  []string // server, user and settings of the connections
	pools   []*sql.DB
	pings   []*sql.DB // for Ping, and to end what is lost
	holders []*sql.DB // for the holder's row alone; see mysql_lock.go
	clocks  []atomic.Pointer[ServerClock]
	gorms   []*gorm.DB
	servers []*server
	timeout time.Duration
}

func openMySQL(cfg Config) (backend, error) {
	b := &mysqlBackend{timeout: cfg.Timeout, clocks: make([]atomic.Pointer[ServerClock], cfg.Layout.Databases)}
	for i := range cfg.Layout.Databases {
		dsn, err := MySQLDSN(cfg, i)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		dsn.MaxAllowedPacket = 0 // the server is asked: a text that is too large for it is not sent
		connector, err := mysql.NewConnector(dsn)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		found := &server{}
		pool := sql.OpenDB(&session{connector, found, cfg.Timeout})
		pool.SetMaxOpenConns(cfg.MaxOpenConns)
		pool.SetMaxIdleConns(cfg.MaxOpenConns)
		pool.SetConnMaxIdleTime(5 * time.Minute)
		pings := sql.OpenDB(&session{connector, found, cfg.Timeout})
		pings.SetMaxOpenConns(3) // a watch, a probe, and one to end a statement; see end
		pings.SetMaxIdleConns(1)
		pings.SetConnMaxLifetime(pingAge)
		holders, err := holderPool(dsn)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		g, err := openGORM(pool)
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
		b.gorms = append(b.gorms, g)
		b.servers = append(b.servers, found)
	}
	return b, nil
}

// openGORM makes a GORM handle that reads over a pool. It connects to nothing. SQLite understands the few SELECTs that
// GORM makes for MySQL.
func openGORM(pool *sql.DB) (*gorm.DB, error) {
	return gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), &gorm.Config{
		Logger:                 logger.Discard, // errors are returned, not logged
		DisableAutomaticPing:   true,
		SkipDefaultTransaction: true,
	})
}

// MySQLDSN is the DSN of database number i, with what the product needs set:
// UTC everywhere, times parsed, several statements a round trip.
func MySQLDSN(cfg Config, i int) (*mysql.Config, error) {
	text := strings.Replace(cfg.DSN, "%d", fmt.Sprint(i), 1)
	if len(cfg.DSNs) > 0 {
		if i >= len(cfg.DSNs) {
			return nil, fmt.Errorf("store.mysql.dsns: %d given, database %d has none", len(cfg.DSNs), i)
		}
		text = cfg.DSNs[i]
	}
	dsn, err := mysql.ParseDSN(text)
	if err != nil {
		return nil, fmt.Errorf("store.mysql.dsn of database %d: %w", i, err)
	}
	if dsn.DBName == "" {
		return nil, fmt.Errorf("store.mysql.dsn of database %d names no database", i)
	}
	// The driver escapes parameters itself; that is safe in this character set,
	// and in others it is not.
	if err := dsn.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin")); err != nil {
		return nil, err
	}
	dsn.ParseTime, dsn.Loc = true, time.UTC
	dsn.MultiStatements, dsn.InterpolateParams = true, true
	dsn.ClientFoundRows = false     // a compare-and-set counts the rows it changed
	dsn.Logger = &mysql.NopLogger{} // errors are returned, not logged
	if dsn.Timeout == 0 {
		dsn.Timeout = 5 * time.Second
	}
	if dsn.ReadTimeout == 0 {
		dsn.ReadTimeout = 30 * time.Second
	}
	if dsn.WriteTimeout == 0 {
		dsn.WriteTimeout = 30 * time.Second
	}
	if dsn.Params == nil {
		dsn.Params = map[string]string{}
	}
	dsn.Params["time_zone"] = "'+00:00'"
	dsn.Params["sql_mode"] = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
	return dsn, nil
}

func (b *mysqlBackend) reader(database int) *gorm.DB { return b.gorms[database] }

// server: databases that are reached by the same login are on the same server.
func (b *mysqlBackend) server(database int) int { return slices.Index(b.logins, b.logins[database]) }

func (b *mysqlBackend) qualified(database, table int) string {
	return "`" + strings.ReplaceAll(b.names[database], "`", "``") + "`." + sharding.TableName(table)
}

func (b *mysqlBackend) orKeep() string { return " ON DUPLICATE KEY UPDATE job_id=job_id" }

func (b *mysqlBackend) hint(index string, _ int) string { return " FORCE INDEX (" + index + ")" }

func (b *mysqlBackend) member(query string) string { return "(" + query + ")" }

// counted counts in a variable of the session, at a third of what it costs to ask
// for ROW_COUNT after each statement of a block. Until a connection has told what
// server it is, nothing is counted: then statements are answered one by one.
func (b *mysqlBackend) counted(database int, value string) string {
	if !b.servers[database].isMariaDB.Load() {
		return value
	}
	return "IF(" + countRow + "," + value + "," + value + ")"
}

// deleteFrom uses the multi-table form: the only one that takes an index hint.
func (b *mysqlBackend) deleteFrom(table int) string {
	return "DELETE t FROM " + sharding.TableName(table) + " AS t FORCE INDEX (PRIMARY)"
}

func (b *mysqlBackend) id(v uint64) any { return v }

func (b *mysqlBackend) at(t time.Time) any { return t }

func (b *mysqlBackend) nullSafe() string { return "<=>" }

func (b *mysqlBackend) isAt(column string, t time.Time) (string, []any) {
	return column + "=?", []any{t}
}

// Server error numbers, the same on MySQL and MariaDB unless said.
const (
	erDuplicateKey   = 1062
	erLockWait       = 1205
	erDeadlock       = 1213
	erRecordChanged  = 1020 // MariaDB with innodb_snapshot_isolation
	erDBDenied       = 1044
	erBadNull        = 1048
	erUnknownDB      = 1049
	erReadOnlyTable  = 1036
	erTableDenied    = 1142
	erNoSuchTable    = 1146
	erReadOnly       = 1290
	erNotInEngine    = 1932
	erCrashed        = 1194
	erCrashedRepair  = 1195
	erCorruptIndex   = 1712
	erBadIndexFile   = 1034
	erNoSuchIndex    = 1176
	erNoSuchColumn   = 1054
	erColumnDenied   = 1143
	erTableChanged   = 1412
	erNoTablespace   = 1812
	erLostTablespace = 1814
	erSignal         = 1644 // of a trigger
	erOutOfRange     = 1264
	erWrongValue     = 1292
	erWrongString    = 1366
	erTooLong        = 1406
	erCheckMySQL     = 3819
	erCheckMariaDB   = 4025
	erTooLarge       = 1153 // max_allowed_packet
	erDiskFull       = 1021
	erTableFull      = 1114 // InnoDB's word for a full disk
	erEngine         = 1030 // names an error of the operating system
	erNoSuchThread   = 1094
	erKilled         = 1317
	erTimeMariaDB    = 1969 // max_statement_time
	erTimeMySQL      = 3024 // max_execution_time
	erReadOnlyTx     = 1792
	erReadOnlyMode   = 1836
)

func mysqlCode(err error) int {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return int(e.Number)
	}
	return 0
}

func (b *mysqlBackend) isDuplicate(err error) bool { return mysqlCode(err) == erDuplicateKey }

func (b *mysqlBackend) isConflict(err error) bool {
	return slices.Contains([]int{erDeadlock, erRecordChanged}, mysqlCode(err))
}

func (b *mysqlBackend) isLocked(err error) bool { return mysqlCode(err) == erLockWait }

func (b *mysqlBackend) isTooLarge(err error) bool {
	return mysqlCode(err) == erTooLarge || errors.Is(err, mysql.ErrPktTooLarge)
}

func (b *mysqlBackend) isFull(err error) bool {
	return slices.Contains([]int{erDiskFull, erTableFull, erEngine}, mysqlCode(err))
}

// isReadOnly: the server takes no writes from us, or from nobody.
func isReadOnly(err error) bool {
	return slices.Contains([]int{erReadOnly, erReadOnlyTx, erReadOnlyMode}, mysqlCode(err))
}

func (b *mysqlBackend) isRefused(err error) bool {
	return b.isDuplicate(err) || b.isConflict(err) || b.isData(err) || b.isLocked(err) || b.isTooLarge(err) || b.isTable(err) || b.isStatement(err) || b.isFull(err) ||
		isReadOnly(err) || slices.Contains([]int{erDBDenied, erUnknownDB}, mysqlCode(err))
}

func (b *mysqlBackend) isTable(err error) bool {
	return slices.Contains([]int{erNoSuchTable, erTableDenied, erColumnDenied, erReadOnlyTable, erNotInEngine, erCrashed, erCrashedRepair, erBadIndexFile,
		erCorruptIndex, erNoSuchIndex, erNoSuchColumn, erTableChanged, erNoTablespace, erLostTablespace, erSignal}, mysqlCode(err))
}

func (b *mysqlBackend) isStatement(err error) bool {
	return slices.Contains([]int{erKilled, erTimeMariaDB, erTimeMySQL}, mysqlCode(err))
}

func (b *mysqlBackend) isData(err error) bool {
	return slices.Contains([]int{erBadNull, erOutOfRange, erWrongValue, erWrongString, erTooLong, erCheckMySQL, erCheckMariaDB},
		mysqlCode(err))
}

func (b *mysqlBackend) close() error {
	var errs []error
	for _, p := range slices.Concat(b.pools, b.pings, b.holders) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
