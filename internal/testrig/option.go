package testrig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// defaultBufferPool keeps several servers on one small machine light. InnoDB takes the memory only as it is used.
const defaultBufferPool = "512M"

// Option is one more argument on a server's command line. It wins over the rig's own.
type Option string

// BufferPool sets how much memory InnoDB may use for data, as the server spells it ("2G"). Defaults to 512M.
func BufferPool(size string) Option { return Option("--innodb-buffer-pool-size=" + size) }

func args(options []Option) []string {
	out := make([]string, len(options))
	for i, o := range options {
		out[i] = string(o)
	}
	return out
}

// ErrNotInstalled is a server program that this machine does not have.
var ErrNotInstalled = errors.New(`is not installed: run "make deps"`)

// findBinary looks in PATH, and where distributions put servers that are not in every user's PATH.
func findBinary(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/usr/local/sbin/", "/usr/libexec/"} {
		if info, err := os.Stat(dir + name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("%s %w", name, ErrNotInstalled)
}
