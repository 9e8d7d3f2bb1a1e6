package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each paragraph of a Go snippet of the documentation is a part of an example that the tests run.
func TestSnippetsAreOfExamples(t *testing.T) {
	var examples strings.Builder
	paths, err := filepath.Glob("*/example_test.go")
	require.NoError(t, err)
	for _, path := range append(paths, "examples/unpaid/shop.go", "examples/unpaid/shop_test.go") {
		examples.WriteString(unindented(t, path))
	}
	snippet := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, path := range []string{"README.md", "docs/embedding.md", "docs/testing.md"} {
		found := snippet.FindAllStringSubmatch(unindented(t, path), -1)
		require.NotEmpty(t, found, path)
		for _, s := range found {
			for paragraph := range strings.SplitSeq(s[1], "\n\n") {
				require.True(t, strings.Contains(examples.String(), paragraph), "%s has what is in no example_test.go:\n%s", path, paragraph)
			}
		}
	}
}

// unindented reads a file without the white space that its lines begin with.
func unindented(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(string(text), "")
}
