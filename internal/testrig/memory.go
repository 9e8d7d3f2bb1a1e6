package testrig

import (
	"os"
	"testing"
)

// MemoryDir gives a directory that vanishes with the test, in memory where the machine has a file system for that. What
// a killed process has written stays; only a power cut would lose it. It keeps many small durable commits from waiting
// for a disk that other tests use as well.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "toc-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testrig: remove %s: %v", dir, err)
		}
	})
	return dir
}
