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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// alone is the holder of a single process.
func alone(name string) store.Holder {
	return store.Holder{Kind: store.HolderSingle, ID: fmt.Sprintf("%x", name), Name: name}
}

func locksOutOthers(t *testing.T, p place) {
	f := p.open(t, small)
	other := f.another(t, f.cfg)

	first, err := f.Lock(t.Context(), 0, alone("node-a"))
	require.NoError(t, err)
	require.False(t, first.TakenUncleanly(), "nobody had it before")
	living := checked(t, first)
	for _, s := range []*store.Store{other, f.Store} {
		_, err = s.Lock(t.Context(), 0, alone("node-b"))
		var occupied *store.OccupiedError
		require.ErrorAs(t, err, &occupied)
		require.Equal(t, "node-a", occupied.Holder)
		require.ErrorContains(t, err, occupied.Database)
		require.NotErrorIs(t, err, task.ErrUnavailable, "to try again would not help")
	}
	living()
	again, err := f.Lock(t.Context(), 0, alone("node-a"))
	require.NoError(t, err, "its own it gets at once")
	require.False(t, again.TakenUncleanly())
	require.NoError(t, again.Check(t.Context()))

	// A locked store works like any other.
	f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)})

	require.NoError(t, again.Release(true))
	next, err := other.Lock(t.Context(), 0, alone("node-b"))
	require.NoError(t, err)
	require.False(t, next.TakenUncleanly(), "a released lock is free at once; after a lease it would be taken uncleanly")
	defer checked(t, next)()
	_, err = f.Lock(t.Context(), 0, alone("node-a"))
	require.ErrorContains(t, err, "node-b", "the holder of now")
}

// A holder that took a database uncleanly and releases it before it is settled passes that on.
func passesOnWhatIsUnsettled(t *testing.T, p place) {
	f := p.open(t, small)
	for i, c := range []struct{ settled, unclean bool }{{settled: true}, {}, {settled: true, unclean: true}, {settled: true}, {settled: true}} {
		l, err := f.another(t, f.cfg).Lock(t.Context(), 0, alone(fmt.Sprint(i)))
		require.NoError(t, err)
		require.Equal(t, c.unclean, l.TakenUncleanly(), "holder %d", i)
		require.NoError(t, l.Check(t.Context()))
		require.NoError(t, l.Release(c.settled))
	}
}

// checked repeats Check until stop.
func checked(t *testing.T, l store.Lock) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil {
			// A check that is cut short may still be made, and then looks like that of a holder that goes on.
			if err := l.Check(t.Context()); err != nil && t.Context().Err() == nil {
				t.Errorf("check: %v", err)
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-stopped:
				return
			case <-t.Context().Done():
			}
		}
	}()
	return func() { close(stopped); <-done }
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
			var l store.Lock
			if l, err = s.Lock(context.Background(), 0, alone("the other process")); err == nil {
				go func() {
					for range time.Tick(time.Second) {
						_ = l.Check(context.Background())
					}
				}()
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test kills us, or is gone itself
}

// locksDieWithTheirProcess: no lock outlives a kill -9 for long.
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

	_, err = f.Lock(t.Context(), 0, alone("me"))
	require.ErrorContains(t, err, "the other process")
	require.NoError(t, cmd.Process.Kill())
	var killed *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &killed)
	l, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.True(t, l.TakenUncleanly())
	require.NoError(t, l.Release(true))
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
	_, err = s.Lock(t.Context(), 1, alone("me"))
	var failed *store.DatabaseError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Database)
	require.False(t, errors.As(err, new(*store.OccupiedError)))
}
