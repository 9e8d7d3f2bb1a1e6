package migrations

import (
	"bytes"
	"embed"
	"fmt"
	"math/bits"
	"strings"
	"text/template"

	"github.com/timeoutcenter/toc/sharding"
)

// A step is one numbered migration: <dialect>/<number>_<name>.up.sql and
// .down.sql. A file is a text/template over vars. A statement in it ends with a
// semicolon at a line's end; lines that start with "--" are for people.
type step struct {
	number   int64
	name     string
	perTable bool   // rendered and run once per table, else once per database
	adds     string // the last column that it adds: a table that has it is done
}

// steps are all migrations, in order. Released ones never change.
var steps = []step{
	{number: 1, name: "toc_meta"},
	{number: 2, name: "timeout_task", perTable: true},
	{number: 3, name: "task_columns", perTable: true, adds: "biz_key"},
	{number: 4, name: "toc_running"},
	{number: 5, name: "toc_control"},
	{number: 6, name: "toc_audit"},
	{number: 7, name: "toc_operation"},
	{number: 8, name: "task_errors", perTable: true, adds: "errors"},
}

// ofTable is which of the steps of a table this is, from 1.
func (s step) ofTable() (n int) {
	for _, other := range steps {
		if other.perTable && other.number <= s.number {
			n++
		}
	}
	return n
}

// newest is the schema version that this program speaks.
var newest = steps[len(steps)-1].number

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// vars is what the SQL may ask for.
type vars struct {
	LayoutVersion string
	Collation     string // MySQL: binary, without padding

	Database, Databases, Tables int
	DatabaseMask, DatabaseBits  int // biz_id & mask = database
	TableMask                   int // (biz_id >> DatabaseBits) & mask = table

	// Of one table; set where a step is per table.
	TableIndex int
	Table      string // timeout_task_0007
	Number     string // 0007, for names that must differ between tables
	Shard      int
}

func newVars(layout sharding.Layout, database int, collation string) vars {
	return vars{
		LayoutVersion: layoutVersion,
		Collation:     collation,
		Database:      database,
		Databases:     layout.Databases,
		Tables:        layout.TablesPerDatabase,
		DatabaseMask:  layout.Databases - 1,
		DatabaseBits:  bits.TrailingZeros(uint(layout.Databases)),
		TableMask:     layout.TablesPerDatabase - 1,
	}
}

func (v vars) forTable(table int) vars {
	v.TableIndex = table
	v.Table = sharding.TableName(table)
	v.Number = fmt.Sprintf("%04d", table)
	v.Shard = v.Database*v.Tables + table
	return v
}

// script is a step's SQL in one dialect and direction.
type script struct {
	perTable bool
	template *template.Template
}

func (s step) script(dialect Dialect, dir direction) (script, error) {
	suffix := "down"
	if dir == up {
		suffix = "up"
	}
	name := fmt.Sprintf("%s/%05d_%s.%s.sql", dialect, s.number, s.name, suffix)
	text, err := files.ReadFile(name)
	if err != nil {
		return script{}, err
	}
	t, err := template.New(name).Parse(withoutComments(string(text)))
	return script{perTable: s.perTable, template: t}, err
}

func withoutComments(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// statements renders the script once: for a database, or for one table.
func (s script) statements(v vars) ([]string, error) {
	var text bytes.Buffer
	if err := s.template.Execute(&text, v); err != nil {
		return nil, err
	}
	var statements []string
	for statement := range strings.SplitSeq(text.String(), ";\n") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements, nil
}
