package testrig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const workdirPattern = "toc-testrig-*"

// workdir is a directory with an owner: its process holds a lock on it for as long as it lives. So a directory nobody
// has locked is one whose owner died, and any later run may remove it.
type workdir struct {
	path string
	lock *os.File
}

func newWorkdir() (*workdir, error) {
	base, err := scratch()
	if err != nil {
		return nil, fmt.Errorf("find a place for server data: %w", err)
	}
	sweep(base)
	path, err := os.MkdirTemp(base, workdirPattern)
	if err != nil {
		return nil, fmt.Errorf("make a directory for server data: %w", err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &workdir{path: path, lock: lock}, nil
}

// remove tries more than once: the helpers of a browser that was ended live a moment longer, and write into the directory.
func (w *workdir) remove() error {
	err := os.RemoveAll(w.path)
	for tries := 0; err != nil && tries < 50; tries++ {
		time.Sleep(100 * time.Millisecond)
		err = os.RemoveAll(w.path)
	}
	return errors.Join(err, w.lock.Close())
}

// scratch is where server data goes. /tmp is memory on many systems, which would flatter every fsync; /var/tmp is
// a disk. TMPDIR, where it is set, is the user's own choice.
func scratch() (string, error) {
	base := os.TempDir()
	if info, err := os.Stat("/var/tmp"); os.Getenv("TMPDIR") == "" && err == nil && info.IsDir() {
		base = "/var/tmp"
	}
	return filepath.EvalSymlinks(base)
}

// sweep removes what dead processes left. It does what it can: a directory that it may not open or remove belongs to
// another user, who will sweep it.
func sweep(base string) {
	left, _ := filepath.Glob(filepath.Join(base, workdirPattern))
	for _, path := range left {
		// A directory is made first and locked a moment later: leave the very young alone.
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if lock, err := lockDir(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

func lockDir(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
