package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// one event a line, as go test prints them.
const mixed = `
{"Action":"start","Package":"p/a"}
{"Action":"run","Package":"p/a","Test":"TestGood"}
{"Action":"output","Package":"p/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p/a","Test":"TestGood","Output":"not shown\n"}
{"Action":"pass","Package":"p/a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"p/a","Test":"TestBad/one","Output":"    a_test.go:7: one is bad\n"}
{"Action":"fail","Package":"p/a","Test":"TestBad/one"}
{"Action":"output","Package":"p/a","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"p/a","Test":"TestBad"}
{"Action":"output","Package":"p/a","Test":"TestLong","Output":"    shared.go:1: make test-all runs it: TestShort proves it\n"}
{"Action":"output","Package":"p/a","Test":"TestLong","Output":"--- SKIP: TestLong (0.00s)\n"}
{"Action":"skip","Package":"p/a","Test":"TestLong"}
{"Action":"output","Package":"p/a","Test":"TestGood2/kafka","Output":"    a_test.go:9: no Kafka here\n"}
{"Action":"skip","Package":"p/a","Test":"TestGood2/kafka"}
{"Action":"pass","Package":"p/a","Test":"TestGood2"}
{"Action":"output","Package":"p/a","Output":"FAIL\n"}
{"Action":"fail","Package":"p/a","Elapsed":1.5}
{"Action":"pass","Package":"p/b","Test":"TestIt"}
{"Action":"output","Package":"p/b","Output":"ok  \tp/b\t0.1s\n"}
{"Action":"pass","Package":"p/b","Elapsed":0.1}
{"Action":"skip","Package":"p/none"}
`

func TestReport(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(strings.TrimSpace(mixed)+"\nno event\n")))
	r.end()
	require.Equal(t, `    a_test.go:7: one is bad
--- FAIL: TestBad (0.00s)
FAIL
FAIL  p/a                             1.5s
ok    p/b                             0.1s    1 tests
no event
`, out.String())
	require.Equal(t, counts{Passed: 3, Failed: 1, Left: 1, Skips: map[string]int{"no Kafka here": 1}, Failures: []string{"p/a TestBad"}}, r.counts)
}

func TestAPackageThatPanicsOrIsStopped(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(`{"Action":"build-output","ImportPath":"p/a","Output":"a.go:1: syntax error\n"}
{"Action":"fail","Package":"p/a"}
{"Action":"output","Package":"p/b","Test":"TestEndless","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p/b"}
{"Action":"output","Package":"p/c","Test":"TestStopped","Output":"half way\n"}
`)))
	r.end()
	require.Equal(t, []string{"p/a", "p/b", "p/c"}, r.Failures)
	require.Equal(t, 3, r.Failed)
	for _, text := range []string{"syntax error", "panic: test timed out", "half way"} {
		require.Contains(t, out.String(), text)
	}
}

func TestSum(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	var out bytes.Buffer
	require.Equal(t, 1, printSum(&out, file, "", 0), "nothing ran")
	good := &report{counts: counts{Passed: 5, Left: 2}}
	require.NoError(t, good.add(file))
	require.NoError(t, (&report{counts: counts{Passed: 2, Skips: map[string]int{"no Kafka here": 3}}}).add(file))
	require.Zero(t, printSum(&out, file, "MariaDB 10.11", 192*time.Second))
	require.Equal(t, `skipped, 3: no Kafka here
left to make test-all: 2
tests: 7 passed, 0 failed, 5 skipped
make test: passed in 3m12s, on MariaDB 10.11
`, out.String())

	out.Reset()
	require.NoError(t, (&report{counts: counts{Failed: 1, Failures: []string{"p/a TestBad"}}}).add(file))
	require.Equal(t, 1, printSum(&out, file, "MariaDB 10.11", 0))
	require.Contains(t, out.String(), "failed: p/a TestBad\n")
	require.Contains(t, out.String(), "make test: failed in")
}

// TestRun: the exit code is that of go test, and a command that cannot run counts as a failure.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	require.Zero(t, run(file, []string{"echo", `{"Action":"pass","Package":"p","Test":"TestIt"}`}))
	require.Equal(t, 1, run(file, []string{"false"}))
	require.Equal(t, 1, run(file, []string{filepath.Join(t.TempDir(), "none")}))
	require.Equal(t, 1, run(file, []string{"echo", `{"Action":"fail","Package":"p","Test":"TestIt"}
{"Action":"fail","Package":"p"}`}))
	total, err := readCounts(file)
	require.NoError(t, err)
	require.Equal(t, 1, total.Passed)
	require.Equal(t, 2, total.Failed)
	_, err = os.Stat(file)
	require.NoError(t, err)
}
