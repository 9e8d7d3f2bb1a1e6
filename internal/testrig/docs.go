package testrig

import (
	"os"
	"strings"
	"testing"
)

// DocsRow gives the cells of a row of a table in a Markdown file, after the first, which is name. There must be one.
func DocsRow(t testing.TB, path, name string) (cells []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("testrig: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(line, "| "+name+" | ")
		if !ok {
			continue
		}
		for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(row), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		return cells
	}
	t.Fatalf("testrig: %s has no row %q", path, name)
	return nil
}
