package configs

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/sharding"
)

// check checks the store: its layout, and what its driver needs.
func (s Store) check(ps *problems) {
	ps.oneOf("store.driver", s.Driver, DriverSQLite, DriverMySQL)
	s.checkLayout(ps)
	atLeast(ps, "store.retention", s.Retention, 0)
	atLeast(ps, "store.dead_retention", s.DeadRetention, 0)
	atLeast(ps, "store.audit_retention", s.AuditRetention, 0)
	ps.require(s.SlowAfter >= time.Second, "store.slow_after", "%v is too little; write 1s or more", s.SlowAfter)
	switch s.Driver {
	case DriverSQLite:
		ps.require(s.SQLite.Dir != "", "store.sqlite.dir", "is empty; write the directory of the database files, data")
	case DriverMySQL:
		s.MySQL.check(ps, s.Databases)
	}
}

// checkLayout looks at each number first, so that their product cannot overflow.
func (s Store) checkLayout(ps *problems) {
	const right = "%d is not right; write a power of two from 1 to %d"
	databases := sharding.IsPowerOfTwo(s.Databases) && s.Databases <= sharding.MaxShards
	tables := sharding.IsPowerOfTwo(s.TablesPerDatabase) && s.TablesPerDatabase <= sharding.MaxShards
	ps.require(databases, "store.databases", right, s.Databases, sharding.MaxShards)
	ps.require(tables, "store.tables_per_database", right, s.TablesPerDatabase, sharding.MaxShards)
	ps.require(!databases || !tables || s.Layout() <= sharding.MaxShards, "store.tables_per_database",
		"%d in each of %d databases are too many; write %d or less", s.TablesPerDatabase, s.Databases, sharding.MaxShards/max(1, s.Databases))
}

func (s Store) hasLayout() bool {
	var ps problems
	s.checkLayout(&ps)
	return len(ps) == 0
}

func (m MySQL) check(ps *problems, databases int) {
	atLeast(ps, "store.mysql.max_open_conns", m.MaxOpenConns, 2)
	m.TLS.check(ps, "store.mysql.tls")
	if len(m.DSNs) == 0 {
		if n := mysqlsession.Numbers(m.DSN); n != 1 {
			ps.add("store.mysql.dsn", "has %%d %d times; write it once, behind the login, for the database's number, as in %s", n, exampleDSN)
			return
		}
		if _, problem := parseDSN(m.DSN); problem != "" {
			ps.add("store.mysql.dsn", "%s; write %s", problem, exampleDSN)
			return
		}
		m.checkDSNTLS(ps, "store.mysql.dsn", m.DSN)
		first, _ := parseDSN(mysqlsession.Number(m.DSN, 0))
		second, _ := parseDSN(mysqlsession.Number(m.DSN, 1))
		ps.require(first != second, "store.mysql.dsn", "names one database for all numbers; write %%d into the database's name, as in %s",
			exampleDSN)
		checkParams(ps, "store.mysql.dsn", m.DSN)
		return
	}

	ps.require(len(m.DSNs) == databases, "store.mysql.dsns",
		"has %d entries for %d databases; write one for each, or none and dsn", len(m.DSNs), databases)
	seen := map[place]int{}
	for i, dsn := range m.DSNs {
		key := fmt.Sprintf("store.mysql.dsns[%d]", i)
		at, problem := parseDSN(dsn)
		if problem != "" {
			ps.add(key, "%s; write user:password@tcp(host:port)/toc_%d", problem, i)
			continue
		}
		m.checkDSNTLS(ps, key, dsn)
		if other, twice := seen[at]; twice {
			ps.add(key, "is the same database as dsns[%d] (%s on %s); write another", other, at.database, at.address)
		}
		seen[at] = i
		checkParams(ps, key, dsn)
	}
}

// checkParams rejects parameters that contradict what toc sets.
func checkParams(ps *problems, key, dsn string) {
	if err := mysqlsession.CheckParams(dsn); err != nil {
		ps.add(key, "%v", err)
	}
}

// checkDSNTLS refuses a valid DSN that says of TLS something else than store.mysql.tls.
func (m MySQL) checkDSNTLS(ps *problems, key, dsn string) {
	if !m.TLS.IsOn() {
		return
	}
	c, err := mysql.ParseDSN(escapeVerb(dsn))
	if err != nil {
		return
	}
	ps.require(c.Net == "tcp", key, "is a socket of this machine, and store.mysql.tls is set; write tcp(host:port), or leave tls out")
	ps.require(c.TLSConfig == "", key, "has tls=%s, and store.mysql.tls is set; leave one of them out", c.TLSConfig)
	ps.require(!c.AllowFallbackToPlaintext || c.TLSConfig != "", key,
		"has allowFallbackToPlaintext=true, and store.mysql.tls is set; leave one of them out: a server without TLS would get plain text")
}

const exampleDSN = "user:password@tcp(host:port)/toc_%d"

// databaseName is a name that needs no thought in SQL; %d may still be in it.
var databaseName = regexp.MustCompile(`^([A-Za-z0-9_$-]|%d){1,64}$`)

// place is the database that a DSN names.
type place struct{ network, address, database string }

// parseDSN returns the place that a DSN names, or the problem with it. It does not repeat
// the driver's errors, which can hold a part of the password. A %d in the
// database's name stays.
func parseDSN(dsn string) (place, string) {
	c, err := mysql.ParseDSN(escapeVerb(dsn))
	switch {
	case err != nil:
		return place{}, "is not a MySQL DSN"
	case c.Net != "tcp" && c.Net != "unix":
		return place{}, "has neither tcp(host:port) nor unix(path)"
	case !databaseName.MatchString(c.DBName):
		return place{}, "names no database (letters, digits, _ $ -)"
	}
	return place{c.Net, c.Addr, c.DBName}, ""
}

// escapeVerb hides %d from the driver, which unescapes the database's name.
func escapeVerb(dsn string) string {
	slash := strings.LastIndexByte(dsn, '/') + 1
	return dsn[:slash] + strings.Replace(dsn[slash:], "%d", "%25d", 1)
}
