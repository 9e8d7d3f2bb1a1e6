package store_test

import (
	"context"
	"database/sql/driver"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// There is no lock file to delete: the lock is on the directory. Before, `rm *.lock`
// let a second process in, and both fired everything.
func TestSQLiteLockCannotBeDeleted(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	l, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	files, err := filepath.Glob(f.cfg.Dir + "/*")
	require.NoError(t, err)
	for _, file := range files {
		if filepath.Ext(file) != ".db" && filepath.Ext(file) != ".db-wal" && filepath.Ext(file) != ".db-shm" {
			require.NoError(t, os.Remove(file))
		}
	}
	_, err = f.another(t, f.cfg).Lock(t.Context(), 0, alone("the next"))
	require.ErrorContains(t, err, "held by me")
	_, err = f.another(t, f.cfg).Lock(t.Context(), 1, alone("the next"))
	var occupied *store.OccupiedError
	require.ErrorAs(t, err, &occupied, "the directory is one process's")
	require.NoError(t, l.Check(t.Context()))
	require.NoError(t, l.Release(true))
}

// Before, a file that must not be written at the start was given up until the next start, also when its rights were mended.
func TestSQLiteFileBecomesWritable(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	var writable atomic.Bool
	cfg := f.cfg
	cfg.Outside.Connect = func(database int, c driver.Connector) driver.Connector {
		onlyRead, err := sqlite.NewConnector("file:" + store.SQLiteFile(cfg.Dir, database) + "?mode=ro")
		require.NoError(t, err)
		return connector{c, func() driver.Connector {
			if writable.Load() {
				return c
			}
			return onlyRead
		}}
	}
	s := f.another(t, cfg)
	_, err := s.Lock(t.Context(), 0, alone("me"))
	require.ErrorContains(t, err, "readonly")
	stored := s.Insert(t.Context(), []task.Task{{BizID: 8, BizType: 1, ActionTime: f.in(1)}})
	require.ErrorIs(t, stored[0].Err, task.ErrNotBegun)
	writable.Store(true)
	l, err := s.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.NoError(t, l.Release(true))
}

// connector opens connections by another one.
type connector struct {
	driver.Connector
	now func() driver.Connector
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) { return c.now().Connect(ctx) }

// A store whose file is gone, or another one now, says so and takes nothing in.
// Before, submits into a deleted file were answered 201.
func TestSQLiteFileIsGone(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(t *testing.T, dir string){
		"deleted": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(store.SQLiteFile(dir, 1)))
		},
		"replaced": func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(store.SQLiteFile(dir, 1), filepath.Join(dir, "old.db")))
			content, err := os.ReadFile(filepath.Join(dir, "old.db"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(store.SQLiteFile(dir, 1), content, 0o600))
		},
		"directory replaced": func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(dir, dir+".old"))
			require.NoError(t, os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := onSQLite().open(t, small)
			l, err := f.Lock(t.Context(), 1, alone("me"))
			require.NoError(t, err)
			require.NoError(t, l.Check(t.Context()))
			insert := func() error {
				return f.Insert(t.Context(), []task.Task{{BizID: 1, BizType: 1, ActionTime: f.in(0)}})[0].Err
			}
			require.NoError(t, insert())
			hurt(t, f.cfg.Dir)
			require.ErrorIs(t, l.Check(t.Context()), store.ErrLockLost)
			require.ErrorIs(t, insert(), task.ErrUnavailable)
			require.ErrorContains(t, insert(), "was deleted or replaced while it was in use")
			require.Error(t, whyDown(t, f.Store, 1))
			_, err = f.Lock(t.Context(), 1, alone("me"))
			require.ErrorContains(t, err, "was deleted or replaced")
			require.Error(t, l.Release(true))
		})
	}
}

// A file that was moved away and back is what it was.
func TestSQLiteFileIsBack(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	l, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	file := store.SQLiteFile(f.cfg.Dir, 0)
	require.NoError(t, os.Rename(file, file+".away"))
	require.ErrorIs(t, l.Check(t.Context()), store.ErrLockLost)
	require.ErrorIs(t, f.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}})[0].Err, task.ErrUnavailable)
	require.NoError(t, os.Rename(file+".away", file))
	require.Empty(t, f.everything(t), "what was refused is not there when the file is back")
	l, err = f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.NoError(t, l.Check(t.Context()))
	f.put(t, task.Task{BizID: 0, BizType: 1, ActionTime: f.in(0)})
	require.NoError(t, l.Release(true))
}

// Attributes may hold anything: others must not read them, also where directory and files were there before.
func TestSQLiteFilesAreTheirUsersAlone(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	f.put(t, f.inEachTable(1)...)
	require.NoError(t, os.Chmod(f.cfg.Dir, 0o755))
	for d := range small.Databases {
		require.NoError(t, os.Chmod(store.SQLiteFile(f.cfg.Dir, d), 0o644))
	}
	f.another(t, f.cfg)
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.Equal(t, os.FileMode(0o700), mode(f.cfg.Dir))
	files, err := filepath.Glob(filepath.Join(f.cfg.Dir, "toc_*"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3*small.Databases)
	for _, file := range files {
		require.Equal(t, os.FileMode(0o600), mode(file), file)
	}

	// At 799f0ec the rights of a file were changed that a link named which somebody else had made.
	others := filepath.Join(t.TempDir(), "others")
	require.NoError(t, os.WriteFile(others, nil, 0o644))
	cfg := f.cfg
	cfg.Dir = t.TempDir()
	require.NoError(t, os.Symlink(others, store.SQLiteFile(cfg.Dir, 0)+"-wal"))
	s, err := store.Open(cfg)
	require.NoError(t, err, "nothing is read yet")
	require.NoError(t, s.Close())
	require.Equal(t, os.FileMode(0o644), mode(others))
}
