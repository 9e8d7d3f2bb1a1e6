package mysqlsession

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
)

// Report is what a server says of itself to a connection of Connect.
type Report struct {
	// Wrong lists what makes statements fail or lose writes, one line each: variables that have another value than was
	// set, and variables that only the server's administrator may set.
	Wrong []string
	// NotDurable lists the settings by which an answered write may be lost, one line each with the value to set.
	NotDurable []string
}

// Read asks the server behind a pool of Open.
func Read(ctx context.Context, pool *sql.DB, limits Limits) (r Report, err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	err = conn.Raw(func(raw any) error {
		given, err := readVariables(ctx, raw.(driver.QueryerContext), "SHOW SESSION VARIABLES")
		if err != nil {
			return err
		}
		status, err := readVariables(ctx, raw.(driver.QueryerContext),
			"SHOW GLOBAL STATUS WHERE Variable_name IN ('"+strings.Join(statusNames, "','")+"')")
		if err != nil {
			return err
		}
		r = report(limits, given, status)
		return nil
	})
	return r, err
}

func report(limits Limits, given, status map[string]string) (r Report) {
	for _, s := range settings(limits) {
		if fault := s.fault(given); fault != "" {
			r.Wrong = append(r.Wrong, fault)
		}
	}
	for _, s := range ServerVariables {
		is, ok := given[s.Name]
		if !ok || s.isRight(is, given) {
			continue
		}
		r.add(s, fmt.Sprintf("%s is %s: %s; set %s", s.Name, cmp.Or(is, "empty"), s.Why, s.Right))
	}
	if status["innodb_redo_log_enabled"] == "OFF" {
		r.NotDurable = append(r.NotDurable, "the redo log is off: a crash loses the database; run ALTER INSTANCE ENABLE INNODB REDO_LOG")
	}
	for _, word := range []string{"master", "source"} {
		if given["rpl_semi_sync_"+word+"_enabled"] == "ON" && status["rpl_semi_sync_"+word+"_status"] == "OFF" {
			r.NotDurable = append(r.NotDurable, "semi-synchronous replication is enabled and not in force, because no replica acknowledges in time: a fail-over loses writes; repair the replicas")
		}
	}
	return r
}

func (r *Report) add(s ServerVariable, line string) {
	if s.Durability {
		r.NotDurable = append(r.NotDurable, line)
	} else {
		r.Wrong = append(r.Wrong, line)
	}
}

// statusNames are the status variables that report reads.
var statusNames = []string{"innodb_redo_log_enabled", "rpl_semi_sync_master_status", "rpl_semi_sync_source_status"}

// ServerVariable is a variable that toc only reads: setting it takes the rights of an administrator.
type ServerVariable struct {
	Name       string
	Right      string // what to set
	Why        string // what another value does
	Durability bool   // another value loses what was on disk by the answer
	isRight    func(is string, given map[string]string) bool
}

// ServerVariables lists them.
var ServerVariables = []ServerVariable{
	{"binlog_format", "binlog_format=ROW or MIXED", "InnoDB refuses each write of a READ COMMITTED transaction", false,
		withBinlog("ROW", "MIXED")},
	{"sql_log_bin", "sql_log_bin=1", "replicas do not get the writes, and a fail-over loses them", false, withBinlog("ON")},
	{"enforce_storage_engine", "enforce_storage_engine=InnoDB, or nothing", "`toc migrate` can make no tables", false, oneOf("", "InnoDB")},

	{"innodb_flush_log_at_trx_commit", "innodb_flush_log_at_trx_commit=1", "an answered write may not be on disk", true, oneOf("1", "3")},
	{"sync_binlog", "sync_binlog=1", "after a crash of the machine InnoDB undoes writes that the binary log lacks", true, withBinlog("1")},
	{"innodb_doublewrite", "innodb_doublewrite=ON", "a page that was half written in a crash is lost", true,
		oneOf("ON", "1", "FAST", "DETECT_AND_RECOVER")},
	{"innodb_flush_method", "innodb_flush_method=O_DIRECT or fsync", "nothing is forced to disk", true, noneOf("NOSYNC", "LITTLESYNC")},
}

func oneOf(right ...string) func(string, map[string]string) bool {
	return func(is string, _ map[string]string) bool {
		return slices.ContainsFunc(right, func(r string) bool { return strings.EqualFold(is, r) })
	}
}

func noneOf(wrong ...string) func(string, map[string]string) bool {
	is := oneOf(wrong...)
	return func(value string, given map[string]string) bool { return !is(value, given) }
}

// withBinlog is for variables that matter only where the binary log is on.
func withBinlog(right ...string) func(string, map[string]string) bool {
	is := oneOf(right...)
	return func(value string, given map[string]string) bool { return given["log_bin"] != "ON" || is(value, given) }
}
