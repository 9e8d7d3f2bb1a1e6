package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/testrig"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	testrig.Main(m, goleak.Cleanup(func(code int) {
		if path, err := binary(); built && err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		os.Exit(code)
	}))
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

var (
	built  bool
	binary = sync.OnceValues(func() (string, error) { // the program as users have it
		dir, err := os.MkdirTemp("", "toc-test-")
		if err != nil {
			return "", err
		}
		built = true
		path := filepath.Join(dir, "toc")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return path, fmt.Errorf("%w: %s", err, text)
		}
		return path, nil
	})
)

// program is the path of the built program.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: building the program takes seconds")
	}
	path, err := binary()
	require.NoError(t, err)
	return path
}
