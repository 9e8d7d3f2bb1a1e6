package sqladmin

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// rig holds the same rows twice: spread over shards, and in one table named
// timeout_task. What the shards answer must be what the one table answers.
type rig struct {
	dialect Dialect
	shards  Config
	whole   *sql.DB
}

const (
	rigDatabases = 2
	rigTables    = 4
)

// taskRow is one row of timeout_task without the columns that are the same in
// every row.
type taskRow struct {
	jobID, bizID, bizType uint64
	status, attempts      int
	actionTime            time.Time
	attribute             string
	dedupKey              any // nil or string
}

const mysqlTable = "CREATE TABLE `%s` (" +
	`job_id bigint unsigned NOT NULL PRIMARY KEY,
	gmt_create datetime(3) NOT NULL, gmt_modified datetime(3) NOT NULL,
	biz_id bigint unsigned NOT NULL, biz_type bigint unsigned NOT NULL, status tinyint NOT NULL,
	action_time datetime(3) NOT NULL, attribute varchar(4096) NOT NULL, attempts tinyint unsigned NOT NULL,
	last_error varchar(255) NOT NULL, dedup_key varchar(64) NULL, KEY (status, action_time)
	) DEFAULT CHARSET=utf8mb4 COLLATE=%s`

const sqliteTable = "CREATE TABLE `%s` (" +
	`job_id INTEGER NOT NULL PRIMARY KEY, gmt_create TEXT NOT NULL, gmt_modified TEXT NOT NULL,
	biz_id INTEGER NOT NULL, biz_type INTEGER NOT NULL, status INTEGER NOT NULL, action_time TEXT NOT NULL,
	attribute TEXT NOT NULL, attempts INTEGER NOT NULL, last_error TEXT NOT NULL, dedup_key TEXT NULL) STRICT`

func shardName(table int) string { return fmt.Sprintf("timeout_task_%04d", table) }

func newSQLiteRig(t testing.TB, rows []taskRow) rig {
	t.Helper()
	open := func(file, mode string) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+url.PathEscape(file)+"?mode="+mode)
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	dir := t.TempDir()
	r := rig{dialect: SQLite, shards: Config{Dialect: SQLite, Tables: rigTables, TableName: shardName}}
	var writable []*sql.DB
	for d := range rigDatabases {
		file := filepath.Join(dir, fmt.Sprintf("toc_%d.db", d))
		writable = append(writable, open(file, "rwc"))
		r.shards.Sources = append(r.shards.Sources, Source{DB: open(file, "ro"), Database: d})
	}
	r.whole = open(filepath.Join(dir, "whole.db"), "rwc")
	r.fill(t, writable, sqliteTable, rows)
	return r
}

func newMySQLRig(t testing.TB, rows []taskRow) rig {
	t.Helper()
	server := testrig.MySQL(t)
	admin := server.DB(t)
	var collation string
	require.NoError(t, admin.QueryRow(`SELECT collation_name FROM information_schema.collations
		WHERE collation_name IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin') ORDER BY 1 LIMIT 1`).Scan(&collation))
	open := func(number int) *sql.DB {
		_, err := admin.Exec(fmt.Sprintf("CREATE DATABASE `%s%d`", server.Prefix(), number))
		require.NoError(t, err)
		db, err := sql.Open("mysql", fmt.Sprintf(server.DSN(), number)+"?parseTime=true&loc=UTC&time_zone=%27%2B00%3A00%27")
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	r := rig{dialect: MySQL, shards: Config{Dialect: MySQL, Tables: rigTables, TableName: shardName}}
	var writable []*sql.DB
	for d := range rigDatabases {
		db := open(d)
		writable = append(writable, db)
		r.shards.Sources = append(r.shards.Sources, Source{DB: db, Database: d})
	}
	r.whole = open(rigDatabases)
	r.fill(t, writable, strings.Replace(mysqlTable, "COLLATE=%s", "COLLATE="+collation, 1), rows)
	return r
}

// fill spreads the rows over the shards without regard to their ids: nothing may
// depend on where a row is.
func (r *rig) fill(t testing.TB, databases []*sql.DB, ddl string, rows []taskRow) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	in := make([][][]taskRow, len(databases))
	for d, db := range databases {
		in[d] = make([][]taskRow, rigTables)
		for table := range rigTables {
			_, err := db.Exec(fmt.Sprintf(ddl, shardName(table)))
			require.NoError(t, err)
		}
	}
	for _, row := range rows {
		d, table := random.IntN(len(databases)), random.IntN(rigTables)
		in[d][table] = append(in[d][table], row)
	}
	for d, db := range databases {
		for table := range rigTables {
			r.insert(t, db, shardName(table), in[d][table])
		}
	}
	_, err := r.whole.Exec(fmt.Sprintf(ddl, "timeout_task"))
	require.NoError(t, err)
	r.insert(t, r.whole, "timeout_task", rows)
}

