// The program testreport runs `go test -json`, prints a line for each package and the whole output of each failed test, and
// counts. Several runs add up in one file, of which the last call prints the sum:
//
//	testreport -into FILE -- go test -json ./...
//	testreport -sum FILE -on "MariaDB 10.11, Redis 7.0" -since 1795582262
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	into := flag.String("into", "", "the `file` that the counts are added to")
	sum := flag.String("sum", "", "print the sum of this `file` and end; exit 1 if a test failed")
	on := flag.String("on", "", "with -sum: the servers that the tests ran on")
	since := flag.Int64("since", time.Now().Unix(), "with -sum: when the tests began, in seconds since 1970")
	flag.Parse()
	if *sum != "" {
		os.Exit(printSum(os.Stdout, *sum, *on, time.Since(time.Unix(*since, 0))))
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(run(*into, flag.Args()))
}

// run runs the command and returns its exit code.
func run(into string, command []string) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM) // go test gets them too, and ends
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return 1
	}
	r := newReport(os.Stdout)
	readErr := r.read(events)
	err = errors.Join(readErr, cmd.Wait())
	r.end()
	if err == nil && r.Failed > 0 {
		err = errors.New("go test exited 0 after a failed test")
	}
	if err != nil && r.Failed == 0 {
		r.Failed++ // a build or the command itself
		r.Failures = append(r.Failures, fmt.Sprint(command, ": ", err))
	}
	if into != "" {
		err = errors.Join(err, r.add(into))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return 1
	}
	return 0
}

// add appends the counts to a file, a line of JSON.
func (r *report) add(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(r.counts), f.Close())
}

// printSum prints the sum of all runs in a file and returns the exit code.
func printSum(w io.Writer, file, on string, took time.Duration) int {
	total, err := readCounts(file)
	if err == nil && total.Passed+total.Failed == 0 {
		err = errors.New("no test ran")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return 1
	}
	total.print(w)
	verb := "passed"
	if total.Failed > 0 {
		verb = "failed"
	}
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.skipped()+total.Left)
	fmt.Fprintf(w, "make test: %s in %s, on %s\n", verb, took.Round(time.Second), on)
	return min(total.Failed, 1)
}

func readCounts(file string) (total counts, err error) {
	f, err := os.Open(file)
	if err != nil {
		return total, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var one counts
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return total, err
		}
		total.merge(one)
	}
	return total, nil
}
