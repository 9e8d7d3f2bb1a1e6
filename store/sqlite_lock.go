package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/timeoutcenter/toc/internal/wait"
)

// The holder of a SQLite store has an flock on its directory, which the kernel releases when the process ends
// in any way. There is no lock file that could be deleted. Each database also has the holder's row, as on
// MySQL: it names the holder, and shows whether the last one released the store.
//
// Open files outlive their names. So the files at the names are compared with the locked ones: a file that was
// deleted or replaced is not written any more.

// dirLock is this process's lock of the directory.
type dirLock struct {
	hold    func(dir string) (release func() error, err error)
	mu      wait.Mutex     // held while a database is asked
	release func() error   // nil: the directory is not locked
	owners  map[int]string // by database: the id of its holder
	files   []atomic.Pointer[heldFiles]
}

// heldFiles are the files at the names when a database was first locked.
type heldFiles struct{ dir, file os.FileInfo }

// readHolder has a connection that is for the holder's row only. The nodes of a cluster in one process share the files
// (Config.Outside). Then the row is the holder, as on MySQL, and the directory is not locked.
func (b *sqliteBackend) readHolder(ctx context.Context, database int) (row string, err error) {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	reading := ServerClock{Sent: time.Now(), Server: time.Now().UTC()}
	err = b.holders[database].QueryRowContext(ctx, "SELECT COALESCE((SELECT value FROM toc_meta WHERE name=?),'')", holderRow).Scan(&row)
	if err != nil {
		return "", err
	}
	reading.Received = time.Now()
	b.serverClocks[database].Store(&reading)
	return row, nil
}

func (b *sqliteBackend) swapHolder(ctx context.Context, database int, seen string, next claim) (row string, changed bool, err error) {
	asking, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	r, err := b.holders[database].ExecContext(asking, `INSERT INTO toc_meta (name, value) SELECT ?, ?
		WHERE COALESCE((SELECT value FROM toc_meta WHERE name=?),'')=? ON CONFLICT DO UPDATE SET value=excluded.value`,
		holderRow, next.text(), holderRow, seen)
	if err != nil {
		return "", false, err
	}
	n, err := r.RowsAffected()
	if err == nil {
		row, err = b.readHolder(ctx, database)
	}
	return row, n > 0 && err == nil, err
}

func (b *sqliteBackend) nameHolderBlocked(_ context.Context, _ int, err error) error { return err }

// statFiles returns the directory and a database's file in it.
func (b *sqliteBackend) statFiles(database int) (f heldFiles, err error) {
	if f.dir, err = os.Stat(b.dir); err == nil {
		f.file, err = os.Stat(SQLiteFile(b.dir, database))
	}
	return f, err
}

// checkIntact checks that a locked database is still the file at its name.
func (b *sqliteBackend) checkIntact(database int) error {
	want := b.held.files[database].Load()
	if want == nil {
		return nil
	}
	have, err := b.statFiles(database)
	if err == nil && os.SameFile(have.dir, want.dir) && os.SameFile(have.file, want.file) {
		return nil
	}
	return fmt.Errorf("%s was deleted or replaced while it was in use: stop this process, put the file back, start again",
		SQLiteFile(b.dir, database))
}

func (b *sqliteBackend) lock(ctx context.Context, database int, holder Holder) (Lock, error) {
	if b.holders != nil {
		return lockRow(ctx, b, database, SQLiteFile(b.dir, database), holder)
	}
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	if err := b.checkIntact(database); err != nil {
		return nil, err
	}
	if owner, taken := b.held.owners[database]; taken && owner != holder.ID {
		return nil, b.occupied(ctx, database)
	}
	switch err := b.lockDir(); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, b.occupied(ctx, database)
	case err != nil:
		return nil, fmt.Errorf("lock the directory %s: %w", b.dir, err)
	}
	var text string
	err := b.writers[database].QueryRowContext(ctx, "SELECT value FROM toc_meta WHERE name=?", holderRow).Scan(&text)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, errors.Join(err, b.unlockIdleDir())
	}
	before := parseClaim(text)
	l := &sqliteLock{backend: b, database: database, claim: claim{Holder: holder, beat: before.beat + 1, state: stateHeld}}
	l.unclean = text != "" && !before.isReleased() && !before.is(holder) || before.state == stateUnsettled
	files, err := b.statFiles(database)
	if err == nil {
		err = l.write(ctx)
	}
	if err != nil {
		b.reopenIfReadOnly(database, err)
		return nil, errors.Join(err, b.unlockIdleDir())
	}
	b.held.files[database].CompareAndSwap(nil, &files)
	b.held.owners[database] = holder.ID
	return l, nil
}

// lockDir locks the directory; EWOULDBLOCK: another process has it. The caller holds mu.
func (b *sqliteBackend) lockDir() error {
	if b.held.release != nil {
		return nil
	}
	release, err := b.held.hold(b.dir)
	if err != nil {
		return err
	}
	b.held.release, b.held.owners = release, make(map[int]string)
	return nil
}

// flock locks a directory for this process.
func flock(path string) (release func() error, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() error {
		// Closing alone would leave the lock to a child process between fork and exec.
		return errors.Join(unix.Flock(int(dir.Fd()), unix.LOCK_UN), dir.Close())
	}, nil
}

// unlockIdleDir frees the directory if no database is locked. The caller holds mu.
func (b *sqliteBackend) unlockIdleDir() error {
	if b.held.release == nil || len(b.held.owners) > 0 {
		return nil
	}
	release := b.held.release
	b.held.release = nil
	return release()
}

// unlockDir frees the directory, even if databases are locked.
func (b *sqliteBackend) unlockDir() error {
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	clear(b.held.owners)
	return b.unlockIdleDir()
}

func (b *sqliteBackend) occupied(ctx context.Context, database int) error {
	var text string
	_ = b.readers[database].QueryRowContext(ctx, "SELECT value FROM toc_meta WHERE name=?", holderRow).Scan(&text)
	return &OccupiedError{Database: SQLiteFile(b.dir, database), Holder: parseClaim(text).String()}
}

// sqliteLock is the hold on a database.
type sqliteLock struct {
	backend  *sqliteBackend
	database int
	claim    claim
	unclean  bool
}

func (l *sqliteLock) TakenUncleanly() bool { return l.unclean }

func (l *sqliteLock) Check(context.Context) error {
	if err := l.backend.checkIntact(l.database); err != nil {
		return fmt.Errorf("%w: %w", ErrLockLost, err)
	}
	return nil
}

func (l *sqliteLock) write(ctx context.Context) error {
	_, err := l.backend.writers[l.database].ExecContext(ctx,
		"INSERT INTO toc_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value=excluded.value", holderRow, l.claim.text())
	return err
}

func (l *sqliteLock) Release(settled bool) error {
	b := l.backend
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	err := b.checkIntact(l.database)
	if err == nil {
		l.claim.state = releasedAs(settled)
		err = l.write(context.Background())
	}
	delete(b.held.owners, l.database)
	return errors.Join(err, b.unlockIdleDir())
}
