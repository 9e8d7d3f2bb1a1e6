package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMain makes this binary the command toc, too, which stands in the PATH of the tests.
func TestMain(m *testing.M) { testscript.Main(tests{m}, map[string]func(){"toc": main}) }

type tests struct{ m *testing.M }

func (t tests) Run() (code int) {
	testrig.SideBySide(8)
	testrig.Main(t.m, goleak.Cleanup(func(c int) { code = c }))
	return code
}

// result is what a command line gave.
type result struct {
	code     int
	out, err string
}

// morning is what the clock of every command line shows.
var morning = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// toc runs a command line in this process.
func toc(args ...string) result {
	var out, err bytes.Buffer
	code := run(append([]string{}, args...), &out, &err, func() time.Time { return morning })
	return result{code, out.String(), err.String()}
}

// ok runs a command line that must succeed, and gives its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := toc(args...)
	require.Zero(t, r.code, r.err)
	return r.out
}

// golden holds a text against testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// file makes a file of its own for the test.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// small is a configuration file of a store with four tables, in a directory of
// the test's.
func small(t *testing.T, more string) (path string) {
	t.Helper()
	return file(t, "toc.yaml", fmt.Sprintf(`
http: {listen: "127.0.0.1:0"}
store: {databases: 2, tables_per_database: 2, sqlite: {dir: %q}}
cluster: {partitions: 4}
scan: {schedule: "@every 1s", lookahead: 1s}
%s`, t.TempDir(), more))
}
