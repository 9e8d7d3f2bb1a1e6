package testrig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

// mysqld is the engine of MariaDB or MySQL. Commits are durable (one fsync each, as in production): a rig that
// cheats there would hide both the cost and the crashes.
type mysqld struct {
	program []string // and what comes before its first argument
	install string   // mariadb-install-db; empty for MySQL, which initializes itself
	flags   []Option // appended last, so they win
	tls     *serverTLS
}

// findMySQL finds what EnvDatabase names; without it MariaDB, or the MySQL that is installed.
func findMySQL(options ...Option) (m mysqld, err error) {
	onlyTLS, flags := takeTLS(options)
	defer func() { m.tls = onlyTLS }()
	switch wanted := os.Getenv(EnvDatabase); wanted {
	case "mysql":
		program, err := findCachedMySQL()
		return mysqld{program: program, flags: flags}, err
	case "", "mariadb":
	default:
		return mysqld{}, fmt.Errorf("%s=%s is neither mariadb nor mysql", EnvDatabase, wanted)
	}
	if binary, err := findBinary("mariadbd"); err == nil {
		install, err := findBinary("mariadb-install-db")
		return mysqld{program: []string{binary, "--no-defaults"}, install: install, flags: flags}, err
	}
	binary, err := findBinary("mysqld")
	if err != nil {
		return mysqld{}, fmt.Errorf("neither mariadbd nor %w", err)
	}
	return mysqld{program: []string{binary, "--no-defaults"}, flags: flags}, nil
}

// findCachedMySQL finds the MySQL that scripts/mysql.sh has unpacked. It runs by its own loader and libraries.
func findCachedMySQL() ([]string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(cache, mysqlDir, "usr")
	loaders, _ := filepath.Glob(filepath.Join(root, "lib", "*-linux-gnu", "ld-linux-*.so.*"))
	if len(loaders) == 0 {
		return nil, fmt.Errorf("MySQL %w", ErrNotInstalled)
	}
	return []string{loaders[0], "--library-path", filepath.Dir(loaders[0]), filepath.Join(root, "sbin", "mysqld"), "--no-defaults",
		"--lc-messages-dir=" + filepath.Join(root, "share", "mysql")}, nil
}

func (m mysqld) cmd(ctx context.Context, arg ...string) *exec.Cmd {
	return exec.CommandContext(ctx, m.program[0], slices.Concat(m.program[1:], arg)...)
}

func (mysqld) name() string { return "mysql" }

func (m mysqld) prepare(ctx context.Context, dir string) error {
	data := "--datadir=" + dataDir(dir)
	cmd := m.cmd(ctx, "--initialize-insecure", data)
	if m.install != "" {
		cmd = exec.CommandContext(ctx, m.install, "--no-defaults", data, "--auth-root-authentication-method=normal",
			"--skip-test-db", "--force") // force: do without a host name that can be looked up
	}
	cmd.Args = append(cmd.Args, asRoot()...)
	cmd.Dir = dir
	// A server that starts clears its directory of temporary tables, whosoever they are.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create an empty database with %s: %w\n%s", cmd.Path, err, out)
	}
	return nil
}

func (m mysqld) command(dir string, port int) *exec.Cmd {
	cmd := m.cmd(context.Background(),
		"--datadir="+dataDir(dir),
		"--tmpdir="+dir,
		"--socket="+socket(dir),
		"--pid-file="+filepath.Join(dir, "pid"),
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port),
		"--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size="+defaultBufferPool,
		"--max-connections=500",
		// Room for 8 databases of 1024 tables; the server lowers it to what the limit of open files allows.
		"--table-open-cache=20000",
		"--open-files-limit=65535",
	)
	if m.install == "" {
		cmd.Args = append(cmd.Args,
			"--mysqlx=OFF", // would take a second, fixed port
			// As docs/bench/databases.md says: its sixteen caches would each have to hold every table.
			"--table-open-cache-instances=1",
			"--table-definition-cache=10000",
			"--secure-file-priv="+dir, // the packaged default must exist and may not be ours to use
		)
	}
	if m.tls != nil {
		cmd.Args = append(cmd.Args, "--ssl-ca="+m.tls.ca, "--ssl-cert="+m.tls.cert, "--ssl-key="+m.tls.key, "--require-secure-transport=ON")
	}
	cmd.Args = append(cmd.Args, asRoot()...)
	cmd.Args = append(cmd.Args, args(m.flags)...)
	// A write beyond NoLargerFiles is to fail, not to end the server.
	cmd = exec.Command("/bin/sh", append([]string{"-c", `trap "" XFSZ; exec "$@"`, "sh"}, cmd.Args...)...)
	cmd.Dir = dir
	return cmd
}

func (m mysqld) ready(ctx context.Context, dir string, port, _ int) error {
	addr := loopback(port)
	if m.tls != nil {
		addr = socket(dir)
	}
	db, err := openMySQL("root", addr)
	if err != nil {
		return err
	}
	defer db.Close()
	var got string
	if err := db.QueryRowContext(ctx, "SELECT @@socket").Scan(&got); err != nil {
		return err
	}
	if got != socket(dir) {
		return errors.New("another server has the port")
	}
	return nil
}

func dataDir(dir string) string { return filepath.Join(dir, "data") }
func socket(dir string) string  { return filepath.Join(dir, "s") } // short: a socket's path has some 100 bytes at most

// asRoot returns the option without which neither program runs as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// openMySQL makes a handle for administration: no database chosen, times in UTC. auth is user or user:password; addr is
// host:port or the path of a socket.
func openMySQL(auth, addr string) (*sql.DB, error) {
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	cfg, err := mysql.ParseDSN(auth + "@" + network + "(" + addr + ")/?parseTime=true&time_zone=%27%2B00%3A00%27")
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{} // a server that is starting or was killed is no news here
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
