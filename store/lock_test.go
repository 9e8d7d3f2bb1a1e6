package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func locksOutOthers(t *testing.T, p place) {
	f := p.open(t, small)
	other := f.another(t, f.cfg)

	first, err := f.Lock(t.Context(), 0, "node-a pid 41")
	require.NoError(t, err)
	require.NoError(t, first.Check(t.Context()))
	for _, s := range []*store.Store{other, f.Store} {
		_, err = s.Lock(t.Context(), 0, "node-b pid 42")
		var occupied *store.OccupiedError
		require.ErrorAs(t, err, &occupied)
		require.Equal(t, "node-a pid 41", occupied.Holder)
		require.ErrorContains(t, err, occupied.Database)
		require.NotErrorIs(t, err, task.ErrUnavailable, "to try again would not help")
	}
	second, err := other.Lock(t.Context(), 1, "node-b pid 42")
	require.NoError(t, err, "each database by itself")
	require.NoError(t, second.Check(t.Context()))
	require.NoError(t, second.Release())

	// A locked store works like any other.
	f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)})

	require.NoError(t, first.Release())
	again, err := other.Lock(t.Context(), 0, "node-b pid 42")
	require.NoError(t, err)
	_, err = f.Lock(t.Context(), 0, "node-a pid 41")
	require.ErrorContains(t, err, "node-b pid 42", "the holder of now")
	require.NoError(t, again.Release())
}

// holderEnv makes this test program a process that takes a lock and keeps it;
// its value says in which store.
const holderEnv = "TOC_TEST_HOLDER"

type whereabouts struct {
	Driver   store.Driver
	Dir, DSN string
}

func holdLock() {
	var where whereabouts
	err := json.Unmarshal([]byte(os.Getenv(holderEnv)), &where)
	if err == nil {
		var s *store.Store
		s, err = store.Open(store.Config{Driver: where.Driver, Layout: small, Dir: where.Dir, DSN: where.DSN})
		if err == nil {
			_, err = s.Lock(context.Background(), 0, "the other process")
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test kills us, or is gone itself
}

// locksDieWithTheirProcess: no lock outlives a kill -9.
func locksDieWithTheirProcess(t *testing.T, p place) {
	f := p.open(t, small)
	where, err := json.Marshal(whereabouts{f.cfg.Driver, f.cfg.Dir, f.cfg.DSN})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+string(where))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", said)

	_, err = f.Lock(t.Context(), 0, "me")
	require.ErrorContains(t, err, "the other process")
	require.NoError(t, cmd.Process.Kill())
	var killed *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &killed)
	l, err := f.Lock(t.Context(), 0, "me")
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

// TestMySQLLockDiesWithItsConnection: the holder finds out by Check.
func TestMySQLLockDiesWithItsConnection(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	l, err := f.Lock(t.Context(), 0, "me")
	require.NoError(t, err)
	var connection int64
	name := "toc." + f.schema(t, 0)
	require.NoError(t, f.hands[0].QueryRowContext(t.Context(), "SELECT IS_USED_LOCK(?)", name).Scan(&connection))
	_, err = f.hands[0].ExecContext(t.Context(), fmt.Sprintf("KILL CONNECTION %d", connection))
	require.NoError(t, err)

	require.Error(t, l.Check(t.Context()))
	next, err := f.another(t, f.cfg).Lock(t.Context(), 0, "the next")
	require.NoError(t, err)
	require.Error(t, l.Check(t.Context()), "it stays lost, also for whoever reconnects")
	_ = l.Release() // nothing is left to give back
	require.NoError(t, next.Check(t.Context()))
	require.NoError(t, next.Release())
}

// TestMySQLLockThatFailsHalfwayIsGivenBack: a connection that returned to the pool
// with the lock would keep it for as long as the process lives.
func TestMySQLLockThatFailsHalfwayIsGivenBack(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	_, err := f.hands[0].ExecContext(t.Context(), "RENAME TABLE toc_meta TO elsewhere")
	require.NoError(t, err)
	_, err = f.Lock(t.Context(), 0, "me")
	var failed *store.DatabaseError
	require.ErrorAs(t, err, &failed)
	_, err = f.hands[0].ExecContext(t.Context(), "RENAME TABLE elsewhere TO toc_meta")
	require.NoError(t, err)
	l, err := f.another(t, f.cfg).Lock(t.Context(), 0, "the next")
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

func TestLockOfADatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	cfg := onSQLite().config(t, small)
	require.NoError(t, os.WriteFile(cfg.Dir+"/file", nil, 0o600))
	cfg.Dir += "/file"
	_, err := store.Open(cfg)
	require.ErrorContains(t, err, "store.sqlite.dir")

	cfg = store.Config{Driver: store.MySQL, Layout: small, DSN: "root@tcp(127.0.0.1:1)/toc_%d"}
	s, err := store.Open(cfg)
	require.NoError(t, err, "nothing is connected yet")
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Lock(t.Context(), 1, "me")
	var failed *store.DatabaseError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Database)
	require.False(t, errors.As(err, new(*store.OccupiedError)))
}

// schema is the name of a MySQL database.
func (f *fixture) schema(t testing.TB, database int) (name string) {
	t.Helper()
	require.NoError(t, f.hands[database].QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
	return name
}
