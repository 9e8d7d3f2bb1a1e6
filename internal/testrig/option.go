package testrig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// defaultBufferPool keeps several servers on one small machine light. InnoDB takes the memory only as it is used.
const defaultBufferPool = "512M"

// Option is one more argument on a server's command line. It wins over the rig's own.
type Option string

// BufferPool sets how much memory InnoDB may use for data, as the server spells it ("2G"). Defaults to 512M.
func BufferPool(size string) Option { return Option("--innodb-buffer-pool-size=" + size) }

// OnlyTLS makes a private server speak TLS only at its port, with a certificate that the authority has issued.
// demand makes it demand one of the authority from its clients; MySQL asks its users for that (REQUIRE X509). The rig
// itself reaches the server by a Unix socket.
func OnlyTLS(authority *Authority, pair Pair, demand bool) Option {
	return Option(strings.Join([]string{tlsMark, authority.File, pair.Cert, pair.Key, strconv.FormatBool(demand)}, tlsMark))
}

const tlsMark = "\x00"

// serverTLS is an OnlyTLS that an engine has read.
type serverTLS struct {
	ca, cert, key string
	demand        bool
}

// takeTLS finds OnlyTLS among options, and returns the others.
func takeTLS(options []Option) (found *serverTLS, others []Option) {
	for _, o := range options {
		if parts := strings.Split(string(o), tlsMark); strings.HasPrefix(string(o), tlsMark) {
			found = &serverTLS{parts[2], parts[3], parts[4], parts[5] == "true"}
		} else {
			others = append(others, o)
		}
	}
	return found, others
}

func args(options []Option) []string {
	out := make([]string, len(options))
	for i, o := range options {
		out[i] = string(o)
	}
	return out
}

// ErrNotInstalled is a server program that this machine does not have.
var ErrNotInstalled = errors.New(`is not installed: run "make deps"`)

// consulDir is where scripts/consul.sh puts Consul, below the user's cache directory.
const consulDir = "toc/consul-1.8.7/usr/bin"

// prometheusDir is where scripts/prometheus.sh puts Prometheus.
const prometheusDir = "toc/prometheus"

// mysqlDir is where scripts/mysql.sh puts MySQL.
const mysqlDir = "toc/mysql-9.7"

// findBinary looks in PATH, then where distributions put servers that are not in every user's PATH, and last where make
// deps puts what no package installs.
func findBinary(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	dirs := []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, consulDir), filepath.Join(cache, prometheusDir))
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w", name, ErrNotInstalled)
}
