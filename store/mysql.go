package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
	pings   []*sql.DB // for Ping alone
	gorms   []*gorm.DB
	servers []*server
}

// server is what connecting found out about the server of a database.
type server struct{ isMariaDB atomic.Bool }

func openMySQL(cfg Config) (backend, error) {
	b := &mysqlBackend{}
	for i := range cfg.Layout.Databases {
		dsn, err := MySQLDSN(cfg, i)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		connector, err := mysql.NewConnector(dsn)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		found := &server{}
		pool := sql.OpenDB(&session{connector, found})
		pool.SetMaxOpenConns(cfg.MaxOpenConns)
		pool.SetMaxIdleConns(cfg.MaxOpenConns)
		pool.SetConnMaxIdleTime(5 * time.Minute)
		pings := sql.OpenDB(&session{connector, found})
		pings.SetMaxOpenConns(2) // a watch and a probe
		pings.SetMaxIdleConns(1)
		g, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), gormConfig())
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		b.names = append(b.names, dsn.DBName)
		login := dsn.Clone()
		login.DBName = ""
		b.logins = append(b.logins, login.FormatDSN())
		b.pools = append(b.pools, pool)
		b.pings = append(b.pings, pings)
		b.gorms = append(b.gorms, g)
		b.servers = append(b.servers, found)
	}
	return b, nil
}

func gormConfig() *gorm.Config {
	return &gorm.Config{
		Logger:                 logger.Discard, // errors are returned, not logged
		DisableAutomaticPing:   true,
		SkipDefaultTransaction: true,
	}
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

// session gives each new connection READ COMMITTED: the statements name their
// rows, so nothing needs the gap locks (and deadlocks) of the default level.
type session struct {
	driver.Connector
	server *server
}

func (s *session) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", nil)
	var version string
	if err == nil {
		version, err = queryText(ctx, conn.(driver.QueryerContext), "SELECT VERSION()", nil)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.server.isMariaDB.Store(strings.Contains(strings.ToLower(version), "mariadb"))
	return conn, nil
}

func (b *mysqlBackend) ping(ctx context.Context, database int) error {
	return b.pings[database].PingContext(ctx)
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

// Server error numbers, the same on MySQL and MariaDB unless said.
const (
	erDuplicateKey  = 1062
	erLockWait      = 1205
	erDeadlock      = 1213
	erRecordChanged = 1020 // MariaDB with innodb_snapshot_isolation
	erDBDenied      = 1044
	erBadNull       = 1048
	erUnknownDB     = 1049
	erReadOnlyTable = 1036
	erTableDenied   = 1142
	erNoSuchTable   = 1146
	erReadOnly      = 1290
	erOutOfRange    = 1264
	erWrongValue    = 1292
	erWrongString   = 1366
	erTooLong       = 1406
	erCheckMySQL    = 3819
	erCheckMariaDB  = 4025
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
	return slices.Contains([]int{erLockWait, erDeadlock, erRecordChanged}, mysqlCode(err))
}

func (b *mysqlBackend) isRefused(err error) bool {
	return b.isDuplicate(err) || b.isConflict(err) || b.isData(err) ||
		slices.Contains([]int{erDBDenied, erUnknownDB, erTableDenied, erNoSuchTable, erReadOnlyTable, erReadOnly}, mysqlCode(err))
}

func (b *mysqlBackend) isData(err error) bool {
	return slices.Contains([]int{erBadNull, erOutOfRange, erWrongValue, erWrongString, erTooLong, erCheckMySQL, erCheckMariaDB},
		mysqlCode(err))
}

func (b *mysqlBackend) close() error {
	var errs []error
	for _, p := range slices.Concat(b.pools, b.pings) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// mysqlLock is GET_LOCK on a connection of its own: the server frees it when
// the connection ends, however it ends.
type mysqlLock struct {
	conn *sql.Conn
	name string
}

// lock takes "toc.<schema>". A process that was just killed may still be
// connected for a moment, so the server is asked to wait a little.
func (b *mysqlBackend) lock(ctx context.Context, database int, holder string) (Lock, error) {
	conn, err := b.pools[database].Conn(ctx)
	if err != nil {
		return nil, err
	}
	schema := b.names[database]
	name := "toc." + schema[max(0, len(schema)-60):] // names are at most 64 long
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 2)", name).Scan(&got); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if got.Int64 != 1 {
		occupied := &OccupiedError{Database: "database " + schema, Holder: "another process"}
		var who sql.NullString
		if err := conn.QueryRowContext(ctx, "SELECT value FROM toc_meta WHERE name='holder'").Scan(&who); err == nil && who.String != "" {
			occupied.Holder = who.String
		}
		_ = conn.Close()
		return nil, occupied
	}
	l := &mysqlLock{conn: conn, name: name}
	const remember = "INSERT INTO toc_meta (name, value) VALUES ('holder', ?) ON DUPLICATE KEY UPDATE value = ?"
	if _, err := conn.ExecContext(ctx, remember, holder, holder); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return l, nil
}

func (l *mysqlLock) Check(ctx context.Context) error {
	var mine sql.NullInt64
	err := l.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", l.name).Scan(&mine)
	if err == nil && mine.Int64 != 1 {
		err = errors.New("the lock is not held any more")
	}
	return err
}

func (l *mysqlLock) Release() error {
	// Closing a pooled connection would keep its session and with it the lock.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := l.conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", l.name)
	if err != nil {
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return errors.Join(err, l.conn.Close())
}
