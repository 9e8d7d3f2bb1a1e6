package migrations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// sums are the SHA-256 of each file. A file that is listed was run by stores that exist: it never changes.
var sums = map[string]string{
	"mysql/00009_baseline.sql":        "542e87f049c53fe15955301f445377c809d9af54fc5f15b68ef04c1ef5b52bde",
	"mysql/00009_baseline.table.sql":  "4522bc271469c61f0b7907dbcd8882cb4123204256fd70c7bf7d6f4c9f4b4b3d",
	"sqlite/00009_baseline.sql":       "89362d1f2d12d6bc58b0601b6da2ca70159685836497abe43437bd6709df00f3",
	"sqlite/00009_baseline.table.sql": "239b3c1572e57699fa54a1609ef4f3259239e4fc0e714cd64d1549186661a464",
}

// TestStepsNeverChange: a step that was edited would leave stores of two kinds, which no later step could tell apart.
func TestStepsNeverChange(t *testing.T) {
	there := make(map[string]string)
	require.NoError(t, fs.WalkDir(embedded, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(embedded, path)
		sum := sha256.Sum256(text)
		there[path] = hex.EncodeToString(sum[:])
		return err
	}))
	require.Equal(t, sums, there, "undo the edit and write the next step; a new step's files are added to this list")
}

// TestStepsAndFiles: a file that is not in the list of steps would never run.
func TestStepsAndFiles(t *testing.T) {
	names := make(map[string]bool)
	for i, s := range steps {
		require.Equal(t, int64(baseline+i), s.number)
		for _, dialect := range []Dialect{MySQL, SQLite} {
			_, _, err := s.scripts(dialect)
			require.NoError(t, err)
			for _, kind := range []string{"", ".table"} {
				names[fmt.Sprintf("%s/%05d_%s%s.sql", dialect, s.number, s.name, kind)] = true
			}
		}
	}
	for name := range sums {
		require.Contains(t, names, name)
	}
}

// AddStep adds a step of the task tables, until the test ends. Tests that run beside it would see it.
func AddStep(t testing.TB, table string) {
	number := newest() + 1
	files = union{embedded, fstest.MapFS{
		fmt.Sprintf("mysql/%05d_later.table.sql", number):  {Data: []byte(table)},
		fmt.Sprintf("sqlite/%05d_later.table.sql", number): {Data: []byte(table)},
	}}
	before := steps
	steps = append(steps[:len(steps):len(steps)], step{number: number, name: "later"})
	t.Cleanup(func() { files, steps = embedded, before })
}

// union is two file systems in one.
type union [2]fs.FS

func (u union) Open(name string) (fs.File, error) {
	f, err := u[0].Open(name)
	if err != nil {
		return u[1].Open(name)
	}
	return f, nil
}
