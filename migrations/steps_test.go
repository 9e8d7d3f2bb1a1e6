package migrations

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStepsAndFiles: a file that is not in the list would never run.
func TestStepsAndFiles(t *testing.T) {
	for _, dialect := range []Dialect{MySQL, SQLite} {
		var listed, there []string
		last := int64(0)
		for _, s := range steps {
			require.Greater(t, s.number, last)
			last = s.number
			listed = append(listed, fmt.Sprintf("%05d_%s.up.sql", s.number, s.name), fmt.Sprintf("%05d_%s.down.sql", s.number, s.name))
		}
		entries, err := fs.ReadDir(files, string(dialect))
		require.NoError(t, err)
		for _, e := range entries {
			there = append(there, e.Name())
		}
		require.ElementsMatch(t, listed, there)
	}
}
