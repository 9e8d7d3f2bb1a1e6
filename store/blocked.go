package store

import (
	"context"
	"errors"
	"time"
)

// ErrWritesBlocked is why a write waits for no row: another session holds the global read lock of the server.
var ErrWritesBlocked = errors.New("another session holds the server's global read lock (FLUSH TABLES WITH READ LOCK), as some backups do, so nobody " +
	"can write; end that session, and back up without it (mariadb-dump --single-transaction, mariadb-backup)")

// areWritesBlocked reports whether the server lets nobody write. The server reports a row that is locked and a server that
// is locked by one error number, so the store asks by a write that needs no row. An answer counts for a second.
func (s *databases) areWritesBlocked(database int) bool {
	c := &s.dbs[database].condition
	c.asking.Lock()
	defer c.asking.Unlock()
	if time.Now().After(c.blockedUntil) {
		c.blocked = s.backend.writesBlocked(context.Background(), database)
		c.blockedUntil = time.Now().Add(time.Second)
	}
	return c.blocked
}

// nameBlocked puts ErrWritesBlocked into a LockedError in which the locks of rows are not the cause, and returns err.
func (s *databases) nameBlocked(database int, err error) error {
	locked, is := errors.AsType[*LockedError](err)
	if !is || locked.table() != nil || !s.areWritesBlocked(database) {
		return err
	}
	for id := range locked.Tasks {
		locked.Tasks[id] = ErrWritesBlocked
	}
	return err
}

// writesBlocked implements backend. It has the holder's pool: its statements wait for no others.
func (b *mysqlBackend) writesBlocked(ctx context.Context, database int) bool {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	_, err := b.holders[database].ExecContext(ctx, "UPDATE toc_audit SET count=count WHERE id=0")
	return b.refusal(err) == refusedLocked
}

// errHolderLocked is why the holder's row is locked, which only this program writes.
var errHolderLocked = errors.New("the row 'holder' of toc_meta is locked: by a write of toc that the server has not ended, as while its disk is full or its " +
	"replica does not answer, or by a transaction of somebody else")

// nameHolderBlocked joins the cause with the error of the holder's row.
func (b *mysqlBackend) nameHolderBlocked(ctx context.Context, database int, err error) error {
	switch {
	case b.refusal(err) != refusedLocked:
		return err
	case b.writesBlocked(ctx, database):
		return errors.Join(ErrWritesBlocked, err)
	}
	return errors.Join(errHolderLocked, err)
}
