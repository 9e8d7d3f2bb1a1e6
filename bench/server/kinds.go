package server

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

// MariaDB has durable commits: one fsync each, as in production. Its buffer pool
// holds the ten million rows of growth, which are over 2 GB on 8 × 1024 tables.
var MariaDB = Kind{
	Name: "mariadb", title: "MariaDB", program: "mariadbd", version: []string{"--version"}, stop: syscall.SIGKILL,
	prepare: installMariaDB,
	args: func(dir string, port int) []string {
		list := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + dir, "--socket=" + filepath.Join(dir, "s"),
			"--pid-file=" + filepath.Join(dir, "pid"), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port), "--skip-log-bin",
			"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=6G", "--innodb-log-file-size=2G",
			"--max-connections=500", "--table-open-cache=20000", "--open-files-limit=65535"}
		if os.Geteuid() == 0 {
			list = append(list, "--user=root")
		}
		return list
	},
	ready: func(ctx context.Context, addr string) error {
		db, err := sql.Open("mysql", "root@tcp("+addr+")/")
		if err != nil {
			return err
		}
		defer db.Close()
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		return conn.Close()
	},
}

// MariaDBStatus reads one number of SHOW GLOBAL STATUS.
func MariaDBStatus(ctx context.Context, addr, variable string) (n int64, err error) {
	db, err := sql.Open("mysql", "root@tcp("+addr+")/")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = ?", variable).Scan(&n)
	return n, err
}

func installMariaDB(ctx context.Context, _ Kind, dir string) error {
	path, err := find("mariadb-install-db")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "--no-defaults", "--datadir="+filepath.Join(dir, "data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--force")
	if os.Geteuid() == 0 {
		cmd.Args = append(cmd.Args, "--user=root")
	}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	return quietly(cmd)
}

// Redis keeps an append-only file, synced every second. Snapshots are off: they
// would fork in the middle of a measurement, and add nothing to what is durable.
var Redis = Kind{
	Name: "redis", title: "Redis", program: "redis-server", version: []string{"--version"}, stop: syscall.SIGKILL,
	args: func(dir string, port int) []string {
		return []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""}
	},
	ready: func(ctx context.Context, addr string) error {
		_, err := RedisInfo(ctx, addr, "used_memory")
		return err
	},
}

// RedisInfo reads one number of INFO: "used_memory" is in bytes.
func RedisInfo(ctx context.Context, addr, field string) (int64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "INFO memory\r\nQUIT\r\n"); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), field+":"); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("INFO has no %s: %w", field, errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// PostgreSQL has durable commits.
var PostgreSQL = Kind{
	Name: "postgres", title: "PostgreSQL", program: "postgres", version: []string{"--version"}, unroot: true, stop: syscall.SIGQUIT,
	prepare: initPostgreSQL,
	args: func(dir string, port int) []string {
		return []string{"-D", filepath.Join(dir, "data"), "-k", dir, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-c", "fsync=on", "-c", "synchronous_commit=on",
			"-c", "shared_buffers=2GB", "-c", "max_wal_size=4GB", "-c", "max_connections=200"}
	},
	ready: answersPostgreSQL,
}

func initPostgreSQL(ctx context.Context, k Kind, dir string) error {
	path, err := find("initdb")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "-D", filepath.Join(dir, "data"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale")
	cmd.Dir = dir
	if err := k.as(cmd); err != nil {
		return err
	}
	return quietly(cmd)
}

// answersPostgreSQL sends an SSLRequest: a server that is up answers S or N, one
// that is starting refuses the connection or drops it.
func answersPostgreSQL(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err != nil {
		return err
	}
	answer := make([]byte, 1)
	_, err = io.ReadFull(conn, answer)
	return err
}

// Beanstalkd keeps a binlog, synced at most every 50 ms.
var Beanstalkd = Kind{
	Name: "beanstalkd", title: "beanstalkd", program: "beanstalkd", version: []string{"-v"}, stop: syscall.SIGKILL,
	args: func(dir string, port int) []string {
		return []string{"-l", "127.0.0.1", "-p", strconv.Itoa(port), "-b", dir, "-f", "50"}
	},
}

// Consul is one server that keeps its state on disk.
var Consul = Kind{
	Name: "consul", title: "Consul", program: "consul", version: []string{"version"}, stop: syscall.SIGKILL,
	args: func(dir string, port int) []string {
		return []string{"agent", "-server", "-bootstrap-expect=1", "-node=bench", "-data-dir=" + filepath.Join(dir, "data"), "-bind=127.0.0.1",
			"-client=127.0.0.1", "-http-port=" + strconv.Itoa(port), "-server-port=" + strconv.Itoa(port^1), "-serf-lan-port=" + strconv.Itoa(port^2),
			"-serf-wan-port=-1", "-grpc-port=-1", "-dns-port=-1", "-log-level=warn", "-hcl=performance { raft_multiplier = 1 }",
			"-hcl=disable_update_check = true"}
	},
	ready: func(ctx context.Context, addr string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/health/node/bench?consistent", nil)
		if err != nil {
			return err
		}
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		if err == nil && !strings.Contains(string(body), `"Status":"passing"`) {
			err = fmt.Errorf("no healthy leader yet: %s", res.Status)
		}
		return err
	},
}

func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// Own is a server that is a program of this benchmark's: its args are a function of its directory and its port.
func Own(name, program string, args func(dir, port string) []string) Kind {
	return Kind{
		Name: name, title: name, program: program, stop: syscall.SIGKILL,
		args: func(dir string, port int) []string { return args(dir, strconv.Itoa(port)) },
	}
}
