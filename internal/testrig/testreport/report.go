package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// leftPrefix begins the reason of a test that testrig.OnlyInAll skips.
const leftPrefix = "make test-all runs it"

// counts is how the tests of a run ended. A test is a function of a test file; its subtests count when they are skipped.
type counts struct {
	Passed, Failed int
	Left           int            // to make test-all
	Skips          map[string]int // reason → tests, of the other skipped tests
	Failures       []string       // package and test
}

func (c *counts) skipped() (n int) {
	for _, tests := range c.Skips {
		n += tests
	}
	return n
}

func (c *counts) merge(other counts) {
	c.Passed += other.Passed
	c.Failed += other.Failed
	c.Left += other.Left
	c.Failures = append(c.Failures, other.Failures...)
	for reason, tests := range other.Skips {
		c.skip(reason, tests)
	}
}

func (c *counts) skip(reason string, tests int) {
	if c.Skips == nil {
		c.Skips = make(map[string]int)
	}
	c.Skips[reason] += tests
}

// print lists the failed tests and the reasons for which tests were skipped.
func (c *counts) print(w io.Writer) {
	for _, name := range c.Failures {
		fmt.Fprintln(w, "failed:", name)
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Skips)) {
		fmt.Fprintf(w, "skipped, %d: %s\n", c.Skips[reason], reason)
	}
	if c.Left > 0 {
		fmt.Fprintf(w, "left to make test-all: %d\n", c.Left)
	}
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// report prints and counts the events of one run.
type report struct {
	counts
	out    io.Writer
	output map[string]map[string]*bytes.Buffer // package → test, "" for the package's own → output of tests that have not ended well
	tests  map[string]int                      // package → tests that have ended
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: make(map[string]map[string]*bytes.Buffer), tests: make(map[string]int)}
}

// read reads events until the end. A line that is no event is printed as it is.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				_, _ = r.out.Write(line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.keep(e.Package, e.Test).WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
	}
}

func (r *report) keep(pkg, test string) *bytes.Buffer {
	if r.output[pkg] == nil {
		r.output[pkg] = make(map[string]*bytes.Buffer)
	}
	if r.output[pkg][test] == nil {
		r.output[pkg][test] = new(bytes.Buffer)
	}
	return r.output[pkg][test]
}

func (r *report) endTest(e event) {
	isSubtest := strings.Contains(e.Test, "/")
	if !isSubtest {
		r.tests[e.Package]++
	}
	switch {
	case e.Action == "skip":
		if reason := skipReason(r.keep(e.Package, e.Test).String()); strings.HasPrefix(reason, leftPrefix) {
			r.Left++
		} else {
			r.skip(reason, 1)
		}
	case e.Action == "fail":
		fmt.Fprintf(r.out, "%s\n", bytes.TrimRight(r.keep(e.Package, e.Test).Bytes(), "\n"))
		if !isSubtest {
			r.fail(e.Package + " " + e.Test)
		}
	case !isSubtest:
		r.Passed++
	}
	delete(r.output[e.Package], e.Test)
}

func (r *report) fail(name string) {
	r.Failed++
	r.Failures = append(r.Failures, name)
}

// skipReason is the last line that a skipped test printed before its end, without its place.
func skipReason(output string) (reason string) {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			reason = line
		}
	}
	if _, text, ok := strings.Cut(reason, ".go:"); ok {
		_, reason, _ = strings.Cut(text, ": ")
	}
	return reason
}

func (r *report) endPackage(e event) {
	name := strings.TrimPrefix(e.Package, "github.com/timeoutcenter/toc/")
	switch {
	case e.Action == "skip": // it has no tests
	case e.Action == "pass":
		fmt.Fprintf(r.out, "ok    %-28s %6.1fs %4d tests\n", name, e.Elapsed, r.tests[e.Package])
	default:
		r.printRest(e.Package)
		fmt.Fprintf(r.out, "FAIL  %-28s %6.1fs\n", name, e.Elapsed)
		if !slices.ContainsFunc(r.Failures, func(f string) bool { return strings.HasPrefix(f, e.Package+" ") }) {
			r.fail(e.Package) // it did not build, panicked, or left a goroutine behind
		}
	}
	delete(r.output, e.Package)
}

// printRest prints the output of a package that belongs to no test, or to a test that has not ended.
func (r *report) printRest(pkg string) {
	for _, test := range slices.Sorted(maps.Keys(r.output[pkg])) {
		_, _ = r.out.Write(r.output[pkg][test].Bytes())
	}
}

// end prints the output of packages that have not ended: go test was stopped.
func (r *report) end() {
	for _, pkg := range slices.Sorted(maps.Keys(r.output)) {
		r.printRest(pkg)
		r.fail(pkg)
	}
}