func (r *rig) insert(t testing.TB, db *sql.DB, table string, rows []taskRow) {
	t.Helper()
	id := func(v uint64) any {
		if r.dialect == SQLite {
			return int64(v)
		}
		return v
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	for _, row := range rows {
		_, err := tx.Exec("INSERT INTO `"+table+"` VALUES (?,?,?,?,?,?,?,?,?,?,?)", id(row.jobID),
			"2025-03-01 10:00:00.000", "2025-03-01 10:00:00.125", id(row.bizID), id(row.bizType), row.status,
			row.actionTime.Format(timeLayout), row.attribute, row.attempts, "", row.dedupKey)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

// randomRows have ids that fit a signed integer, so that SQLite alone reads them
// right in one table, too.
func randomRows(seed uint64, n int) []taskRow {
	random := rand.New(rand.NewPCG(seed, 7))
	attributes := []string{"", "a", "A", "a ", "B", "b", "it's", `{"k": "v"}`, "zwölf", "日本", "line\nbreak", "_", "~", `back\slash`}
	statuses := []int{0, 0, 0, 2, 3, 4}
	var rows []taskRow
	for i := range n {
		row := taskRow{
			jobID: uint64(i)*1_000_003 + 1<<40, bizID: uint64(random.IntN(12)), bizType: uint64(random.IntN(3) + 1),
			status: statuses[random.IntN(len(statuses))], attempts: random.IntN(4),
			actionTime: time.Date(2025, 3, random.IntN(4)+1, random.IntN(24), 30, 0, random.IntN(3)*250_000_000, time.UTC),
			attribute:  attributes[random.IntN(len(attributes))],
		}
		if random.IntN(3) > 0 {
			row.dedupKey = fmt.Sprintf("key%d", random.IntN(5))
		}
		rows = append(rows, row)
	}
	return rows
}

// ask runs a query on the shards.
func (r *rig) ask(t testing.TB, query string) *Result {
	t.Helper()
	q, err := Parse(query)
	require.NoError(t, err, query)
	result, err := q.Run(t.Context(), r.shards)
	require.NoError(t, err, query)
	return result
}

// askWhole runs the query, as it is, on the one table.
func (r *rig) askWhole(t testing.TB, query string) [][]string {
	t.Helper()
	rows, err := r.whole.Query(query)
	require.NoError(t, err, query)
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	require.NoError(t, err)
	var all [][]string
	for rows.Next() {
		cells := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		require.NoError(t, rows.Scan(into...))
		var line []string
		for i, cell := range cells {
			switch cell := cell.(type) {
			case nil:
				line = append(line, "NULL")
			case []byte:
				line = append(line, string(cell))
			case time.Time:
				layout := "2006-01-02 15:04:05.000"
				if columns[i].DatabaseTypeName() == "DATE" {
					layout = "2006-01-02"
				}
				line = append(line, cell.Format(layout))
			default:
				line = append(line, fmt.Sprint(cell))
			}
		}
		all = append(all, line)
	}
	require.NoError(t, rows.Err())
	return all
}

// lines are the rows of a result as text.
func lines(r *Result) [][]string {
	var all [][]string
	for _, row := range r.Rows {
		var line []string
		for _, v := range row {
			if v == nil {
				line = append(line, "NULL")
			} else {
				line = append(line, fmt.Sprint(v))
			}
		}
		all = append(all, line)
	}
	return all
}
