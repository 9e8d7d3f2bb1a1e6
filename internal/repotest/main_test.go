// Package repotest checks the repository as a whole: its layers, its locks, its sleeps, its promises, its snippets, its links, and the files of deploy/.
package repotest

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes the root of the module the working directory, as the paths of all tests start there.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
