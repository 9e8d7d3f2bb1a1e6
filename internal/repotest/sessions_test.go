package repotest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All connections to MySQL are made by package mysqlsession, which sets the variables of their sessions.
func TestOnePlaceConnectsToMySQL(t *testing.T) {
	connects := regexp.MustCompile(`mysql\.NewConnector\(|mysql\.ParseDSN\(|sql\.Open\("mysql"`)
	parses := map[string]bool{"configs/redact.go": true, "configs/secret.go": true, "configs/validate_store.go": true, "configs/warnings.go": true} // and connect not
	var found []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (path == "bench" || path == ".git" || path == filepath.Join("internal", "testrig")) {
			if d != nil && d.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || parses[path] {
			return nil
		}
		text, err := os.ReadFile(path)
		if connects.Match(text) {
			found = append(found, filepath.Dir(path))
		}
		return err
	}))
	require.NotEmpty(t, found)
	for _, dir := range found {
		require.Equal(t, "internal/mysqlsession", dir)
	}
}
