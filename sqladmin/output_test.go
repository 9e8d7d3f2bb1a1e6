package sqladmin

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var sample = &Result{
	Columns: []string{"job_id", "attribute", "n", "n"},
	Rows: [][]any{
		{uint64(9223372036854775807), "line\nbreak\t\x1b[31m \xff \u202e", int64(3), json.Number("0.6667")},
		{uint64(1), "zwölf <b> \"q\", 'q'", nil, 2.5},
		{nil, "", int64(-12), math.Inf(1)},
	},
	ids: []bool{true, false, false, false},
}

func TestTableIsAlignedAndARowIsALine(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample.WriteTable(&b))
	require.Equal(t, strings.Join([]string{
		`              job_id | attribute                         |    n |      n`,
		`---------------------+-----------------------------------+------+--------`,
		` 9223372036854775807 | line\nbreak\t\x1b[31m \xff \u202e |    3 | 0.6667`,
		`                   1 | zwölf <b> "q", 'q'                | NULL |    2.5`,
		`                NULL |                                   |  -12 |   +Inf`,
		`(3 rows)`,
		``,
	}, "\n"), b.String())

	b.Reset()
	require.NoError(t, (&Result{Columns: []string{"a", "b"}}).WriteTable(&b))
	require.Equal(t, " a | b\n---+---\n(0 rows)\n", b.String())

	b.Reset()
	require.NoError(t, (&Result{Columns: []string{"last"}, Rows: [][]any{{"x"}}}).WriteTable(&b))
	require.Equal(t, " last\n------\n x\n(1 row)\n", b.String())
}

func TestJSONKeepsColumnsAndIds(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample.WriteJSON(&b))
	require.True(t, json.Valid([]byte(b.String())))
	require.Equal(t, strings.Join([]string{
		`[`,
		`  {"job_id": "9223372036854775807", "attribute": "line\nbreak\t\u001b[31m \ufffd ` + "\u202e" + `", "n": 3, "n_2": 0.6667},`,
		`  {"job_id": "1", "attribute": "zwölf <b> \"q\", 'q'", "n": null, "n_2": 2.5},`,
		`  {"job_id": null, "attribute": "", "n": -12, "n_2": "+Inf"}`,
		`]`,
		``,
	}, "\n"), b.String())

	b.Reset()
	require.NoError(t, (&Result{Columns: []string{"a"}}).WriteJSON(&b))
	require.Equal(t, "[]\n", b.String())
	require.Equal(t, []string{"a", "a_3", "a_2", "a_4"}, unique([]string{"a", "a", "a_2", "a"}))
}

func TestCSVCanBeReadBack(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample.WriteCSV(&b))
	records, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	require.NoError(t, err)
	require.Equal(t, [][]string{
		{"job_id", "attribute", "n", "n"},
		{"9223372036854775807", "line\nbreak\t\x1b[31m \xff \u202e", "3", "0.6667"},
		{"1", "zwölf <b> \"q\", 'q'", "", "2.5"},
		{"", "", "-12", "+Inf"},
	}, records)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

func TestWritersReportAFullDisk(t *testing.T) {
	require.ErrorContains(t, sample.WriteTable(fullDisk{}), "disk is full")
	require.ErrorContains(t, sample.WriteJSON(fullDisk{}), "disk is full")
	require.ErrorContains(t, sample.WriteCSV(fullDisk{}), "disk is full")
}

// TestIdsAreStringsInJSONWhateverTheyAreCalled: plain columns, under an alias, by
// *, and their MIN and MAX.
func TestIdsAreStringsInJSONWhateverTheyAreCalled(t *testing.T) {
	r := newSQLiteRig(t, []taskRow{{jobID: 5, bizID: math.MaxUint64, bizType: 2}})
	var b strings.Builder
	require.NoError(t, r.ask(t, "SELECT t.biz_id AS b, MAX(job_id), COUNT(*) FROM timeout_task t GROUP BY biz_id").WriteJSON(&b))
	require.Equal(t, "[\n"+`  {"b": "18446744073709551615", "MAX(job_id)": "5", "COUNT(*)": 1}`+"\n]\n", b.String())
	b.Reset()
	require.NoError(t, r.ask(t, "SELECT status, * FROM timeout_task").WriteJSON(&b))
	require.Contains(t, b.String(), `{"status": 0, "job_id": "5", `)
	require.Contains(t, b.String(), `"biz_id": "18446744073709551615", "biz_type": "2", "status_2": 0`)
}
