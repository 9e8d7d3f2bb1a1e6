package store

import (
	"context"
	"fmt"
)

// Lock is the exclusive lock of one database, for the cluster of one node: as
// long as it is held no second process works on the same rows.
type Lock interface {
	// Check tells whether the lock is still held. After an error it is not.
	Check(ctx context.Context) error
	// Release gives the lock back.
	Release() error
}

// OccupiedError answers Lock when another process holds the database.
type OccupiedError struct {
	Database string
	Holder   string
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("the store is in use: %s is held by %s; stop that process first, or give this one another store",
		e.Database, e.Holder)
}

// Lock takes the exclusive lock of a database for holder, a name that people
// recognise. It answers OccupiedError when another process has it.
func (s *Store) Lock(ctx context.Context, database int, holder string) (Lock, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l, err := s.backend.lock(ctx, database, holder)
	if _, occupied := err.(*OccupiedError); occupied || err == nil {
		return l, err
	}
	return nil, s.wrap(database, "lock", err)
}
