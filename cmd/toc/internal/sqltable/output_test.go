package sqltable

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
		{uint64(9223372036854775807), "line\nbreak\t\x1b[31m \xff \u202e", int64(3), 0.6667},
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

func TestWholeNumbersThatReadersWouldRoundAreStringsInJSON(t *testing.T) {
	var b strings.Builder
	r := &Result{Columns: []string{"n"}, Rows: [][]any{{int64(1 << 53)}, {int64(1<<53 + 1)}, {int64(-1<<53 - 1)}, {uint64(math.MaxUint64)}}}
	require.NoError(t, r.WriteJSON(&b))
	require.Equal(t, `[
  {"n": 9007199254740992},
  {"n": "9007199254740993"},
  {"n": "-9007199254740993"},
  {"n": "18446744073709551615"}
]
`, b.String())
}
