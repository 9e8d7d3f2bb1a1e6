package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each link of a page to a file, or to a heading of a page, leads there.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := map[string]string{} // without their code
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "node_modules" || len(name) > 1 && name[0] == '.'):
			return filepath.SkipDir
		case filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		pages[path] = regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(string(text), "")
		return err
	}))
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for path, text := range pages {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			file, heading, _ := strings.Cut(found[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			_, err := os.Stat(to)
			require.NoError(t, err, "%s links to %s", path, found[1])
			if page, is := pages[to]; is && heading != "" {
				require.Contains(t, anchors(page), heading, "%s links to %s", path, found[1])
			}
		}
	}
	require.Greater(t, links, 100)
}

// anchors gives the names by which the headings of a page are linked to.
func anchors(page string) map[string]bool {
	names := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading[1], "$1")
		name = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(name), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}
