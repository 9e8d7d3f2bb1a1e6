package migrations

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"strings"
	"text/template"

	"github.com/timeoutcenter/toc/sharding"
)

// A step is one numbered migration. Its SQL is <dialect>/<number>_<name>.sql, run once per database, and
// <number>_<name>.table.sql, run once per task table; one of the two may be missing. A file is a text/template over
// vars. A statement in it ends with a semicolon at a line's end; lines that start with "--" are for people.
type step struct {
	number int64
	name   string
}

// baseline is the number of the first step. Builds before the first release numbered their steps 1 to 8, and their
// stores cannot be migrated: the numbers distinguish both kinds of stores, for this program and for those builds.
const baseline = 9

// steps are all migrations, in order. One that is here never changes: a change of the schema is the next number.
var steps = []step{
	{number: baseline, name: "baseline"},
}

// newest is the schema version that this program speaks.
func newest() int64 { return steps[len(steps)-1].number }

//go:embed mysql/*.sql sqlite/*.sql
var embedded embed.FS

// files are the SQL of all steps; tests add to it.
var files fs.FS = embedded

// vars is what the SQL may ask for.
type vars struct {
	LayoutVersion string
	Collation     string // MySQL: binary, without padding

	Database, Databases, Tables int
	DatabaseMask, DatabaseBits  int // biz_id & mask = database
	TableMask                   int // (biz_id >> DatabaseBits) & mask = table

	// Of one table; set in a table's script.
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

// script is one file of a step; nil if the step has no such file.
type script struct{ *template.Template }

// scripts reads the SQL of a step in a dialect: for a database, and for each of its task tables.
func (s step) scripts(dialect Dialect) (database, table *script, err error) {
	if database, err = s.script(dialect, ""); err == nil {
		table, err = s.script(dialect, ".table")
	}
	if err == nil && database == nil && table == nil {
		err = fmt.Errorf("step %d has no SQL for %s", s.number, dialect)
	}
	return database, table, err
}

func (s step) script(dialect Dialect, kind string) (*script, error) {
	name := fmt.Sprintf("%s/%05d_%s%s.sql", dialect, s.number, s.name, kind)
	text, err := fs.ReadFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Parse(withoutComments(string(text)))
	return &script{t}, err
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

// statements renders the script once: for a database, or for one table. A script that is not there has none.
func (s *script) statements(v vars) ([]string, error) {
	if s == nil {
		return nil, nil
	}
	var text bytes.Buffer
	if err := s.Execute(&text, v); err != nil {
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
