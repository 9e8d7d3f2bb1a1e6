package repotest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSleepsSayWhy: a sleep in real time makes a test slow, and red by chance if it is too short. So a test waits for an event
// (internal/testrig/await) or runs in a synctest bubble, or the line says why not.
func TestSleepsSayWhy(t *testing.T) {
	inBubbles := []string{"worker/", "queue/", "scanner/", "intake/", "internal/virtual/"} // their fixtures open the bubbles
	timed := []string{"internal/soak/", "bench/"}                                          // they measure
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, prefix := range append(inBubbles, timed...) {
			if strings.HasPrefix(path, prefix) && !strings.HasPrefix(path, "server/kafka/") {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), "synctest.Test(") {
			return err
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			says := strings.Contains(line, "// real time: ") || strings.Contains(line, "// in a bubble")
			if strings.Contains(line, "time.Sleep(") && !says && path != "internal/repotest/sleeps_test.go" {
				t.Errorf("%s:%d: say after the sleep why it is in real time, or that it is in a bubble; or wait for an event", path, n)
			}
		}
		return nil
	}))
}
